"""Routes of the API: the permission is checked first, then a body is read within its limit and decoded strictly, then
the handler is called with its declared parameters.

FastAPI reads a body before it calls a dependency, so `ApiRoute` calls the permission before it lets FastAPI begin. That
every route has a permission is checked when the application is built.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIWebSocketRoute
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, GetPydanticSchema
from pydantic_core import CoreSchema
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from rune.codec.decode import decode
from rune.core.definition.strict_json import MAX_DECODED_BYTES, decode_json, split_object
from rune.core.json_decoder import JsonDecoder
from rune.core.limits import LIMITS
from rune.core.permissions import RIGHTS, ROLES, Principal, Right
from rune.errors import InvalidDocumentError
from rune.off_loop import off_loop, off_loop_in_turn
from rune.runtime.queries.reader import ExecutionReader
from rune.server.auth import Permission, UndeclaredPermissionError
from rune.server.bodies import read_body, release_body
from rune.server.context import ServerContext
from rune.server.responses import ApiError, request_id

PREFIX = "/api/v1"
JSON_TYPES = frozenset({"", "application/json"})
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
_BOM = b"\xef\xbb\xbf"
MAX_INLINE_BODY_BYTES = 64 * 1024
"""Larger bodies are decoded in a thread."""

MAX_UNKNOWN_FIELDS = 100
"""Pydantic describes each, of which a response shows a few. A body of a megabyte may have a hundred thousand."""

_SPLIT = JsonDecoder(dict[str, msgspec.Raw])

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
T = TypeVar("T")

ID = r"[A-Za-z0-9_-]{1,128}"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"

WorkflowId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of a workflow.")]
VersionName = Annotated[str, Path(pattern=f"^{ID}$", description="A version number (`3`, `v3`) or an alias.")]
ALIAS = r"^[A-Za-z][A-Za-z0-9_-]{0,127}$"
AliasName = Annotated[str, Path(pattern=ALIAS, description="An alias.")]
ExecutionId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of an execution.")]
OtherExecutionId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of another execution.")]
NodeId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of a node.")]
DefinitionHash = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9:_-]{1,128}$", description="The hash of a definition.")
]

DeadLetterId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of a dead letter.")]
MessageId = Annotated[str, Path(pattern=r"^m[0-9a-f]{16}$", description="The id of a dead message.")]
NodeType = Annotated[str, Path(pattern=f"^{NAME}$", description="A node type or one of its aliases.")]
CredentialName = Annotated[str, Path(pattern=f"^{NAME}$", description="The name or id of a credential.")]
BlobKey = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_.:@#/-]{1,400}$",
        description="The key of a blob, without the id of the execution.",
    ),
]

KeyId = Annotated[str, Path(pattern=r"^k[0-9a-f]{16}$", description="The id of an API key.")]
WorkerId = Annotated[str, Path(pattern=f"^{NAME}$", description="The id of a process.")]
TriggerId = Annotated[str, Path(pattern=r"^t[0-9a-f]{24}$", description="The id of a trigger.")]

_Printable = Annotated[str, Field(min_length=1, max_length=255, pattern="^[!-~]([ -~]*[!-~])?$")]

Id = Annotated[str, Field(pattern=f"^{ID}$")]
"""An id in a body or in a query."""

Item = Annotated[str, Field(max_length=400, description="An item such as `users:5` or `users:5/orders:2`.")]

OPEN = {"hook": re.compile("/hooks/.+"), "page": re.compile("/|/docs(/what-to-do-when)?|/(static|assets)/.+")}
"""Paths of the routes without an API key: webhooks, which verify a secret themselves, and the files of the pages."""

KNOWN = frozenset(OPEN).union(*RIGHTS.values())
NO_KEY = "none"
PRINCIPALS: tuple[str, ...] = (NO_KEY, *ROLES)


class _WithoutNull:
    """Removes null from the documentation of a parameter."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        found = dict(handler(schema))
        (kind,) = (each for each in found.pop("anyOf") if each != {"type": "null"})
        return {**found, **kind}


Omittable = Annotated[T | None, _WithoutNull()]
"""A parameter that may be left out; it is then None, but null cannot be sent."""


class _Raw:
    """Marks a field whose JSON text is kept as it was sent."""


RawJson = Annotated[bytes, _Raw(), GetPydanticSchema(get_pydantic_json_schema=lambda _core, _handler: {})]
"""Any JSON value, as the bytes that were sent."""


class JsonBody(BaseModel):
    """Base of all bodies. Values are not converted, and unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    max_bytes: ClassVar[int] = LIMITS.body_bytes
    raw_fields: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        cls.raw_fields = frozenset(
            name
            for name, field in cls.model_fields.items()
            if any(isinstance(each, _Raw) for each in field.metadata)
        )


class QueryModel(BaseModel):
    """Base of all queries. Unknown parameters are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Limit = Annotated[int, Field(ge=1, le=1_000, description="Maximum number of results.")]
Cursor = Annotated[str, Field(min_length=1, max_length=400, description="`next` of the previous page.")]


class Page(QueryModel):
    """Page parameters."""

    limit: Limit = 50
    cursor: Omittable[Cursor] = None


def media_type(request: Request) -> str:
    """Return the media type of a body in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_json(request: Request, also: str = "") -> None:
    """Reject other media types. A page of another origin cannot send `application/json` without a CORS preflight."""
    kind = media_type(request)
    if kind not in JSON_TYPES and not kind.endswith("+json"):
        raise ApiError(f"`{kind[:80]}` is not supported; send application/json{also}", code="BAD_MEDIA")


def decode_body(data: bytes, model: type[JsonBody]) -> dict[str, Any]:
    """Decode a body strictly: limited depth, no duplicate keys, no numbers that lose precision. Raw fields are returned
    as bytes."""
    if model.raw_fields and len(data) > MAX_DECODED_BYTES:
        return _decode_members(data, model)
    decoded = decode_json(data, max_bytes=model.max_bytes, max_depth=LIMITS.json_depth + 4, root="body")
    if decoded.problems:
        raise InvalidDocumentError(decoded.problems)
    found = decoded.value
    if not isinstance(found, dict):
        raise ApiError("body: must be an object", code="BAD_BODY")
    _check_fields(found, model)
    if model.raw_fields:
        for name, text in decode(_SPLIT, data.removeprefix(_BOM)).items():
            if name in model.raw_fields:
                found[name] = bytes(text)
    return found


def _check_fields(found: Mapping[str, object], model: type[JsonBody]) -> None:
    if len(found) > len(model.model_fields) + MAX_UNKNOWN_FIELDS:
        unknown = next(name for name in found if name not in model.model_fields)
        raise ApiError(
            f"body: has {len(found):,} fields, `{unknown[:60]}` is not one of them", code="BAD_BODY"
        )


def _decode_members(data: bytes, model: type[JsonBody]) -> dict[str, Any]:
    """Decode a large body: raw fields, which are most of it, stay text, and whoever reads them checks them."""
    members, problems = split_object(data, "body")
    if problems:
        raise InvalidDocumentError(problems)
    _check_fields(members, model)
    found: dict[str, Any] = {}
    for name, text in members.items():
        found[name] = bytes(text)
        if name not in model.raw_fields:
            decoded = decode_json(
                found[name],
                max_bytes=LIMITS.body_bytes,
                max_depth=LIMITS.json_depth + 3,
                root=f"body.{name[:60]}",
            )
            if decoded.problems:
                raise InvalidDocumentError(decoded.problems)
            found[name] = decoded.value
    return found


async def _decoded_body(data: bytes, model: type[JsonBody]) -> dict[str, Any]:
    if len(data) <= MAX_INLINE_BODY_BYTES:
        return decode_body(data, model)
    run = off_loop if len(data) <= MAX_DECODED_BYTES else off_loop_in_turn
    return await run(partial(decode_body, data, model))


class ApiRequest(Request):
    """A request whose body is limited in size and decoded strictly."""

    def __init__(self, request: Request, model: type[JsonBody]) -> None:
        super().__init__(request.scope, request.receive)
        self._model = model
        self._data: bytes | None = None
        self._decoded: dict[str, Any] | None = None

    async def body(self) -> bytes:
        if self._data is None:
            self._data = await read_body(self, self._model.max_bytes)
        return self._data

    async def json(self) -> Any:
        if self._decoded is None:
            self._decoded = await _decoded_body(await self.body(), self._model)
        return self._decoded


class ApiRoute(APIRoute):
    """A route that declares a permission. It is checked before the body is read."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        # The first description of a response is that of the operation.
        options["response_description"] = options.get("summary") or ""
        super().__init__(path, endpoint, **options)
        # A server without keys requires none, so authentication is documented as optional.
        extra: dict[str, Any] = {"x-needs": self.permission.right, "security": [{}]}
        self.openapi_extra = {**(self.openapi_extra or {}), **extra}

    @property
    def permission(self) -> Permission:
        """The permission that the route declares."""
        for each in self.dependant.dependencies:
            if isinstance(each.call, Permission):
                return each.call
        raise UndeclaredPermissionError(f"{self.path} declares no permission")

    @property
    def body_model(self) -> type[JsonBody] | None:
        """The model of the body; None if the route has none."""
        model: Any = None if self.body_field is None else self.body_field.field_info.annotation
        if model is not None and not issubclass(model, JsonBody):
            raise TypeError(f"{self.path}: {model} is not a JsonBody")
        found: type[JsonBody] | None = model
        return found

    def get_route_handler(self) -> Handler:
        permission, model = self.permission, self.body_model
        handle = super().get_route_handler()
        optional = self.body_field is not None and not self.body_field.field_info.is_required()

        async def handler(request: Request) -> Response:
            await permission(request)
            try:
                if model is not None:
                    request = ApiRequest(request, model)
                    data = await request.body()
                    check_json(request)
                    if data or not optional:
                        await request.json()
                return _identified(request, await handle(request))
            finally:
                release_body(request)

        return handler


def _identified(request: Request, response: Response) -> Response:
    """Add the id of the request, by which its entries in the audit log are found. Streams, which change nothing, have
    no list of headers."""
    headers: list[tuple[bytes, bytes]] | None = getattr(response, "raw_headers", None)
    if headers is not None and all(name != b"x-request-id" for name, _ in headers):
        headers.append((b"x-request-id", request_id(request.scope).encode()))
    return response


class LateResponse:
    """A response for which a fast route waits after it has dropped the body of the request."""

    def __init__(self, response: Coroutine[Any, Any, Response]) -> None:
        self.response = response


class FastRoute(ApiRoute):
    """A route that resolves the parameters of its handler without FastAPI (docs/adr/0032). It supports path and query
    parameters, headers, one body, and dependencies whose only parameter is the connection."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        handler = self.get_route_handler()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            response = await handler(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = app

    def get_route_handler(self) -> Handler:
        dependant, permission, model = self.dependant, self.permission, self.body_model
        if dependant.cookie_params or model is None:
            raise TypeError(f"{self.path}: a fast route takes a body, parameters and headers only")
        others = [each for each in dependant.dependencies if each.call is not permission]
        dependencies = [(each.name, _on_connection(each)) for each in others if each.name]
        if len(dependencies) < len(others):
            raise TypeError(f"{self.path}: a fast route has one permission and no other unnamed dependency")
        endpoint: Callable[..., Awaitable[Response | LateResponse]] = self.endpoint
        paths = [_FastParameter("path", each) for each in dependant.path_params]
        queries = [_FastParameter("query", each) for each in dependant.query_params]
        headers = [_FastParameter("header", each) for each in dependant.header_params]
        (body,) = dependant.body_params
        optional = not body.field_info.is_required()

        async def handle(request: Request) -> Response | LateResponse:
            await permission(request)
            values = {name: await call(request) for name, call in dependencies}
            for each in paths:
                values[each.name] = each.validated(request.path_params)
            data = await read_body(request, model.max_bytes)
            check_json(request)
            sent = await _decoded_body(data, model) if data or not optional else {}
            del data
            values[body.name], errors = body.validate(sent, values, loc=("body",))
            if errors:
                raise RequestValidationError(errors)
            for each in queries:
                values[each.name] = each.validated(request.query_params)
            for each in headers:
                values[each.name] = each.validated(request.headers)
            return await endpoint(**values)

        async def handler(request: Request) -> Response:
            try:
                found = await handle(request)
            finally:
                release_body(request)
            response = await found.response if isinstance(found, LateResponse) else found
            return _identified(request, response)

        return handler


class _FastParameter:
    """A path or query parameter or a header of a fast route."""

    def __init__(self, place: str, field: Any) -> None:
        self.name: str = field.name
        self._field = field
        self._key = field.alias.lower() if place == "header" else field.alias
        self._loc = (place, field.alias)
        self._default = field.get_default()

    def validated(self, sent: Mapping[str, str]) -> Any:
        if self._key not in sent:
            return self._default
        value, errors = self._field.validate(sent[self._key], {}, loc=self._loc)
        if errors:
            raise RequestValidationError(errors)
        return value


def _on_connection(dependant: Any) -> Callable[[HTTPConnection], Awaitable[Any]]:
    """Return a dependency if its only parameter is the connection."""
    call: Callable[[HTTPConnection], Awaitable[Any]] = dependant.call
    others = (dependant.path_params, dependant.query_params, dependant.header_params, dependant.body_params)
    if dependant.http_connection_param_name is None or dependant.dependencies or any(others):
        raise TypeError(f"{call} takes more than the connection, so a fast route cannot call it")
    return call


def hidden(**options: Any) -> APIRouter:
    """Return a router for routes that are not part of the document. All of them declare a permission."""
    return APIRouter(route_class=ApiRoute, redirect_slashes=False, include_in_schema=False, **options)


async def server_of(connection: HTTPConnection) -> ServerContext:
    server: ServerContext = connection.app.state.server
    return server


async def principal_of(connection: HTTPConnection) -> Principal:
    """Return the principal that the permission of the route has determined."""
    principal: Principal = connection.scope["principal"]
    return principal


Server = Annotated[ServerContext, Depends(server_of)]
Caller = Annotated[Principal, Depends(principal_of)]


async def check_cursor(reader: ExecutionReader, cursor: str | None, found: Sequence[object]) -> None:
    """Reject a cursor whose execution does not exist; its empty page would look like the end of the list."""
    if cursor is not None and not found and await reader.execution(cursor) is None:
        raise ApiError(
            f"`{cursor[:60]}` is not a cursor of this list, or its execution was removed; start over",
            code="BAD_CURSOR",
        )


def offset(cursor: str | None) -> int:
    """Return the offset of a numeric cursor."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise ApiError(f"`{cursor[:60]}` is not a cursor of this list", code="BAD_CURSOR")
    return int(cursor)


IdempotencyKey = Annotated[
    Omittable[_Printable],
    Header(
        alias="Idempotency-Key",
        description="The operation takes place at most once under this key; a repeated request returns the first"
        " response.",
    ),
]
IfMatch = Annotated[
    Omittable[str],
    Header(alias="If-Match", description="Apply the change only if the resource still has this `ETag`."),
]
IfNoneMatch = Annotated[
    Omittable[str],
    Header(
        alias="If-None-Match",
        description="Apply or respond only if the resource has another `ETag`; `*`: only if it does not exist.",
    ),
]
Range = Annotated[
    Omittable[str],
    Header(alias="Range", description="One range of bytes, such as `bytes=0-1023`; several are ignored."),
]
LastEventId = Annotated[
    Omittable[str],
    Header(
        alias="Last-Event-ID",
        description="The `id` of the last received event.",
        json_schema_extra={"pattern": "^[0-9]{1,15}$"},  # browsers also send an empty one
    ),
]


def permission_of(route: BaseRoute) -> Right | None:
    """Return the right that a route requires; None if it declares no permission."""
    dependencies = route.dependant.dependencies if isinstance(route, APIRoute | APIWebSocketRoute) else ()
    for each in dependencies:
        if isinstance(each.call, Permission):
            return each.call.right
    return None


def check_declared(routes: Iterable[BaseRoute], exempt: Iterable[Any]) -> None:
    """Raise if a route declares no permission or skips authentication. `exempt` lists endpoint objects, because another
    route could have the same name."""
    free = [id(each) for each in exempt]
    for route in routes:
        if not isinstance(route, APIRoute | APIWebSocketRoute):
            raise UndeclaredPermissionError(f"{route} is not an API route, so it skips authentication")
        if id(route.endpoint) in free:
            continue
        permission = permission_of(route)
        if permission not in KNOWN:
            raise UndeclaredPermissionError(f"{route.path} declares no permission")
        if isinstance(route, APIRoute) and not isinstance(route, ApiRoute):
            raise UndeclaredPermissionError(f"{route.path} reads its body before it checks its permission")
        for right, place in OPEN.items():
            if (permission == right) != bool(place.fullmatch(route.path)):
                raise UndeclaredPermissionError(f"{route.path}: `{right}` is reserved for {place.pattern}")


def allowed(permission: Right | None, role: str) -> bool:
    """Whether a role, or `none` for a request without a key, may use a route. None as permission means public."""
    if permission is None or permission in OPEN:
        return True
    return any(name == role and permission in rights for name, rights in RIGHTS.items())


def rows(routes: list[BaseRoute]) -> Iterator[tuple[str, str, Right | None]]:
    """Yield the method, path and permission of every route."""
    for route in routes:
        if isinstance(route, APIWebSocketRoute):
            yield "WebSocket", route.path, permission_of(route)
        elif isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield method, route.path, permission_of(route)


def table(routes: list[BaseRoute]) -> str:
    """Return the matrix of routes and roles in Markdown."""
    lines = [
        f"| request | right | {' | '.join(PRINCIPALS)} |",
        f"|---|---|{'---|' * len(PRINCIPALS)}",
    ]
    for method, path, permission in sorted(rows(routes), key=lambda row: (row[1], row[0])):
        marks = " | ".join("yes" if allowed(permission, role) else "" for role in PRINCIPALS)
        lines.append(f"| `{method} {path}` | {permission or ''} | {marks} |")
    return "\n".join(lines)
