"""The interface between the engine and node types: the call a node receives, the resources it uses (HTTP client, mail
server, credentials) and the outcome it returns.

Node types do not depend on the engine. Every output must be JSON within the size and depth limits.
"""

from __future__ import annotations

import logging
import math
import os
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from rune.core.definition.strict_json import MAX_INT, MIN_INT, has_lone_surrogate
from rune.core.execution.outcome import Error, Failure, Outcome
from rune.core.expr import Expression, Meter, Template
from rune.core.expr.budget import UNMETERED, meter_of
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import NodeType
from rune.core.plan.model import Element, Rules, evaluate
from rune.errors import LimitExceededError, NodeFailure, RuneError
from rune.nodes.attempt_log import WriteLine
from rune.nodes.blobs import NO_BLOBS, Blobs
from rune.nodes.credentials import CredentialResolver, CredentialUse, RedactingBlobs, Reference, TokenCache
from rune.nodes.endings import is_ctrl_c
from rune.nodes.redaction import SECRETS_IN_USE, by_name
from rune.ports.credentials import Credential, CredentialStore

if TYPE_CHECKING:
    from rune.nodes.io.http_client.client import Client
    from rune.nodes.io.http_client.ssrf import AddressGuard, Policy, Resolve


class Resources:
    """Resources of one worker process; all its calls share the connections."""

    def __init__(
        self,
        *,
        http_policy: Policy = "public_only",
        http_allow: Iterable[str] = (),
        http_per_host: int = 64,
        smtp_url: str = "",
        resolve: Resolve | None = None,
        credentials: CredentialStore | None = None,
    ) -> None:
        self.smtp_url = smtp_url
        self.credentials = credentials
        self.tokens = TokenCache()
        self._policy = http_policy
        self._allow = tuple(http_allow)
        self._per_host = max(1, http_per_host)
        self._resolve = resolve
        self._client: Client | None = None
        if self._allow:
            # Reject an invalid allow list at startup, not at the first call.
            self._guard()

    def _guard(self) -> AddressGuard:
        # Imported on first use: workers without HTTP calls do not load it.
        from rune.nodes.io.http_client.ssrf import AddressGuard  # noqa: PLC0415

        return AddressGuard(self._policy, self._allow, self._resolve)

    def http(self) -> Client:
        """Return the HTTP client of this process."""
        if self._client is None:
            # Imported on first use: loading it takes a quarter of a second.
            from rune.nodes.io.http_client.client import Client  # noqa: PLC0415

            self._client = Client(self._guard(), self._per_host)
        return self._client

    async def close(self) -> None:
        """Close the HTTP client if it was opened."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class _NoResources(Resources):
    """Opens nothing: no engine would close it."""

    def http(self) -> Client:
        raise RuntimeError("this call has no external resources")


NO_RESOURCES: Resources = _NoResources()
"""For calls without external effects."""


NOT_JSON = "NOT_JSON"

NO_TEXT = "<its text cannot be read>"

P = TypeVar("P")
T = TypeVar("T")
Level = Literal["debug", "info", "warning", "error"]
Progress = Callable[[float | str], None]
Launch = Callable[[str, str | None, Any, bool], Awaitable[str]]
"""Start a child execution, given workflow, version, input and whether to wait for its end; return its id."""
Arrivals = Callable[[], list[tuple[str, Any]]]
Entries = Callable[[], Iterable[tuple[bool, Any]]]

_CHECK_NS = 100
MAX_CODE_CHARS = 128
MAX_MESSAGE_CHARS = 8 * 1024
MAX_DETAILS_BYTES = LIMITS.inline_bytes
MAX_DETAILS_DEPTH = 16
MAX_OMITTED = 20
MAX_TRACEBACK_BYTES = 16 * 1024
_DETAIL_LIMITS = msgspec.structs.replace(LIMITS, output_bytes=MAX_DETAILS_BYTES)
_OMITTED = "  [...]\n"
_ENGINE_FOLDER = f"{Path(__file__).parent.parent}{os.sep}"
INTEGER_BITS = 64
_PLAIN_TYPES = frozenset({bool, type(None)})
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_log = logging.getLogger("rune.node")


def check_json(value: Any, limits: Limits = LIMITS, meter: Meter = UNMETERED, *, what: str = "output") -> int:
    """Reject a value that is not JSON, is nested too deeply, contains an integer beyond 64 bits, or exceeds the output
    limit when it is written out. Return a lower bound of its length.

    The walk is breadth-first, so depth uses no stack; a value that contains itself stops at the depth limit. An object
    that occurs several times on a level is visited once, so that a value with shared parts costs what exists of it.
    """
    size = -1
    level: list[Any] = [[value]]
    times: list[int] = []  # how often each container of the level occurs; empty if once
    for _ in range(limits.json_depth + 1):
        below: list[Any] = []
        below_times: list[int] = []
        for at, container in enumerate(level):
            # An element takes at least two bytes, with its comma.
            own = 2 * len(container)
            first = len(below)
            meter.charge(len(container) * _CHECK_NS)
            values = container
            if type(container) is dict:
                own += _check_keys(container)
                values = container.values()
            for each in values:
                kind = type(each)
                if kind is str:
                    own += len(each)
                    if not each.isascii():
                        _check_text(each)
                elif kind is dict or kind is list:
                    below.append(each)
                elif kind not in _PLAIN_TYPES and (kind is not int or not MIN_INT <= each <= MAX_INT):
                    _check_number(each, kind, what)
            if times:
                own *= times[at]
                below_times += repeat(times[at], len(below) - first)
            size += own
            if size > limits.output_bytes:
                raise LimitExceededError(f"bytes of the {what}", limits.output_bytes)
        if not below:
            return size
        level, times = _distinct(below, below_times)
    raise LimitExceededError(f"nesting of the {what}", limits.json_depth)


def _distinct(containers: list[Any], times: list[int]) -> tuple[list[Any], list[int]]:
    """Return each container once, with how often it occurs."""
    if len(set(map(id, containers))) == len(containers):
        return containers, times
    counts: dict[int, int] = {}
    for each, count in zip(containers, times or repeat(1), strict=False):
        counts[id(each)] = counts.get(id(each), 0) + count
    return list({id(each): each for each in containers}.values()), list(counts.values())


def _check_text(value: str) -> None:
    if has_lone_surrogate(value):
        raise _not_json("text with half of a surrogate pair")


def _check_number(value: Any, kind: type, what: str) -> None:
    if kind is int:
        raise _too_long(value, what)
    if kind is not float:
        raise _not_json(f"a value of type {kind.__name__}")
    if not math.isfinite(value):
        raise _not_json(str(value))


def _check_keys(value: dict[Any, Any]) -> int:
    """Check the keys of an object; return their length."""
    try:
        keys = "".join(value)
    except TypeError:
        kinds = sorted({type(key).__name__ for key in value if not isinstance(key, str)})
        raise _not_json(f"a key of type {kinds[0]}") from None
    if not keys.isascii() and any(has_lone_surrogate(key) for key in value):
        raise _not_json("a key with half of a surrogate pair")
    return len(keys)


def _not_json(what: str) -> NodeFailure:
    return NodeFailure(f"the output holds {what}, which is not JSON", code=NOT_JSON)


def _too_long(number: int, what: str) -> LimitExceededError:
    bits = number.bit_length() + (number < 0)
    return LimitExceededError(f"bits of an integer in the {what}", INTEGER_BITS, bits)


async def _no_launch(workflow: str, version: str | None, input: Any, wait: bool) -> str:
    raise RuntimeError("this call cannot start executions")


def _no_progress(what: float | str) -> None:
    """Discard the progress: no subscriber is attached."""


def _field_text(value: Any) -> str:
    """Return a log field as one line of text."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:200]


class NodeCall(msgspec.Struct, Generic[P], eq=False):
    """One run of a node.

    `parameters` are resolved and typed. `scope` holds the variables of expressions; `scope["$json"]` is the payload.
    `elements` are the compiled parameters that the node evaluates itself. `arrivals()` returns the live payloads of
    a join by predecessor id, in edge order; `entries()` returns for each item of an aggregator, in index order,
    whether it failed and its value. `resumed` is true after the wait of a suspended node has ended: `due` is then
    the time it waited for, `signal` the payload of the signal. `idempotency_key` identifies the effect and is the
    same in every attempt; it is empty if the node disabled it. `resources` holds the external resources, `blobs` stores
    bytes for the execution, `traceparent` is the W3C trace context for outgoing calls (empty without tracing), and
    `progress` publishes the progress of the run to subscribers.
    """

    parameters: P
    scope: Mapping[str, Any]
    now: int
    node: str = ""
    elements: Mapping[str, Element] = {}
    arrivals: Arrivals = list
    entries: Entries = list
    attempt: int = 1
    idempotency_key: str = ""
    resumed: bool = False
    timer_id: str = ""
    due: int | None = None
    signal: Any = None
    limits: Limits = LIMITS
    resources: Resources = NO_RESOURCES
    blobs: Blobs = NO_BLOBS
    progress: Progress = _no_progress
    credentials: Reference | None = None
    usage: CredentialUse | None = None
    traceparent: str = ""
    secret: CredentialResolver | None = None  # overrides the credential resolver of `resources`
    launch: Launch = _no_launch
    write_line: WriteLine | None = None  # adds a line to the log of the attempt, given its level and text

    @property
    def payload(self) -> Any:
        """Return the payload the node received."""
        return self.scope["$json"]

    @property
    def meter(self) -> Meter:
        """The meter of this run's work; a pure node that works on large values charges it before each part."""
        return meter_of(self.scope)

    def evaluate(self, name: str, scope: Mapping[str, Any] | None = None) -> Any:
        """Evaluate a parameter that the node evaluates itself, by default in the scope of the call."""
        compiled = self.elements[name]
        assert isinstance(compiled, Expression | Template)
        return evaluate(name, compiled, self.scope if scope is None else scope)

    def log(self, message: str, *, level: Level = "info", **fields: Any) -> None:
        """Write a line to the log of the attempt and to the worker's log, with secrets redacted."""
        shown = SECRETS_IN_USE.fields(fields)
        line = " ".join([message, *(f"{name}={_field_text(value)}" for name, value in shown.items())])
        if self.write_line is not None:
            self.write_line(level, line)
        extra = {"node": self.node, "execution": self.blobs.execution, "fields": shown}
        _log.log(_LEVELS[level], "%s of %s: %s", self.node, self.blobs.execution, line, extra=extra)

    async def credential(self, *types: str, host: str | None = None) -> Credential | None:
        """Resolve the credential the node references, or return None if it references none.

        Fails the node unless the credential has one of these types and may be sent to this host.
        """
        if self.credentials is None:
            return None
        return await self._credential_use().credential(
            self.credentials, self.secret or self.resources.credentials, types, host
        )

    def protect(self, *values: str) -> None:
        """Redact further values, such as a fetched token, from everything this run records."""
        self._credential_use().protect(*values)

    def _credential_use(self) -> CredentialUse:
        if self.usage is None:
            self.usage = CredentialUse()
            self.blobs = RedactingBlobs(self.blobs, self.usage.redactor)
            self.progress = self.usage.redact(self.progress)
        return self.usage

    def rules(self, name: str) -> Rules:
        """Return a parameter that is a list of rules."""
        compiled = self.elements[name]
        assert isinstance(compiled, Rules)
        return compiled


ParameterModel = type[msgspec.Struct]
Behaviour = Callable[[NodeCall[Any]], Outcome | Awaitable[Outcome]]


class RunnableType(msgspec.Struct, frozen=True):
    """A node type that can run: its declaration, its parameter model and its behaviour.

    `lax` accepts numbers and booleans written as text. `builds` is false if outputs contain only values that were
    already checked as inputs, so they are not checked again. `reports` is true if runs may report progress or log.
    `modules` are imported by its first run, unless `import_modules` was called before: they are slow to import.
    """

    type: NodeType
    parameters: ParameterModel
    run: Behaviour
    lax: bool = False
    builds: bool = True
    reports: bool = False
    modules: tuple[str, ...] = ()


class Interruption(BaseException):
    """Raised by the runtime through a node. Not an Exception, so that it is not recorded as the node's outcome."""


def failure_of(error: BaseException) -> Failure:
    """Convert an exception raised by a node into its outcome. Message, details and traceback are bounded: an error is
    part of statuses, lists and completions, and is redacted as a whole."""
    if isinstance(error, RuneError):
        code = _code(_attribute(error, "code", "NODE_ERROR"))
        message = _message(_attribute(error, "message", error))
        if not isinstance(error, NodeFailure):
            return Failure(Error(code, message))
        permanent = _attribute(error, "permanent", None)
        details = _details(_attribute(error, "details", {}))
        known = permanent if isinstance(permanent, bool) else None
        return Failure(Error(code, message, details, permanent=known))
    name = _read(lambda: type(error).__name__, "exception")
    message = _message(f"{name}: {_text(error, MAX_MESSAGE_CHARS)}")
    return Failure(Error("NODE_ERROR", message, traceback=_read(lambda: traceback_of(error), "")))


def _attribute(error: BaseException, name: str, default: Any) -> Any:
    return _read(lambda: getattr(error, name), default)


def _read(read: Callable[[], T], default: T) -> T:
    """Return what the code of a node gives, such as the text of its exception, or the default if that code raises."""
    try:
        return read()
    except Interruption:
        raise
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return default


def bounded_error(error: Any) -> Any:
    """Return an error as an expression reads it, with message and details bounded. Of one that is no object nothing is
    kept."""
    if type(error) is not dict:
        return None
    bounds = {"code": _code, "message": _message, "details": _details}
    found = {name: bound(error[name]) for name, bound in bounds.items() if name in error}
    others = {name: value for name, value in error.items() if name not in found}
    return {**found, **_details(others)} if others else found


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception without the frames of the engine; empty if no other frame is left. Lines are
    dropped from its middle if it is too long."""
    found = traceback.TracebackException.from_exception(error)
    if not _drop_engine_frames(found):
        return ""
    # Redacted before it is cut: a secret that is cut in two would not be found. What is longer than all that can be
    # kept is cut before, at the ends of lines, since redaction takes time in proportion to the text.
    text = SECRETS_IN_USE.text(by_name(_text(_bounded("".join(found.format())))))
    first, *lines = text.splitlines(keepends=True)
    left = MAX_TRACEBACK_BYTES - len(first.encode()) - len(_OMITTED)
    kept: list[str] = []
    for line in reversed(lines):
        left -= len(line.encode())
        if left < 0:
            break
        kept.append(line)
    if len(kept) == len(lines):
        return "".join([first, *lines])
    # The exception itself may be longer than all frames: then its beginning is kept.
    end = "".join(reversed(kept)) or lines[-1].encode()[: MAX_TRACEBACK_BYTES // 2].decode("utf-8", "ignore")
    return f"{first}{_OMITTED}{end}"


def _bounded(text: str) -> str:
    """Return the first line of a traceback and what follows it, of the latter four times as much as is kept."""
    length = 4 * MAX_TRACEBACK_BYTES
    if len(text) <= length:
        return text
    first = text.index("\n") + 1
    last = text.rindex("\n", 0, -1) + 1
    start = text.find("\n", -length) + 1
    # The last line alone may be longer: then its beginning is kept.
    end = text[last : last + length] if start > last or not start else text[start:]
    return text[:first] + end


def _drop_engine_frames(found: traceback.TracebackException) -> bool:
    """Drop the frames of the engine from an exception and those that caused it. Return whether any frame is left."""
    left = False
    pending = [found]
    while pending:
        each = pending.pop()
        kept = [frame for frame in each.stack if not frame.filename.startswith(_ENGINE_FOLDER)]
        each.stack = traceback.StackSummary.from_list(kept)
        left = left or bool(kept)
        related = (each.__cause__, each.__context__, *(each.exceptions or ()))
        pending += [one for one in related if one is not None]
    return left


def _text(value: Any, length: int | None = None) -> str:
    """Return the text of a value, at most this many characters of it, without lone surrogates, so that it can be
    encoded."""
    return _read(lambda: str(value)[:length].encode("utf-8", "replace").decode(), NO_TEXT)


def _code(value: Any) -> str:
    return _cut(_text(value, MAX_CODE_CHARS + 1), MAX_CODE_CHARS)


def _message(value: Any) -> str:
    return _cut(_text(value, MAX_MESSAGE_CHARS + 1), MAX_MESSAGE_CHARS)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _details(value: Any) -> dict[str, Any]:
    """Return error details as JSON; a value that is not JSON becomes text. Details that are too large are cut."""
    members = value if type(value) is dict else {"value": value}
    try:
        size = _size(members)
    except RuneError:
        return {"text": _message(value)}
    return members if size <= MAX_DETAILS_BYTES else _fitting(members, MAX_DETAILS_BYTES)


def details_are_json(details: Any) -> bool:
    """Return whether error details are a JSON object that is not much larger than what is kept of it."""
    return type(details) is dict and _size_or_inf(details) < math.inf


def _fitting(members: dict[str, Any], left: float, depth: int = 1) -> dict[str, Any]:
    """Return what fits of the members of an object: those that are too large are cut if they are texts or objects, and
    the others are named in `omitted`."""
    kept: dict[str, Any] = {}
    omitted: list[str] = []
    for name, member in members.items():
        shown = member
        if type(shown) is str:
            shown = _cut(shown, MAX_MESSAGE_CHARS)
        size = _size_or_inf({name: shown})
        if size > left and type(shown) is dict and depth < MAX_DETAILS_DEPTH:
            shown = _fitting(shown, 0.9 * left, depth + 1)
            size = _size_or_inf({name: shown})
        if size <= left:
            kept[name] = shown
            left -= size
        elif len(omitted) < MAX_OMITTED:
            omitted.append(_cut(_text(name), MAX_CODE_CHARS))
        else:
            break
    return {**kept, "omitted": omitted} if omitted else kept


def _size(value: Any) -> float:
    """Return the length of a value as JSON; infinity if it is larger than details may be."""
    try:
        check_json(value, _DETAIL_LIMITS)
    except LimitExceededError:
        return math.inf
    return len(msgspec.json.encode(value))


def _size_or_inf(value: Any) -> float:
    try:
        return _size(value)
    except RuneError:
        return math.inf
