"""Whether large test matrices run in full (RUNE_WHOLE=1) or in part, with every row and column at least once."""

from __future__ import annotations

import os

WHOLE = os.environ.get("RUNE_WHOLE", "") not in ("", "0")
