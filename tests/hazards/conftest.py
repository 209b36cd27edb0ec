"""What the hazards' tests share is asserted in modules of their own, and says as much when it fails."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(f"tests.hazards.{each}" for each in ("delivering", "merging", "splitting", "waiting"))
)
