"""Operations: what the API can be asked for, each declared once: for the router, the checks and the document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, get_origin

import msgspec
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from rune.core.limits import LIMITS
from rune.core.rights import Principal, Right
from rune.master.body import check_json, decode, misfit, read_body
from rune.master.gate import authorize, lacking
from rune.master.problems import ApiError
from rune.master.quick import QuickRoute

if TYPE_CHECKING:
    from rune.master.service import Master

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


class Call:
    """One request, understood."""

    __slots__ = ("body", "data", "master", "path", "principal", "query", "request")

    def __init__(self, request: Request, master: Master) -> None:
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
            raise lacking(self.principal, right)


Act = Callable[[Call], Awaitable[Response]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to ask for."""

    method: str
    path: str
    summary: str
    act: Act
    need: Right
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


class Resource:
    """The operations of one resource."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.operations: list[Operation] = []

    def __call__(
        self, method: str, path: str, summary: str, *, need: Right, **said: Any
    ) -> Callable[[Act], Act]:
        """Declare an operation, and what right it takes."""

        def declare(act: Act) -> Act:
            made = Operation(method=method, path=path, summary=summary, act=act, need=need, **said)
            self.operations.append(made)
            return act

        return declare


def gated() -> APIRouter:
    """A router all of whose routes pass the gate."""
    return APIRouter(dependencies=[Depends(authorize)], redirect_slashes=False, route_class=QuickRoute)


def add(router: APIRouter, operation: Operation) -> None:
    """Put an operation on a router."""
    router.add_api_route(
        PREFIX + operation.path,
        _endpoint(operation),
        methods=[operation.method],
        include_in_schema=False,
        name=operation.act.__name__,
    )


def _endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    checks = [(name, _PATTERNS[name]) for name in operation.names]
    query = _query_reader(operation.query) if operation.query is not None else None
    body = operation.body
    decoder = msgspec.json.Decoder(body) if body is not None and body is not bytes else None
    act, limit, optional = operation.act, operation.limit, operation.optional

    async def endpoint(request: Request) -> Response:
        call = Call(request, request.app.state.master)
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

    endpoint.need = operation.need  # type: ignore[attr-defined]
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
            raise ApiError(f"query: {misfit(error, wanted)}", code="BAD_QUERY") from None

    return read
