"""Rows of the load table: numbers of odd forms, as many as fit, sent to each route and node that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rune.core.limits import LIMITS
from tests.support.documents import document as workflow
from tests.support.documents import node
from tests.support.load_rows import Loaded, Row, Sent
from tests.support.whole import WHOLE

NUMBERS = (
    "1e300",
    "5e-324",
    "1.7976931348623157e308",
    "-0.0",
    "1e-300",
    "9007199254740993",
    "0.1e1",
    "1e+00000300",
    "1" * 4_000,
    "0." + "1" * 4_000,
)
TESTED: dict[str, dict[str, Any]] = {
    "noop": {},
    "edit": {"assignments": [{"name": "a", "value": "{{ $trigger.body }}"}]},
    "log": {"message": "{{ len($trigger.body) }}"},
    "output": {"value": "{{ $trigger.body }}"},
    "sort": {"input_array": "{{ $trigger.body }}", "expression": "$item"},
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "number": {"items": {"type": "number"}},
    "integer": {"items": {"type": "integer"}},
    "unique": {"uniqueItems": True},
    "bounds": {"items": {"minimum": -1, "exclusiveMaximum": 1e308}},
}
START_BYTES = LIMITS.payload_bytes if WHOLE else 2_400_000
HOOK_BYTES = 900_000


def listed(number: str, size: int) -> bytes:
    return b"[" + b",".join([number.encode()] * (size // (len(number) + 1))) + b"]"


def numbered() -> Iterator[dict[str, Any]]:
    """The workflows to which the numbers are sent."""
    for name, parameters in TESTED.items():
        start = node("in", "webhook", {"path": f"numbers-{name}"})
        yield workflow([start, node("n", name, parameters)], "in>n", id=f"numbers-{name}")
    for name, schema in SCHEMAS.items():
        yield workflow([node("in", "input")], id=f"numbers-in-{name}", inputs=schema)


def number_rows(loaded: Loaded) -> Iterator[Row]:
    for number in NUMBERS:
        shown = number[:24]
        body = listed(number, HOOK_BYTES)
        hooks = tuple(Sent("POST", f"/hooks/numbers-{name}", body) for name in TESTED)
        yield Row("numbers in a webhook", shown, hooks)
        payload = b'{"input":' + listed(number, START_BYTES) + b"}"
        names = (f"numbers-in-{name}" for name in SCHEMAS)
        starts = tuple(Sent("POST", f"/api/v1/workflows/{name}/executions", payload) for name in names)
        yield Row("numbers in a start", shown, starts)
        document = json.dumps({**workflow([node("in", "input")], id="numbered"), "metadata": {"a": 0}})
        deployed = document.encode().replace(b'{"a": 0}', b'{"a": ' + body + b"}")
        yield Row(
            "numbers in a document",
            shown,
            (
                Sent("POST", "/api/v1/workflows/validate?plan=true&layout=true", deployed),
                Sent("PUT", "/api/v1/workflows/numbered", deployed),
                Sent("POST", "/api/v1/executions", b'{"definition":' + deployed + b',"input":{}}'),
                Sent("GET", "/api/v1/workflows/numbered"),
            ),
        )
        preview = {"text": f"{{{{ len(parse_json('{listed(number, 7_000).decode()}')) }}}}"}
        asked = json.dumps({**preview, "execution": loaded.executions[0], "node": "fetch"}).encode()
        yield Row("numbers in an expression", shown, (Sent("POST", "/api/v1/expressions/preview", asked),))
