"""Endpoints of the API: one declaration each for the route, the validation and the OpenAPI 3.1 document.

Requests and responses are msgspec structs. A route calls its endpoint directly, without FastAPI's resolution of
parameters and dependencies, which costs more than most handlers.
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
    "type": (r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", "A node type or one of its aliases."),
    "credential": (r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", "The name or id of a credential."),
    "key": (r"[A-Za-z0-9_.:@#/-]{1,400}", "The key of a blob, without the id of the execution."),
    "id": (r"k[0-9a-f]{16}", "The id of an API key."),
    "trigger": (r"t[0-9a-f]{24}", "The id of a trigger."),
}
"""Pattern and description of each path parameter; checked before any lookup."""
_PATTERNS = {name: re.compile(pattern) for name, (pattern, _) in PATHS.items()}
_NAMES = re.compile(r"{(\w+)(?::path)?}")
_REF = "#/components/schemas/{name}"
_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Idempotency-Key": (
        "The operation takes place at most once under this key; a repeated request returns the first response.",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    ),
    "If-Match": ("Apply the change only if the resource still has this `ETag`.", {"type": "string"}),
    "If-None-Match": (
        "Apply or respond only if the resource has another `ETag`; `*`: only if it does not exist.",
        {"type": "string"},
    ),
    "Last-Event-ID": (
        "The `id` of the last received event.",
        {"type": "string", "pattern": "^[0-9]{1,15}$"},
    ),
}


class DirectRoute(APIRoute):
    """A route that awaits its dependencies in declared order, then the endpoint."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if getattr(self.endpoint, "permission", None) is None:
            raise UndeclaredPermissionError(f"{self.path} declares no permission")
        dependencies: list[Any] = [each.call for each in self.dependant.dependencies]
        endpoint = self.endpoint

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            for dependency in dependencies:
                await dependency(request)
            response = await endpoint(request)
            await response(scope, receive, send)

        self.app = app


class RequestContext:
    """A request with its validated query and body."""

    __slots__ = ("body", "data", "path", "principal", "query", "request", "server")

    def __init__(self, request: Request, server: ServerContext) -> None:
        self.request = request
        self.server = server
        self.principal: Principal = request.scope["principal"]
        self.path: Mapping[str, str] = request.path_params
        self.query: Any = None
        self.body: Any = None
        self.data = b""

    def header(self, name: str) -> str | None:
        return self.request.headers.get(name)

    def require(self, right: Right) -> None:
        """Check a permission that only some requests to a route need."""
        if not self.principal.may(right):
            raise forbidden_error(self.principal, right)


Handler = Callable[[RequestContext], Awaitable[Response]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of one operation."""

    method: str
    path: str
    summary: str
    handler: Handler
    permission: Right
    query: type[msgspec.Struct] | None = None
    body: Any = None  # type of the body; `bytes` passes it to the handler undecoded
    limit: int = LIMITS.body_bytes
    media: tuple[str, ...] = ("application/json",)
    response: Any = None
    response_type: str = "application/json"
    status: int = 200
    responses: dict[int, str] = {}  # descriptions of further statuses
    headers: tuple[str, ...] = ()
    example: Any = None
    optional: bool = False  # an empty body counts as an empty object

    @property
    def names(self) -> list[str]:
        """The names of the path parameters."""
        return _NAMES.findall(self.path)


class Router:
    """The endpoints of one resource."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.operations: list[Endpoint] = []

    def __call__(
        self, method: str, path: str, summary: str, *, permission: Right, **options: Any
    ) -> Callable[[Handler], Handler]:
        """Declare an endpoint and the permission that it requires."""

        def declare(handler: Handler) -> Handler:
            self.operations.append(
                Endpoint(
                    method=method,
                    path=path,
                    summary=summary,
                    handler=handler,
                    permission=permission,
                    **options,
                )
            )
            return handler

        return declare


def gated() -> APIRouter:
    """Return a router whose routes all require authentication."""
    return APIRouter(dependencies=[Depends(authorize)], redirect_slashes=False, route_class=DirectRoute)


def add(router: APIRouter, operation: Endpoint) -> None:
    """Add an endpoint to a router."""
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
    handler, limit, optional = operation.handler, operation.limit, operation.optional

    async def endpoint(request: Request) -> Response:
        call = RequestContext(request, request.app.state.server)
        for name, pattern in checks:
            if not pattern.fullmatch(call.path[name]):
                raise ApiError(f"`{call.path[name][:80]}` is not a valid {name}", code="NOT_FOUND")
        if query is not None:
            call.query = query(request)
        if body is not None:
            call.data = await read_body(request, limit)
        if decoder is not None:
            check_json(request)
            call.body = decode(decoder, call.data or b"{}" if optional else call.data, limit)
        return await handler(call)

    endpoint.permission = operation.permission  # type: ignore[attr-defined]
    return endpoint


def _query_reader(struct: type[msgspec.Struct]) -> Callable[[Request], Any]:
    repeated = {
        field.encode_name
        for field in msgspec.structs.fields(struct)
        if get_origin(field.type) is tuple or field.type is tuple
    }

    def read(request: Request) -> Any:
        params = request.query_params
        values = {name: params.getlist(name) if name in repeated else params[name] for name in params}
        try:
            return msgspec.convert(values, struct, strict=False)
        except msgspec.ValidationError as error:
            raise ApiError(f"query: {invalid_body(error, struct)}", code="BAD_QUERY") from None

    return read


def openapi(resources: Sequence[Router]) -> dict[str, Any]:
    """Build the OpenAPI document."""
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
    """The schemas of all bodies, queries and responses."""

    def __init__(self, operations: Sequence[Endpoint]) -> None:
        types: list[Any] = [ProblemDocument]
        for each in operations:
            types += [kind for kind in (each.body, each.query, each.response) if kind not in (None, bytes)]
        self._types = list({id(each): each for each in types}.values())
        made, self.components = msgspec.json.schema_components(self._types, ref_template=_REF)
        self._made = {id(each): schema for each, schema in zip(self._types, made, strict=True)}

    def of(self, kind: Any) -> dict[str, Any]:
        return {} if kind is bytes else self._made[id(kind)]

    def properties(self, kind: Any) -> dict[str, Any]:
        name = self.of(kind)["$ref"].rpartition("/")[2]
        found: dict[str, Any] = self.components[name]
        return found


def _operation(each: Endpoint, tag: str, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.handler.__name__ if tag != "executions" else f"execution_{each.handler.__name__}",
        "tags": [tag],
        "summary": each.summary,
        "description": " ".join((each.handler.__doc__ or "").split()),
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
        reduced = {key: value for key, value in schema.items() if key != "description"}
        # An optional query parameter is absent, never null.
        if "anyOf" in reduced:
            kinds = [kind for kind in reduced["anyOf"] if kind != {"type": "null"}]
            reduced = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        reduced = {key: value for key, value in reduced.items() if key != "default" or value is not None}
        parameter = {"name": name, "in": "query", "required": name in required, "schema": reduced}
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
    success: dict[str, Any] = {"description": each.summary}
    if each.response is not None:
        success["content"] = {each.response_type: {"schema": schemas.of(each.response)}}
    found: dict[str, Any] = {str(each.status): success}
    for status, text in each.responses.items():
        if status < 300 and status != 204:
            found[str(status)] = {**success, "description": text}
        elif status >= 400:
            found[str(status)] = {**_problem(), "description": text}
        else:
            found[str(status)] = {"description": text}
    found["default"] = {"$ref": "#/components/responses/Problem"}
    return found


def _problem() -> dict[str, Any]:
    return {
        "description": "The request was rejected.",
        "content": {MEDIA: {"schema": {"$ref": _REF.format(name="ProblemDocument")}}},
    }
