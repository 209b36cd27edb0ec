"""The synchronous client is generated, and both clients reach every operation of the OpenAPI document."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from rune.client import AsyncClient, Client, models
from rune.server.app import document
from tests.support.each import for_each
from tools.unasync import TARGETS, generate


@for_each("source", TARGETS, ids=lambda source: source.stem)
def test_generator_output_equals_checked_in_client(source: Path) -> None:
    assert generate(source) == TARGETS[source].read_text(encoding="utf-8"), "run make generate"


@for_each("target", TARGETS.values(), ids=lambda target: target.stem)
def test_generated_client_has_no_asynchronous_syntax(target: Path) -> None:
    tree = ast.parse(target.read_text(encoding="utf-8"))
    asynchronous = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)

    assert [node for node in ast.walk(tree) if isinstance(node, asynchronous)] == []


def test_both_clients_have_same_methods_and_parameters() -> None:
    def methods(client: type) -> dict[str, list[str]]:
        functions = inspect.getmembers(client, inspect.isfunction)
        return {
            name: list(inspect.signature(each).parameters) for name, each in functions if name.isidentifier()
        }

    waiting, blocking = methods(AsyncClient), methods(Client)
    waiting["__enter__"], waiting["__exit__"] = waiting.pop("__aenter__"), waiting.pop("__aexit__")

    assert waiting == blocking


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "deploy": [{}, {"workflow": "x"}],
    "download": [{"what": "document"}, {"what": "input"}, {"what": "output"}],
    "enable_trigger": [{"enabled": True}, {"enabled": False}],
    "workflow": [{}, {"version": 1}],
    "value_part": [
        {"of": "input"},
        {"of": "output"},
        {"node": "x"},
        {"node": "x", "of": "input"},
        {"blob": "x"},
    ],
    "find_in_value": [
        {"of": "input"},
        {"of": "output"},
        {"node": "x"},
        {"node": "x", "of": "input"},
        {"blob": "x"},
    ],
}
"""Arguments with which a method calls different operations."""

KEYWORDS = {"limit": ("limit", "page"), "label": ("labels",), "wait": ("seconds", "wait")}
"""Names of keywords that differ from the parameter of the query that they set."""


class Sent(Exception):  # noqa: N818 - carries a request out of a method
    def __init__(self, request: httpx.Request) -> None:
        self.request = request


def _argument(annotation: str) -> Any:
    if annotation.startswith("models.Limits"):
        return models.Limits()
    for beginning, value in (("dict", {}), ("Sequence", ["x"]), ("list", ["x"]), ("int", 1), ("bool", True)):
        if annotation.startswith(beginning):
            return value
    return "x"


def call(client: Client, name: str, given: dict[str, Any]) -> Any:
    """Call a method of a client with these arguments and with any values of the others that it requires."""
    method = getattr(client, name)
    required = {
        each.name: _argument(str(each.annotation))
        for each in inspect.signature(method).parameters.values()
        if each.default is inspect.Parameter.empty and each.kind is not inspect.Parameter.VAR_KEYWORD
    }
    return method(**{**required, **given})


def _sent(name: str, given: dict[str, Any]) -> httpx.Request:
    """Return the first request that a method of the client sends."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise Sent(request)

    with Client("http://localhost", transport=httpx.MockTransport(refuse)) as client:
        try:
            next(call(client, name, given))
        except Sent as sent:
            return sent.request
    raise AssertionError(f"{name} sent no request")


class Operation:
    """An operation of the OpenAPI document."""

    def __init__(self, verb: str, path: str, described: dict[str, Any]) -> None:
        self.id: str = described["operationId"]
        self.responses: dict[str, Any] = described["responses"]
        self.queries = [each for each in described.get("parameters", ()) if each["in"] == "query"]
        self._verb = verb.upper()
        self._path = re.compile(re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(path)) + "$")

    def is_called_by(self, request: httpx.Request) -> bool:
        return request.method == self._verb and self._path.match(request.url.path) is not None


def operations_of(described: dict[str, Any]) -> list[Operation]:
    return [
        Operation(verb, path, each)
        for path, found in described["paths"].items()
        for verb, each in found.items()
    ]


@pytest.fixture(scope="module")
def operations() -> list[Operation]:
    return operations_of(document())


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Return the public methods with arguments for each operation that they call."""
    methods = [
        name
        for name, _ in inspect.getmembers(Client, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    ]
    return [(name, each) for name in methods for each in VARIANTS.get(name, [{}])]


def test_every_operation_has_a_method_in_the_client(operations: list[Operation]) -> None:
    requests = [_sent(name, given) for name, given in variants()]

    assert [
        each.id for each in operations if not any(each.is_called_by(request) for request in requests)
    ] == []


def _value(schema: dict[str, Any], keyword: str) -> Any:
    """Return a value of a parameter that is not its default."""
    if keyword == "labels":
        return {"name": "value"}
    if "enum" in schema:
        return schema["enum"][-1]
    if "const" in schema:
        return schema["const"]
    if schema.get("type") in ("integer", "number"):
        return max(schema.get("minimum", 0), 1)
    return True if schema.get("type") == "boolean" else "x"


def test_every_parameter_of_a_query_is_a_keyword_of_a_method(operations: list[Operation]) -> None:
    found: dict[tuple[str, str], bool] = {}
    for name, given in variants():
        request = _sent(name, given)
        known = inspect.signature(getattr(Client, name)).parameters
        for operation in operations:
            if not operation.is_called_by(request):
                continue
            for each in operation.queries:
                parameter = each["name"]
                sent = [request] + [
                    _sent(name, {**given, keyword: _value(each["schema"], keyword)})
                    for keyword in KEYWORDS.get(parameter, (parameter,))
                    if keyword in known
                ]
                place = (operation.id, parameter)
                found[place] = found.get(place, False) or any(
                    parameter in other.url.params and operation.is_called_by(other) for other in sent
                )

    # Methods that list something send the cursor of each further page themselves.
    assert [place for place, reachable in found.items() if not reachable and place[1] != "cursor"] == []
