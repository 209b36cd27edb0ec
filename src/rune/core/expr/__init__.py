"""The expression language: pure, bounded in time and memory, and limited to JSON values."""

from __future__ import annotations

from rune.core.expr.budget import (
    BudgetError,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionSyntaxErrors,
    Meter,
    MissingError,
    TimeBudgetError,
)
from rune.core.expr.expression import Expression, compile_expression
from rune.core.expr.functions import FUNCTIONS, Function
from rune.core.expr.names import Names, Reference
from rune.core.expr.operators import MISSING, OPERATORS
from rune.core.expr.template import Template, compile_template, is_dynamic
from rune.core.expr.values import json_equal, to_text, truthy

__all__ = [
    "FUNCTIONS",
    "MISSING",
    "OPERATORS",
    "BudgetError",
    "Expression",
    "ExpressionError",
    "ExpressionSyntaxError",
    "ExpressionSyntaxErrors",
    "Function",
    "Meter",
    "MissingError",
    "Names",
    "Reference",
    "Template",
    "TimeBudgetError",
    "compile_expression",
    "compile_template",
    "is_dynamic",
    "json_equal",
    "to_text",
    "truthy",
]
