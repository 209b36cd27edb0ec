"""Differences between two definitions as the API shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.api.comparison import Change
from rune.core.definition.diff import difference


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the changes between two definitions in plain canonical form."""
    return [msgspec.convert(each, Change, from_attributes=True) for each in difference(before, after)]
