"""Responses of the API: JSON documents, entity tags, and errors as problem documents (RFC 9457).

An error about invalid parameters or an invalid body tells which one, what was sent, and what is allowed. Values of
query parameters are shown. Those of headers and bodies are not, because they may be secret.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from rune.api.problems import ProblemDocument
from rune.core.definition.problems import Problem
from rune.core.permissions import Principal
from rune.errors import InvalidDocumentError, RuneError
from rune.ports.access import StartLimitError
from rune.ports.journal import StoreUnavailableError
from rune.ports.workflows import ANYTHING, NOTHING, Expected
from rune.runtime.services.audit_log import Refusal, Refusals

log = logging.getLogger("rune.server")

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()
JSON = (b"content-type", b"application/json")
_ALWAYS = [JSON, (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_VARY = (b"vary", b"accept-encoding")
_GZIP = (b"content-encoding", b"gzip")
MEDIA = "application/problem+json"
MIN_COMPRESSED_BYTES = 4 * 1024
MAX_INLINE_COMPRESSION_BYTES = 128 * 1024  # larger bodies are compressed in a thread, with the fastest method
REFUSED_STATUSES = frozenset({401, 403, 429})
"""Responses that the audit log has: no valid key, no permission, too many requests."""
STATUS: dict[str, int] = {
    "BAD_REQUEST": 400,
    "BAD_JSON": 400,
    "UNAUTHORIZED": 401,
    "NOT_PROVED": 401,
    "FORBIDDEN": 403,
    "CHILD_FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "UNKNOWN_EXECUTION": 404,
    "UNKNOWN_WORKFLOW": 404,
    "UNKNOWN_DEFINITION": 404,
    "UNKNOWN_DEAD_LETTER": 404,
    "UNKNOWN_BLOB": 404,
    "NO_SOURCE": 404,
    "UNKNOWN_TRIGGER": 404,
    "UNKNOWN_TYPE": 404,
    "UNKNOWN_RUN": 404,
    "UNKNOWN_PART": 404,
    "UNKNOWN_BULK_JOB": 404,
    "CREDENTIAL_MISSING": 404,
    "UNKNOWN_KEY": 404,
    "UNKNOWN_WORKER": 404,
    "NOT_ALLOWED": 405,
    "ENDED": 409,
    "NOT_ENDED": 409,
    "NOT_RECORDABLE": 409,
    "NOTHING_TO_RUN": 409,
    "REFUSED": 409,
    "KEY_CONFLICT": 409,
    "KEY_SPENT": 409,
    "AMBIGUOUS_SIGNAL": 409,
    "CREDENTIAL_EXISTS": 409,
    "CREDENTIAL_UNREADABLE": 409,
    "WORKFLOW_EXISTS": 409,
    "PATH_TAKEN": 409,
    "NOT_ROTATED": 409,
    "CHANGED": 409,
    "RUNS_ELSEWHERE": 409,
    "GONE": 410,
    "TOO_LARGE": 413,
    "LIMIT_EXCEEDED": 413,
    "BAD_MEDIA": 415,
    "INVALID": 422,
    "BAD_QUERY": 422,
    "BAD_BODY": 422,
    "BAD_HEADER": 422,
    "BAD_ALIAS": 422,
    "BAD_WEIGHTS": 422,
    "BAD_SIGNAL": 422,
    "UNKNOWN_SIGNAL": 422,
    "BAD_ITEM": 422,
    "BAD_POINTER": 422,
    "NOT_JSON": 422,
    "BAD_CREDENTIAL": 422,
    "BAD_KEY": 422,
    "BAD_CURSOR": 422,
    "OTHER_WORKFLOW": 422,
    "UNKNOWN_NODE": 422,
    "OWNER_LACKS_TYPE": 422,
    "NO_SHARED_CLOCK": 422,
    "BAD_LIMITS": 422,
    "TOO_MANY": 429,
    "TOO_MANY_WATCH": 429,
    "TOO_MANY_LOGINS": 429,
    "SECRET_KEY": 503,
    "STORE_AWAY": 503,
    "STORE_DAMAGED": 503,
    "NEWER_FORMAT": 503,
    "NOT_READY": 503,
    "TOO_MANY_BYTES": 503,
}
"""The HTTP status of every error code; a code that is not listed has 503 if a store is unavailable, otherwise 400."""
REMEDIES = "/docs/what-to-do-when"
"""The page of this server that has a section for each error code and each alert."""
_BY_STATUS = {404: "NOT_FOUND", 405: "NOT_ALLOWED", 413: "TOO_LARGE"}
_BY_PLACE = {"path": "NOT_FOUND", "query": "BAD_QUERY", "body": "BAD_BODY", "header": "BAD_HEADER"}
_TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content too large",
    414: "URL too long",
    415: "Unsupported media type",
    422: "Invalid",
    429: "Too many requests",
    431: "Request head too large",
    500: "Internal error",
    503: "Unavailable",
}

MAX_SHOWN = 60  # characters of a value
MAX_REPORTED = 5  # errors of one request

PATTERNS = {
    r"^[A-Za-z0-9_-]{1,128}$": "at most 128 letters, digits, `_` and `-`",
    "=": "of the form `name=value`",
}
"""Patterns of parameters in words."""

_TIME = "a time with a time zone, such as `2026-01-31T12:00:00Z`"


class Reply(Response, Generic[T]):
    """A JSON response of a shape, or one of bytes with another media type. It bypasses the header processing of
    Starlette, which costs more than the encoding."""

    status_code = 200

    def __init__(
        self,
        value: T | bytes,
        headers: Mapping[str, str] | None = None,
        media_type: bytes | None = None,
    ) -> None:
        self.background = None
        self.body = value if type(value) is bytes else _ENCODER.encode(value)
        self.raw_headers = [*_ALWAYS, (b"content-length", b"%d" % len(self.body))]
        if media_type is not None:
            self.raw_headers[0] = (b"content-type", media_type)
        if headers:
            extra = {name.lower(): text for name, text in headers.items()}
            if "cache-control" in extra:
                self.raw_headers.pop(1)
            self.raw_headers += [(n.encode("latin-1"), t.encode("latin-1")) for n, t in extra.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.body) > MIN_COMPRESSED_BYTES:
            await self._compress(scope)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})

    async def _compress(self, scope: Scope) -> None:
        self.raw_headers.append(_VARY)
        sent = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
        if not accepts_gzip(sent.decode("latin-1")):
            return
        body = bytes(self.body)
        if len(body) <= MAX_INLINE_COMPRESSION_BYTES:
            self.body = compress(body, 5)
        else:
            self.body = await asyncio.to_thread(compress, body, 1)
        kept = [each for each in self.raw_headers if each[0] != b"content-length"]
        self.raw_headers = [*kept, _GZIP, (b"content-length", b"%d" % len(self.body))]


class Created(Reply[T]):
    """The resource that the request has created."""

    status_code = 201


class Accepted(Reply[T]):
    """What takes place after the response."""

    status_code = 202


def compress(data: bytes, level: int) -> bytes:
    """Compress a body in the format of gzip, without a time."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def accepts_gzip(header: str) -> bool:
    """Return whether the value of `Accept-Encoding` permits gzip."""
    for part in header.lower().split(","):
        name, _, options = part.partition(";")
        if name.strip() in {"gzip", "*"}:
            return options.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


class NoContent(Response):
    """A success without a body."""

    status_code = 204

    def __init__(self) -> None:
        super().__init__(status_code=self.status_code)


class NotChanged(Response):
    """The client has the resource already, with this entity tag."""

    status_code = 304

    def __init__(self, tag: str) -> None:
        super().__init__(status_code=self.status_code, headers={"ETag": tag})


def etag(hash: str) -> str:
    """Return the entity tag for a hash."""
    return f'"{hash}"'


def tags(header: str | None) -> list[str]:
    """Split a header into its entity tags."""
    return [each.strip() for each in (header or "").split(",")]


def expected(match: str | None, none_match: str | None) -> Expected | None:
    """Return the precondition of `If-Match` and `If-None-Match: *`; both together can never hold."""
    absent = "*" in tags(none_match)
    if match is None:
        return (NOTHING,) if absent else None
    hashes = [ANYTHING if each == "*" else _unquoted(each) for each in tags(match)]
    return () if absent else tuple(each for each in hashes if each != NOTHING)


def _unquoted(tag: str) -> str:
    text = tag[1:-1] if len(tag) > 2 and tag[0] == tag[-1] == '"' else NOTHING
    return NOTHING if text == ANYTHING else text


class ApiError(RuneError):
    """A request that the API itself rejects."""

    code = "BAD_REQUEST"


class MethodNotAllowedError(ApiError):
    """A resource that accepts one method only."""

    code = "NOT_ALLOWED"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class TooManyLoginsError(ApiError):
    """An address sends too many wrong API keys; it may try again after `retry_after` seconds."""

    code = "TOO_MANY_LOGINS"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def status_of(error: RuneError) -> int:
    return STATUS.get(error.code, 503 if isinstance(error, StoreUnavailableError) else 400)


UNAVAILABLE = {
    "STORE_AWAY": "a store is unavailable or full: try again; the log names it under the id of this request",
    "STORE_DAMAGED": "the content of a store cannot be read; the log names it under the id of this request",
    "NEWER_FORMAT": "this was written by a newer version of Rune",
    "SECRET_KEY": "the server has no usable key for credentials; the log says why under the id of this request",
}
"""The texts of errors of stores by code, without what drivers report: addresses, paths, names of methods."""


def unavailable_text(error: RuneError) -> str:
    """Return what a client is told when a store cannot be used."""
    return UNAVAILABLE.get(error.code, UNAVAILABLE["STORE_AWAY"])


def problem_document(error: RuneError) -> ProblemDocument:
    status = status_of(error)
    found = error.problems if isinstance(error, InvalidDocumentError) else ()
    # An ApiError was written for clients.
    hidden = status == 503 and not isinstance(error, ApiError)
    detail = unavailable_text(error) if hidden else error.message
    document = problem(status, error.code, detail, tuple(found))
    if isinstance(error, StartLimitError):
        return msgspec.structs.replace(document, limit=error.limit)
    return document


def problem(status: int, code: str, detail: str, problems: tuple[Problem, ...] = ()) -> ProblemDocument:
    """Return the document of an error."""
    title = _TITLES.get(status, "Rejected")
    name = f"{REMEDIES}#{code.lower()}"
    return ProblemDocument(type=name, title=title, status=status, code=code, detail=detail, problems=problems)


def problem_response(document: ProblemDocument, headers: dict[str, str] | None = None) -> Response:
    if not document.request_id:
        document = msgspec.structs.replace(document, request_id=new_request_id())
    common = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "X-Request-Id": document.request_id,
    }
    headers = {**common, **(headers or {})}
    body = msgspec.json.encode(document)
    return Response(body, status_code=document.status, headers=headers, media_type=MEDIA)


def new_request_id() -> str:
    """Return a new id for a request."""
    return f"r{secrets.token_hex(8)}"


def request_id(scope: Scope) -> str:
    """Return the id of a request, which its response, the log of the server and the audit log name."""
    id: str = scope.setdefault("request_id", new_request_id())
    return id


def client_address(connection: HTTPConnection) -> str:
    """Return the address of a client; behind a trusted proxy the one that the proxy names."""
    return connection.client.host if connection.client else ""


def _record_refusal(request: Request, document: ProblemDocument) -> None:
    """Count a refusal for the audit log."""
    refusals: Refusals | None = getattr(getattr(request.app.state, "server", None), "refusals", None)
    if refusals is None or document.status not in REFUSED_STATUSES:
        return
    principal: Principal | None = request.scope.get("principal")
    route: str = getattr(request.scope.get("route"), "path_format", "")
    target = f"{request.scope.get('method', 'WebSocket')} {route}"
    actor = "" if principal is None else principal.name
    refusals.add(Refusal(actor, client_address(request), target, document.code), document.request_id)


def _rejection(request: Request, document: ProblemDocument, headers: dict[str, str]) -> Response:
    """Log a rejected request with the id that the client receives."""
    document = msgspec.structs.replace(document, request_id=request_id(request.scope))
    _record_refusal(request, document)
    # A WebSocket has no method.
    method, place = request.scope.get("method", "WebSocket"), request.url.path[:200]
    log.info("request %s: %s %s: %s", document.request_id, method, place, document.code)
    return problem_response(document, headers)


async def on_rune_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RuneError)
    headers: dict[str, str] = {}
    document = problem_document(error)
    if document.status == 503:
        headers["Retry-After"] = "1"
        log.info("request %s: %s", request_id(request.scope), error.message)
    if isinstance(error, StartLimitError | TooManyLoginsError):
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, MethodNotAllowedError):
        headers["Allow"] = error.allowed
    if document.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _rejection(request, document, headers)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _BY_STATUS.get(error.status_code, "BAD_REQUEST")
    headers: dict[str, str] = dict(error.headers or {})
    detail = str(error.detail)
    if code == "NOT_FOUND":
        detail = f"no route matches {request.url.path[:200]}"
    elif code == "NOT_ALLOWED":
        detail = f"{request.method} is not allowed at {request.url.path[:200]}"
        headers = {**headers, "Allow": ", ".join(_allowed_methods(request))}
    return _rejection(request, problem(error.status_code, code, detail), headers)


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes at a path; Starlette names those of the first route only."""
    methods: set[str] = set()
    for route in request.app.router.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Respond to parameters that do not match their declarations. A path that can name nothing is not found."""
    assert isinstance(error, RequestValidationError)
    errors: Sequence[dict[str, Any]] = error.errors()
    place, code = next((place, code) for place, code in _BY_PLACE.items() if _in(place, errors))
    found = [each for each in errors if each["loc"][0] == place]
    if place == "path":
        name, value = found[0]["loc"][1], str(found[0]["input"])
        detail = f"`{value[:80]}` is not a valid {name}"
    else:
        detail = describe_errors(place, found, _query_names(request) if place == "query" else ())
    return _rejection(request, problem(STATUS[code], code, detail), {})


def _in(place: str, errors: Sequence[dict[str, Any]]) -> bool:
    return any(each["loc"][0] == place for each in errors)


def _query_names(request: Request) -> list[str]:
    """Return the names of the query parameters of the route."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    names: list[str] = []
    for each in () if dependant is None else dependant.query_params:
        fields = getattr(each.field_info.annotation, "model_fields", None)
        names += [each.alias] if fields is None else [field.alias or name for name, field in fields.items()]
    return names


async def on_defect(request: Request, error: Exception) -> Response:
    """Respond to an unexpected exception without details; these are in the log."""
    id = request_id(request.scope)
    method = request.scope.get("method", "WebSocket")
    log.error("request %s: %s %s failed", id, method, request.url.path, exc_info=error)
    document = problem(500, "ERROR", f"internal error; the log of the server has it as request `{id}`")
    return problem_response(msgspec.structs.replace(document, request_id=id))


async def on_disconnect(request: Request, error: Exception) -> Response:
    """Respond to a client that disconnected while its body was read. It is neither a defect nor received by anyone."""
    return problem_response(
        problem(400, "BAD_REQUEST", "the client disconnected before its body was complete")
    )


HANDLERS: dict[Any, Any] = {
    ClientDisconnect: on_disconnect,
    RuneError: on_rune_error,
    HTTPException: on_http_error,
    RequestValidationError: on_invalid_request,
    Exception: on_defect,
}


_EXPECTED: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "int_parsing": lambda _: "a whole number",
    "int_type": lambda _: "a whole number",
    "int_from_float": lambda _: "a whole number",
    "float_parsing": lambda _: "a number",
    "float_type": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_parsing": lambda _: "`true` or `false`",
    "bool_type": lambda _: "`true` or `false`",
    "string_type": lambda _: "text",
    "list_type": lambda _: "a list",
    "dict_type": lambda _: "an object",
    "model_type": lambda _: "an object",
    "model_attributes_type": lambda _: "an object",
    "datetime_parsing": lambda _: _TIME,
    "datetime_from_date_parsing": lambda _: _TIME,
    "datetime_type": lambda _: _TIME,
    "timezone_aware": lambda _: _TIME,
    "greater_than_equal": lambda bound: f"at least {bound['ge']}",
    "greater_than": lambda bound: f"more than {bound['gt']}",
    "less_than_equal": lambda bound: f"at most {bound['le']}",
    "less_than": lambda bound: f"less than {bound['lt']}",
    "literal_error": lambda bound: f"one of {_listed(str(bound['expected']))}",
    "string_pattern_mismatch": lambda bound: PATTERNS.get(
        str(bound["pattern"]), f"text that matches `{bound['pattern']}`"
    ),
    "string_too_short": lambda bound: f"text of at least {_characters(bound['min_length'])}",
    "string_too_long": lambda bound: f"text of at most {_characters(bound['max_length'])}",
    "too_short": lambda bound: f"at least {bound['min_length']} in number",
    "too_long": lambda bound: f"at most {bound['max_length']} in number",
}
"""What is allowed, by the type of error."""


def describe_errors(place: str, errors: Sequence[Mapping[str, Any]], allowed: Sequence[str] = ()) -> str:
    """Describe the errors of one place of a request. `allowed`: the names of its parameters, if known."""
    return "; ".join(_describe(place, each, allowed) for each in errors[:MAX_REPORTED])


def _describe(place: str, error: Mapping[str, Any], allowed: Sequence[str]) -> str:
    kind, names = str(error["type"]), list(error["loc"][1:])
    if place == "query":
        names = names[:1]  # of a repeated parameter, its number means nothing to the client
    name = "".join(f"[{each}]" if isinstance(each, int) else f".{str(each)[:80]}" for each in names)
    subject = _subject(place, name.lstrip("."))
    if kind == "extra_forbidden":
        known = f"; allowed are {', '.join(f'`{each}`' for each in allowed)}" if allowed else ""
        return f"{subject} is unknown{known}"
    if kind == "missing":
        return f"{subject} is required"
    expected = _EXPECTED.get(kind)
    if expected is None:
        message = str(error["msg"])
        return f"{subject} is invalid: {message[:1].lower()}{message[1:]}"
    sent = f", not `{_shown(error.get('input'))}`" if place == "query" else ""
    return f"{subject} must be {expected(error.get('ctx') or {})}{sent}"


def _subject(place: str, name: str) -> str:
    if not name:
        return f"the {place}"
    return f"`{name}` of the body" if place == "body" else f"the {_PLACES[place]} `{name}`"


_PLACES = {"query": "query parameter", "header": "header", "path": "path parameter"}


def _characters(count: int) -> str:
    return "1 character" if count == 1 else f"{count} characters"


def _shown(value: object) -> str:
    text = "".join(each if each.isprintable() else "?" for each in str(value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _listed(expected: str) -> str:
    """Turn `'a', 'b' or 'c'` into `a`, `b`, `c` in backquotes."""
    return ", ".join(f"`{each}`" for each in re.findall(r"'([^']*)'", expected))
