"""How much of a large matrix is run: a part of it that touches everything once, or with RUNE_WHOLE=1 all of it."""

from __future__ import annotations

import os

WHOLE = os.environ.get("RUNE_WHOLE", "") not in ("", "0")
