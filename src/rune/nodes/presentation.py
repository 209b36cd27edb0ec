"""How editors present the built-in node types: category, icon, the shape of the output, widgets, credentials.

Icons are names of the Lucide set. Widgets name the control that fits a parameter where its JSON Schema does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Category = Literal["trigger", "control", "data", "integration", "custom"]
"""Groups of node types in a catalogue."""

Widget = Literal[
    "assignments",
    "condition",
    "cron",
    "edge",
    "edges",
    "expression",
    "html",
    "json",
    "messages",
    "rules",
    "text",
    "timezone",
    "version",
    "workflow",
]

_HTTP_CREDENTIALS = ("basic", "bearer", "header", "api_key", "oauth2")


def _fields(**kinds: Any) -> dict[str, Any]:
    """Return the schema of an object that has all of these fields."""
    fields = {name: {"type": kind} if isinstance(kind, str | list) else kind for name, kind in kinds.items()}
    return {"type": "object", "properties": fields, "required": list(fields)}


_ITEMS = _fields(items="array", count="integer", original_count="integer")

PRESENTATION: Mapping[str, Mapping[str, Any]] = {
    "manual": {"category": "trigger", "icon": "play"},
    "input": {"category": "trigger", "icon": "log-in"},
    "webhook": {
        "category": "trigger",
        "icon": "webhook",
        "output_schema": _fields(method="string", headers="object", query="object", body={}),
        "credential_types": ("basic", "bearer", "header", "api_key", "custom"),
    },
    "schedule": {
        "category": "trigger",
        "icon": "calendar-clock",
        "output_schema": _fields(scheduled_at="string"),
        "widgets": {"cron": "cron", "timezone": "timezone"},
    },
    "conditional": {
        "category": "control",
        "icon": "git-branch",
        "output_schema": _fields(result="boolean"),
        "widgets": {"expression": "condition", "true_edge_id": "edge", "false_edge_id": "edge"},
    },
    "switch": {
        "category": "control",
        "icon": "list-tree",
        "output_schema": _fields(output_index="integer", matched_rule=["object", "null"]),
        "widgets": {"rules": "rules", "routes": "edges"},
    },
    "split": {"category": "control", "icon": "split", "widgets": {"input_array": "expression"}},
    "aggregator": {"category": "control", "icon": "combine", "output_schema": {"type": "array"}},
    "merge": {"category": "control", "icon": "merge"},
    "wait": {"category": "control", "icon": "hourglass"},
    "workflow": {
        "category": "control",
        "icon": "workflow",
        "widgets": {"workflow": "workflow", "version": "version", "input": "json"},
    },
    "noop": {"category": "control", "icon": "circle"},
    "fail": {"category": "control", "icon": "octagon-x", "widgets": {"message": "text"}},
    "output": {"category": "control", "icon": "log-out", "widgets": {"value": "json"}},
    "edit": {
        "category": "data",
        "icon": "pencil",
        "widgets": {"assignments": "assignments", "from": "expression"},
    },
    "filter": {
        "category": "data",
        "icon": "filter",
        "output_schema": _ITEMS,
        "widgets": {"input_array": "expression", "expression": "expression", "rules": "rules"},
    },
    "sort": {
        "category": "data",
        "icon": "arrow-down-up",
        "output_schema": _ITEMS,
        "widgets": {"input_array": "expression", "expression": "expression", "rules": "rules"},
    },
    "limit": {
        "category": "data",
        "icon": "list-end",
        "output_schema": _ITEMS,
        "widgets": {"input_array": "expression"},
    },
    "datetime": {
        "category": "data",
        "icon": "calendar",
        "output_schema": _fields(result={}, iso="string", unix="number", timezone="string"),
        "widgets": {"timezone": "timezone"},
    },
    "log": {"category": "data", "icon": "scroll-text", "widgets": {"message": "text"}},
    "http": {
        "category": "integration",
        "icon": "globe",
        "output_schema": _fields(status="integer", body={}, headers="object", duration_ms="integer"),
        "credential_types": _HTTP_CREDENTIALS,
        "widgets": {"body": "json"},
    },
    "smtp": {
        "category": "integration",
        "icon": "mail",
        "output_schema": _fields(sent="boolean", message_id="string", accepted="array", rejected="array"),
        "credential_types": ("smtp",),
        "widgets": {"body": "text", "html": "html"},
    },
    "llm_service": {
        "category": "integration",
        "icon": "sparkles",
        "output_schema": _fields(text=["string", "null"], json={}, usage={}),
        "credential_types": _HTTP_CREDENTIALS,
        "widgets": {"prompt": "text", "system": "text", "messages": "messages", "json_schema": "json"},
    },
}
"""Fields of built-in node types by name; a declaration may state others."""
