"""What a node that waits for a signal accepts as its value: `choices` and `schema`, which the inbox shows.

A value is checked when it is sent, if the node that will take it is certain, and by the node when it takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rune.core.definition.problems import INPUT_MISMATCH, Problem
from rune.core.expr.budget import Meter
from rune.documents.json_schema import check_value


def check_signal_value(
    parameters: Mapping[str, Any], value: object, meter: Meter | None = None
) -> list[Problem]:
    """Return why the node with these parameters does not accept the value."""
    schema, choices = parameters.get("schema"), parameters.get("choices")
    problems: list[Problem] = []
    if isinstance(choices, list):
        chosen = value.get("choice") if isinstance(value, dict) else None
        if chosen not in choices:
            message = f"must be one of {', '.join(map(str, choices))}"
            problems.append(Problem("value.choice", INPUT_MISMATCH, message, "see `choices` of the node"))
    if isinstance(schema, dict):
        problems += [
            replace(each, path=each.path.replace("input", "value", 1), hint="")
            for each in check_value(schema, value, meter)
        ]
    return problems
