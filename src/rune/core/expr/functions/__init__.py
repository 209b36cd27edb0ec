"""The functions that expressions can call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rune.core.expr.functions.collections import LISTS, NUMBERS
from rune.core.expr.functions.dates import DATES
from rune.core.expr.functions.table import Function
from rune.core.expr.functions.text import ENCODING, JSONS, TEXT

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        name: function
        for table in (TEXT, LISTS, NUMBERS, JSONS, DATES, ENCODING)
        for name, function in table.functions.items()
    }
)

__all__ = ["FUNCTIONS", "Function"]
