"""Routes without detours: the endpoint takes the request and answers a response, so nothing is worked out each time.

Operations: what the API can be asked for, each declared once: for the router, the checks and the document.

The document of the API (OpenAPI 3.1), made from the operations themselves.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_origin

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import rune
from rune.core.limits import LIMITS
from rune.core.permissions import Principal, Right
from rune.server.auth import UndeclaredPermissionError, authorize, forbidden_error
from rune.server.requests import check_json, decode, invalid_body, read_body
from rune.server.responses import MEDIA, ApiError, ProblemDocument

if TYPE_CHECKING:
    from rune.server.context import ServerContext


class DirectRoute(APIRoute):
    """A route whose dependencies are gates: each is asked, in the order they were declared, before the endpoint is."""

    def __init__(self, *given: Any, **said: Any) -> None:
        super().__init__(*given, **said)
        if getattr(self.endpoint, "need", None) is None:
            raise UndeclaredPermissionError(f"{self.path} does not say what right it takes")
        gates: list[Any] = [each.call for each in self.dependant.dependencies]
        endpoint = self.endpoint

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            for gate in gates:
                await gate(request)
            response = await endpoint(request)
            await response(scope, receive, send)

        self.app = app


PREFIX = "/api/v1"
ID = r"[A-Za-z0-9_-]{1,128}"
PATHS: dict[str, tuple[str, str]] = {
    "workflow": (ID, "The id of a workflow."),
    "version": (r"[A-Za-z0-9_-]{1,128}", "A version number (`3`, `v3`) or an alias."),
    "alias": (r"[A-Za-z][A-Za-z0-9_-]{0,127}", "An alias."),
    "execution": (ID, "The id of an execution."),
    "other": (ID, "The id of another execution."),
    "node": (ID, "The id of a node."),
    "hash": (r"[A-Za-z0-9:_-]{1,128}", "The hash of a definition."),
    "letter": (ID, "The id of a dead letter."),
    "type": (r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", "A node type, or one of its other names."),
    "credential": (r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", "The name or the id of a credential."),
    "key": (r"[A-Za-z0-9_.:@#/-]{1,400}", "The rest of the key of a blob."),
    "id": (r"k[0-9a-f]{16}", "The id of a key of the API."),
    "trigger": (r"t[0-9a-f]{24}", "The id of a trigger."),
}
"""What may stand in a path: checked before it is looked up anywhere."""

_PATTERNS = {name: re.compile(pattern) for name, (pattern, _) in PATHS.items()}
_NAMES = re.compile(r"{(\w+)(?::path)?}")


class RequestContext:
    """One request, understood."""

    __slots__ = ("body", "data", "master", "path", "principal", "query", "request")

    def __init__(self, request: Request, master: ServerContext) -> None:
        self.request = request
        self.master = master
        self.principal: Principal = request.scope["principal"]
        self.path: Mapping[str, str] = request.path_params
        self.query: Any = None
        self.body: Any = None
        self.data = b""

    def header(self, name: str) -> str | None:
        """A header as it was sent."""
        return self.request.headers.get(name)

    def require(self, right: Right) -> None:
        """Refuse somebody who may use the route and not all that can be asked of it."""
        if not self.principal.may(right):
            raise forbidden_error(self.principal, right)


Handler = Callable[[RequestContext], Awaitable[Response]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to ask for."""

    method: str
    path: str
    summary: str
    handler: Handler
    permission: Right
    query: type[msgspec.Struct] | None = None
    body: Any = None  # the type of the body; `bytes`: read by the operation itself
    limit: int = LIMITS.body_bytes
    media: tuple[str, ...] = ("application/json",)
    answer: Any = None
    answers: str = "application/json"
    status: int = 200
    also: dict[int, str] = {}
    headers: tuple[str, ...] = ()
    example: Any = None
    optional: bool = False  # an empty body stands for an empty object

    @property
    def names(self) -> list[str]:
        """What stands in its path."""
        return _NAMES.findall(self.path)


class Router:
    """The operations of one resource."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.operations: list[Endpoint] = []

    def __call__(
        self, method: str, path: str, summary: str, *, need: Right, **said: Any
    ) -> Callable[[Handler], Handler]:
        """Declare an operation, and what right it takes."""

        def declare(act: Handler) -> Handler:
            made = Endpoint(method=method, path=path, summary=summary, handler=act, permission=need, **said)
            self.operations.append(made)
            return act

        return declare


def gated() -> APIRouter:
    """A router all of whose routes pass the gate."""
    return APIRouter(dependencies=[Depends(authorize)], redirect_slashes=False, route_class=DirectRoute)


def add(router: APIRouter, operation: Endpoint) -> None:
    """Put an operation on a router."""
    router.add_api_route(
        PREFIX + operation.path,
        _endpoint(operation),
        methods=[operation.method],
        include_in_schema=False,
        name=operation.handler.__name__,
    )


def _endpoint(operation: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    checks = [(name, _PATTERNS[name]) for name in operation.names]
    query = _query_reader(operation.query) if operation.query is not None else None
    body = operation.body
    decoder = msgspec.json.Decoder(body) if body is not None and body is not bytes else None
    act, limit, optional = operation.handler, operation.limit, operation.optional

    async def endpoint(request: Request) -> Response:
        call = RequestContext(request, request.app.state.master)
        for name, pattern in checks:
            if not pattern.fullmatch(call.path[name]):
                raise ApiError(f"`{call.path[name][:80]}` is no {name}", code="NOT_FOUND")
        if query is not None:
            call.query = query(request)
        if body is not None:
            call.data = await read_body(request, limit)
        if decoder is not None:
            check_json(request)
            call.body = decode(decoder, call.data or b"{}" if optional else call.data, limit)
        return await act(call)

    endpoint.need = operation.permission  # type: ignore[attr-defined]
    return endpoint


def _query_reader(wanted: type[msgspec.Struct]) -> Callable[[Request], Any]:
    several = {
        field.encode_name
        for field in msgspec.structs.fields(wanted)
        if get_origin(field.type) is tuple or field.type is tuple
    }

    def read(request: Request) -> Any:
        given = request.query_params
        values = {name: given.getlist(name) if name in several else given[name] for name in given}
        try:
            return msgspec.convert(values, wanted, strict=False)
        except msgspec.ValidationError as error:
            raise ApiError(f"query: {invalid_body(error, wanted)}", code="BAD_QUERY") from None

    return read


_REF = "#/components/schemas/{name}"
_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Idempotency-Key": (
        "Done at most once under this key; asked again, the answer is the first one's.",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    ),
    "If-Match": ("Only if this is what is there: the `ETag` that was read.", {"type": "string"}),
    "If-None-Match": ("Not if this is what is there; `*`: not if there is anything.", {"type": "string"}),
    "Last-Event-ID": (
        "The `id` of the last event that was received.",
        {"type": "string", "pattern": "^[0-9]{1,15}$"},
    ),
}


def openapi(resources: Sequence[Router]) -> dict[str, Any]:
    """The whole document."""
    operations = [(each, resource.tag) for resource in resources for each in resource.operations]
    schemas = _Schemas([each for each, _ in operations])
    paths: dict[str, dict[str, Any]] = {}
    for each, tag in operations:
        place = re.sub(r":path}", "}", PREFIX + each.path)
        paths.setdefault(place, {})[each.method.lower()] = _operation(each, tag, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rune",
            "version": rune.__version__,
            "summary": "A durable workflow engine.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {"Problem": _problem()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "tags": [{"name": name} for name in dict.fromkeys(tag for _, tag in operations)],
    }


class _Schemas:
    """The schemas of everything that is taken or answered, each once."""

    def __init__(self, operations: Sequence[Endpoint]) -> None:
        types: list[Any] = [ProblemDocument]
        for each in operations:
            types += [kind for kind in (each.body, each.query, each.answer) if kind not in (None, bytes)]
        self._types = list({id(each): each for each in types}.values())
        made, self.components = msgspec.json.schema_components(self._types, ref_template=_REF)
        self._made = {id(each): schema for each, schema in zip(self._types, made, strict=True)}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        return {} if kind is bytes else self._made[id(kind)]

    def properties(self, kind: Any) -> dict[str, Any]:
        """The schemas of the fields of a type."""
        name = self.of(kind)["$ref"].rpartition("/")[2]
        found: dict[str, Any] = self.components[name]
        return found


def _operation(each: Endpoint, tag: str, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.handler.__name__ if tag != "executions" else f"execution_{each.handler.__name__}",
        "tags": [tag],
        "summary": each.summary,
        "description": (each.handler.__doc__ or "").strip(),
        "x-needs": each.permission,
        "parameters": [*_paths(each), *_query(each, schemas), *_headers(each)],
        "responses": _responses(each, schemas),
    }
    if each.body is not None:
        content: dict[str, Any] = {
            "schema": {"type": "object"} if each.body is bytes else schemas.of(each.body)
        }
        if each.example is not None:
            content["examples"] = {"example": {"value": each.example}}
        media = {kind: content for kind in each.media if kind == "application/json"}
        for kind in each.media:
            media.setdefault(kind, {"schema": {}})
        found["requestBody"] = {"required": not each.optional, "content": media}
    return found


def _paths(each: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATHS[name][1],
            "schema": {"type": "string", "pattern": f"^{PATHS[name][0]}$"},
        }
        for name in each.names
    ]


def _query(each: Endpoint, schemas: _Schemas) -> list[dict[str, Any]]:
    if each.query is None:
        return []
    shape = schemas.properties(each.query)
    required = shape.get("required", ())
    found = []
    for name, schema in shape.get("properties", {}).items():
        said = {key: value for key, value in schema.items() if key != "description"}
        if "anyOf" in said:  # a parameter that is not given is not null: it is not there
            kinds = [kind for kind in said["anyOf"] if kind != {"type": "null"}]
            said = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        said = {key: value for key, value in said.items() if key != "default" or value is not None}
        parameter = {"name": name, "in": "query", "required": name in required, "schema": said}
        if "description" in schema:
            parameter["description"] = schema["description"]
        found.append(parameter)
    return found


def _headers(each: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "description": _HEADERS[name][0], "schema": _HEADERS[name][1]}
        for name in each.headers
    ]


def _responses(each: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    said: dict[str, Any] = {"description": each.summary}
    if each.answer is not None:
        said["content"] = {each.answers: {"schema": schemas.of(each.answer)}}
    found: dict[str, Any] = {str(each.status): said}
    for status, text in each.also.items():
        if status < 300 and status != 204:
            found[str(status)] = {**said, "description": text}
        elif status >= 400:
            found[str(status)] = {**_problem(), "description": text}
        else:
            found[str(status)] = {"description": text}
    found["default"] = {"$ref": "#/components/responses/Problem"}
    return found


def _problem() -> dict[str, Any]:
    return {
        "description": "Refused, and why.",
        "content": {MEDIA: {"schema": {"$ref": _REF.format(name="ProblemDocument")}}},
    }
