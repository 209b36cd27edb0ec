"""Rows of the load table: hostile schemas and patterns, sent to each route and node that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.documents import document as workflow
from tests.support.documents import node
from tests.support.load_rows import Loaded, Row, Sent


def doubling(levels: int, leaf: Any = True, key: str = "") -> dict[str, Any]:
    """A schema of which each level applies the next one twice, to the same value or to the one at `key`."""
    defs: dict[str, Any] = {f"d{levels}": leaf}
    for at in range(levels):
        part = {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2}
        defs[f"d{at}"] = {"properties": {key: part}} if key else part
    return {"$ref": "#/$defs/d0", "$defs": defs}


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = {"a": value}
    return value


LONG = "z{0,1000}" * 25
SCHEMAS: dict[str, dict[str, Any]] = {
    "doubling": doubling(40, {"type": "null"}),
    "pattern": {"pattern": LONG},
    "patterns": {"allOf": [{"pattern": f"{at}z{{0,1000}}"} for at in range(230)]},
    "classes": {"allOf": [{"pattern": f"{at}" + r"\\pL{80}"} for at in range(250)]},
    "draft": {
        "properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a+)+$"}}
    },
}
LISTS = [[at] for at in range(1_000)]
INPUTS: dict[str, tuple[dict[str, Any], Any]] = {
    "enum": ({"items": {"enum": LISTS}}, LISTS * 3),
    "below": (doubling(40, {"type": "null"}, "a"), nested(40)),
    "unique": ({"uniqueItems": True}, [at * ((1 << 61) - 1) for at in range(60_000)]),
    "names": (
        {"patternProperties": {f"k{at}.*x": True for at in range(90)}},
        {f"k{at}": 0 for at in range(9_000)},
    ),
    "draft": (SCHEMAS["draft"], {"a": "a" * 60 + "!"}),
}
"""Schemas that are deployed, and a start payload of each."""
HOSTILE_HOOK: dict[str, Any] = workflow(
    [
        node("in", "webhook", {"path": "patterns"}),
        node("out", "output", {"value": '{{ matches("apple", $trigger.body.q) }}'}),
    ],
    "in>out",
    id="hostile-hook",
)


def deployed() -> Iterator[dict[str, Any]]:
    yield HOSTILE_HOOK
    for name, (schema, _) in INPUTS.items():
        yield workflow([node("in", "input"), node("out", "output")], "in>out", id=f"in-{name}", inputs=schema)


def _documents(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    start = node("in", "input")
    yield workflow([start], id="hostile", inputs=schema)
    wait = node("w", "wait", {"resume": "signal", "schema": schema})
    yield workflow([start, wait], "in>w", id="hostile")
    model = node("m", "llm_service", {"prompt": "p", "json_schema": schema})
    yield workflow([start, model], "in>m", id="hostile")


def hostile_rows(loaded: Loaded) -> Iterator[Row]:
    for name, schema in SCHEMAS.items():
        yield Row("schema", name, tuple(_checked(schema)))
    for name, (_, value) in INPUTS.items():
        body = json.dumps({"input": value}).encode()
        yield Row("value", name, (Sent("POST", f"/api/v1/workflows/in-{name}/executions", body, times=2),))
    for name, text in {
        "long": f"{{{{ matches('a', '{LONG}') }}}}",
        "many": "{{ [matches('a', 'a{0,900}' + str(i)) for i in range(200)] }}",
        "classes": "{{ [matches('a', '\\\\pL{80}' + str(i)) for i in range(50)] }}",
    }.items():
        body = json.dumps({"text": text, "execution": loaded.executions[0], "node": "fetch"}).encode()
        yield Row("pattern", name, (Sent("POST", "/api/v1/expressions/preview", body),))
    hook = json.dumps({"q": LONG.replace("z", "k")}).encode()
    yield Row("pattern", "webhook", (Sent("POST", "/hooks/patterns", hook),))
    tested_nodes: dict[str, dict[str, Any]] = {
        "switch": {"rules": [{"value": "apple", "operator": "matches", "compare": "{{ $trigger.p }}"}]},
        "filter": {"input_array": "{{ $trigger.rows }}", "expression": "matches($item, $trigger.p + $item)"},
    }
    for kind, parameters in tested_nodes.items():
        tested = workflow([node("in", "input"), node("n", kind, parameters)], "in>n", id="hostile")
        for pattern in (LONG, r"\pL{80}", "x{0,999}"):
            given = {"p": pattern, "rows": [f"{at}" for at in range(40)]}
            body = json.dumps({"definition": tested, "input": given}).encode()
            yield Row("node", kind, (Sent("POST", "/api/v1/executions?wait=20", body),))


def _checked(schema: dict[str, Any]) -> Iterator[Sent]:
    for each in _documents(schema):
        body = json.dumps(each).encode()
        yield Sent("POST", "/api/v1/workflows/validate", body, times=3)
        yield Sent("PUT", "/api/v1/workflows/hostile", body)
        yield Sent("POST", "/api/v1/executions", json.dumps({"definition": each, "input": {}}).encode())
