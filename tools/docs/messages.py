"""The reference of the messages of a broker, made from their JSON Schemas in `docs/schemas`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.docs.markdown import code, page, schema_type, table

PLACE = "reference/messages.md"
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
ORDER = ("node-execution-message", "node-status-message", "node-status-batch", "completion-message")


def pages() -> dict[str, str]:
    """Return the page of all messages."""
    blocks = [
        "What Rune sends and receives with [RabbitMQ](../rabbitmq.md#messages) as the queue: JSON, with a schema each."
    ]
    for name in ORDER:
        blocks += _describe(name, json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8")))
    return {PLACE: page("Messages", blocks, audience="developer")}


def _describe(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"## {schema['title']}"
    yield f"{schema['description']} Schema: [`{name}.json`](../schemas/{name}.json)."
    required = set(schema.get("required", ()))
    yield table(
        ("field", "type", "required", "meaning"),
        [
            (code(field), schema_type(each), "yes" if field in required else "", each.get("description", ""))
            for field, each in schema.get("properties", {}).items()
        ],
    )
