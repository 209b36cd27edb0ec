"""The shapes of the API: what a client tolerates in them, which words they name, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args

import httpx
import msgspec
import pytest

import rune.api
from rune.api.access import KeyView, LimitsView
from rune.api.base import Absent, Known, View
from rune.api.bulk import BulkOutcomeView, BulkView
from rune.api.comparison import Change, Field
from rune.api.definitions import Imported, ImportEntry, LayoutView
from rune.api.graphs import GraphState
from rune.api.handlers import HandlerView
from rune.api.system import NodeTypeView
from rune.api.values import ValueEntry
from rune.client import Client
from rune.core.definition.diff import Kind as ChangeKind
from rune.core.definition.diff import What
from rune.core.definition.model import HookStatus
from rune.core.node_type import ErrorClass
from rune.core.permissions import Role
from rune.documents.draw.layout import Direction
from rune.documents.importers.draft import Format, Status
from rune.ports.queries import BulkAction, BulkStatus, Outcome
from rune.runtime.queries.scope_states import EdgeState
from rune.runtime.queries.value_parts import Kind
from rune.server.app import document
from tests.lint.test_client_generated import Operation, call, operations_of, variants
from tests.support.each import for_each

MODULES = [import_module(f"rune.api.{each.name}") for each in iter_modules(rune.api.__path__)]
VIEWS = {
    each.__name__: each
    for module in MODULES
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, View) and each.__module__ == module.__name__
}
DOCUMENT = document()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

LATER = "added_later"
STREAMS = {"watch", "follow", "changes", "download", "blob"}
ENDLESS = {"wait", "run"}
"""Methods that ask again until an execution has a status that they know."""

UNDESCRIBED = {"value_part", "find_in_value"}
"""Methods whose response follows from parameters and has no schema."""


def instance(schema: dict[str, Any], name: str = "") -> Any:
    """Return a value of a schema, as a newer server may send it: with further fields and with other words."""
    if "$ref" in schema:
        return instance(SCHEMAS[schema["$ref"].rpartition("/")[2]], name)
    for choices in (schema.get("anyOf", []), schema.get("oneOf", [])):
        if choices:
            null = {"type": "null"} in choices
            return None if null and name == "next" else instance(choices[0], name)
    if "enum" in schema or "const" in schema:
        return schema["enum"][0] if name == "severity" else LATER
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        made = {key: instance(each, key) for key, each in schema["properties"].items()}
        return {**made, LATER: [LATER]}
    if kind == "object":
        more = schema.get("additionalProperties", {})
        return {"1": instance(more if isinstance(more, dict) else {})}
    if kind == "array":
        first = schema.get("prefixItems") or [schema.get("items", {})]
        return [instance(each) for each in first]
    return {"string": "x", "integer": 1, "number": 1.5, "boolean": True}.get(str(kind), {LATER: LATER})


def answer(operation: Operation) -> httpx.Response:
    """Return a response of an operation as a newer server may send it."""
    status, described = next((each, found) for each, found in operation.responses.items() if each < "300")
    content = described.get("content", {})
    if "application/json" not in content:
        return httpx.Response(int(status), content=b"")
    made = instance(content["application/json"].get("schema", {}))
    return httpx.Response(int(status), content=msgspec.json.encode(made))


@for_each("variant", [each for each in variants() if each[0] not in STREAMS | ENDLESS | UNDESCRIBED])
def test_method_of_client_reads_fields_and_words_that_were_added_later(
    variant: tuple[str, dict[str, Any]],
) -> None:
    name, given = variant
    answered: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        found = [each for each in operations_of(DOCUMENT) if each.is_called_by(request)]
        if not found:
            assert request.url.path == "/version"
            return httpx.Response(200, json={"name": "x", "version": "x", "api": "v9", LATER: 1})
        answered.append(found[0].id)
        return answer(found[0])

    with Client("http://localhost", transport=httpx.MockTransport(respond)) as client:
        returned = call(client, name, given)
        if hasattr(returned, "__next__"):
            list(returned)

    assert answered or name == "version"


@for_each("name", sorted(VIEWS.keys() & SCHEMAS.keys()))
def test_response_of_server_older_than_a_field_is_read(name: str) -> None:
    view = VIEWS[name]
    younger = [
        each.encode_name for each in msgspec.structs.fields(view) if isinstance(each.default_factory, Absent)
    ]
    made = {key: value for key, value in instance(SCHEMAS[name]).items() if key not in younger}

    read = msgspec.json.decode(msgspec.json.encode(made), type=view)

    assert set(younger) <= set(view.__struct_fields__)
    assert isinstance(read, view)


def test_field_that_an_older_server_does_not_send_has_its_value() -> None:
    made = {key: value for key, value in instance(SCHEMAS["KeyView"]).items() if key != "limits"}

    assert msgspec.convert(made, KeyView).limits == LimitsView()


def test_document_requires_fields_that_older_servers_do_not_send() -> None:
    younger = [each.name for each in msgspec.structs.fields(KeyView) if not each.required]

    assert "limits" in younger
    assert set(younger) <= set(SCHEMAS["KeyView"]["required"])


def known(kind: Any) -> tuple[str, ...]:
    """The words that are part of a type."""
    for each in getattr(kind, "__metadata__", ()):
        if isinstance(each, Known):
            return get_args(each.type)
    return next((words for each in get_args(kind) if (words := known(each))), ())


WORDS: list[tuple[type[View], str, Any]] = [
    (KeyView, "role", Role),
    (BulkView, "action", BulkAction),
    (BulkView, "status", BulkStatus),
    (BulkOutcomeView, "outcome", Outcome),
    (Change, "what", What),
    (Change, "kind", ChangeKind),
    (Field, "kind", ChangeKind),
    (GraphState, "edges", EdgeState),
    (HandlerView, "statuses", HookStatus),
    (ImportEntry, "status", Status),
    (Imported, "format", Format),
    (LayoutView, "direction", Direction),
    (NodeTypeView, "error_classes", ErrorClass),
    (ValueEntry, "type", Kind),
]


@for_each("named", WORDS)
def test_shape_names_the_words_of_the_engine(named: tuple[type[View], str, Any]) -> None:
    view, field, words = named
    (found,) = [each for each in msgspec.structs.fields(view) if each.name == field]

    assert known(found.type) == get_args(words)


@pytest.mark.parametrize("package", ["rune.api", "rune.client"])
def test_client_imports_no_engine_and_no_server(package: str) -> None:
    modules = [each.__name__ for each in MODULES] if package == "rune.api" else [package]
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    names = set(loaded.stdout.split())

    assert {each.split(".")[1] for each in names if each.startswith("rune.")} <= {
        "api",
        "client",
        "codec",
        "core",
        "errors",
    }
    assert sorted(each for each in names if each.startswith("rune.core.") and each.count(".") > 2) == [
        "rune.core.definition.problems",
        "rune.core.execution.reasons",
        "rune.core.execution.token",
    ]
    assert names & {"fastapi", "starlette", "pydantic", "pydantic_core", "aiohttp", "re2"} == set()
