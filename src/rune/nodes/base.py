"""The boundary of a node: what leaves it is JSON, or it does not leave.

What a node is given and what it gives back. A node knows nothing of the engine.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from rune.core.definition.strict_json import has_lone_surrogate
from rune.core.execution.outcome import Error, Failure, Outcome
from rune.core.expr import Expression, Template
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import NodeType
from rune.core.plan.parameters import Element, Rules, evaluate
from rune.errors import LimitExceededError, NodeFailure, RuneError
from rune.nodes.blobs import NO_BLOBS, Blobs
from rune.nodes.credentials import CredentialResolver, CredentialUse, RedactingBlobs, Reference
from rune.nodes.redaction import SECRETS_IN_USE
from rune.nodes.resources import NO_RESOURCES, Resources
from rune.ports.credentials import Credential

NOT_JSON = "NOT_JSON"

_PLAIN = frozenset({int, bool, type(None)})


def check_json(value: Any, limits: Limits = LIMITS) -> None:
    """Refuse what is not JSON, is nested too deep, or could not be written within the output limit.

    Goes level by level, so that depth costs no stack; a value that holds itself ends at the depth limit.
    """
    # An element takes two bytes at least, which bounds the walk over a value that shares its parts.
    left = limits.output_bytes // 2
    level: list[Any] = [[value]]
    for _ in range(limits.json_depth + 1):
        below: list[Any] = []
        for container in level:
            left -= len(container)
            if left < 0:
                raise LimitExceededError("bytes of the output", limits.output_bytes)
            values = container
            if type(container) is dict:
                _check_keys(container)
                values = container.values()
            for each in values:
                kind = type(each)
                if kind is str:
                    if not each.isascii():
                        _check_text(each)
                elif kind is dict or kind is list:
                    below.append(each)
                elif kind not in _PLAIN:
                    _check_number(each, kind)
        if not below:
            return
        level = below
    raise LimitExceededError("nesting of the output", limits.json_depth)


def _check_text(value: str) -> None:
    if has_lone_surrogate(value):
        raise _refused("text with half of a surrogate pair")


def _check_number(value: Any, kind: type) -> None:
    if kind is not float:
        raise _refused(f"a value of type {kind.__name__}")
    if not math.isfinite(value):
        raise _refused(str(value))


def _check_keys(value: dict[Any, Any]) -> None:
    try:
        if "".join(value).isascii():
            return
    except TypeError:
        kinds = sorted({type(key).__name__ for key in value if not isinstance(key, str)})
        raise _refused(f"a key of type {kinds[0]}") from None
    if any(has_lone_surrogate(key) for key in value):
        raise _refused("a key with half of a surrogate pair")


def _refused(what: str) -> NodeFailure:
    return NodeFailure(f"the output holds {what}, which is not JSON", code=NOT_JSON)


_log = logging.getLogger("rune.node")

P = TypeVar("P")
Level = Literal["debug", "info", "warning", "error"]
Progress = Callable[[float | str], None]
Launch = Callable[[str, str | None, Any, bool], Awaitable[str]]
"""Starts another workflow, of which version, with what, and whether its end is waited for; answers its id."""
Arrivals = Callable[[], list[tuple[str, Any]]]
Entries = Callable[[], Iterable[tuple[bool, Any]]]
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


async def _no_launch(workflow: str, which: str | None, input: Any, waits: bool) -> str:
    raise RuntimeError("this call was given nothing to start executions with")


def _no_progress(what: float | str) -> None:
    """Nobody looks on."""


def _shown(value: Any) -> str:
    """A field of the log, on one line."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:200]


class NodeCall(Generic[P]):
    """One run of a node.

    `parameters` are resolved and typed. `scope` is what expressions see; `scope["$json"]` is the payload.
    `elements` are the parameters that the node itself evaluates. `arrivals()` are the live payloads at a join
    by predecessor id, in edge order; `entries()`, at an aggregator, whether each item failed and what it
    brought, in index order. `resumed` is true when what the node waited for has come: `due` is then the time
    it waited for, `signal` the payload of the signal. `idempotency_key` names the effect of this run, the same in
    every attempt; it is empty where the node said that it wants none. `world` is how anything outside is reached,
    `blobs` keeps bytes for the execution, `traceparent` is the W3C trace context for calls to others (empty where
    nobody traces), and `progress` tells whoever looks on how far the run is.
    """

    __slots__ = (
        "arrivals",
        "attempt",
        "blobs",
        "credentials",
        "due",
        "elements",
        "entries",
        "idempotency_key",
        "launch",
        "limits",
        "node",
        "now",
        "parameters",
        "progress",
        "resumed",
        "scope",
        "secret",
        "signal",
        "timer_id",
        "traceparent",
        "usage",
        "world",
    )

    def __init__(
        self,
        parameters: P,
        scope: Mapping[str, Any],
        *,
        now: int,
        node: str = "",
        elements: Mapping[str, Element] | None = None,
        arrivals: Arrivals = list,
        entries: Entries = list,
        attempt: int = 1,
        idempotency_key: str = "",
        resumed: bool = False,
        timer_id: str = "",
        due: int | None = None,
        signal: Any = None,
        limits: Limits = LIMITS,
        world: Resources | None = None,
        blobs: Blobs = NO_BLOBS,
        progress: Progress = _no_progress,
        credentials: Reference | None = None,
    ) -> None:
        self.parameters = parameters
        self.scope = scope
        self.now = now
        self.node = node
        self.elements = elements or {}
        self.arrivals = arrivals
        self.entries = entries
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        self.resumed = resumed
        self.timer_id = timer_id
        self.due = due
        self.signal = signal
        self.limits = limits
        self.world = world or NO_RESOURCES
        self.blobs = blobs
        self.progress = progress
        self.credentials = credentials
        self.usage: CredentialUse | None = None
        self.traceparent = ""
        self.secret: CredentialResolver | None = None  # where credentials are resolved, if not in the world
        self.launch: Launch = _no_launch

    @property
    def payload(self) -> Any:
        """What entered the node."""
        return self.scope["$json"]

    def evaluate(self, name: str, scope: Mapping[str, Any] | None = None) -> Any:
        """The value of a parameter that the node evaluates, in its own scope unless another is given."""
        compiled = self.elements[name]
        assert isinstance(compiled, Expression | Template)
        return evaluate(name, compiled, self.scope if scope is None else scope)

    def log(self, message: str, *, level: Level = "info", **fields: Any) -> None:
        """Write a line to the log of the worker."""
        shown = SECRETS_IN_USE.fields(fields)
        said = " ".join([message, *(f"{name}={_shown(value)}" for name, value in shown.items())])
        beside = {"node": self.node, "execution": self.blobs.execution, "fields": shown}
        _log.log(_LEVELS[level], "%s of %s: %s", self.node, self.blobs.execution, said, extra=beside)

    async def credential(self, *types: str, host: str | None = None) -> Credential | None:
        """The credential that the node names, resolved at this moment; None if it names none. It fails the node unless
        the credential is of one of these types and may be sent to this host."""
        if self.credentials is None:
            return None
        return await self._used().credential(self.credentials, self.secret or self.world.secret, types, host)

    def protect(self, *values: str) -> None:
        """Hide further values in whatever this run leaves behind, such as a token that was fetched."""
        self._used().protect(*values)

    def _used(self) -> CredentialUse:
        if self.usage is None:
            self.usage = CredentialUse()
            self.blobs = RedactingBlobs(self.blobs, self.usage.redactor)
            self.progress = self.usage.redact(self.progress)
        return self.usage

    def rules(self, name: str) -> Rules:
        """A parameter that is a list of rules."""
        compiled = self.elements[name]
        assert isinstance(compiled, Rules)
        return compiled


ParameterModel = type[msgspec.Struct]
Behaviour = Callable[[NodeCall[Any]], Outcome | Awaitable[Outcome]]


class RunnableType(msgspec.Struct, frozen=True):
    """A node type that can run: its declaration, its parameter model, its behaviour.

    `lax` takes numbers and booleans written as text. `builds` is false where an output holds nothing that was
    not checked when it entered, so that it need not be looked at again.
    """

    type: NodeType
    parameters: ParameterModel
    run: Behaviour
    lax: bool = False
    builds: bool = True


class Interruption(BaseException):
    """What the runtime itself raises through a node. Not an Exception, and no ending of the node."""


def failure_of(error: BaseException) -> Failure:
    """Whatever came out of a node, as the outcome it means."""
    if isinstance(error, NodeFailure):
        return Failure(Error(_text(error.code), _text(error.message), _details(error.details)))
    if isinstance(error, RuneError):
        return Failure(Error(error.code, _text(error.message)))
    return Failure(Error("NODE_ERROR", _text(f"{type(error).__name__}: {error}")))


def _text(value: Any) -> str:
    """Text that can be written down: half of a surrogate pair cannot."""
    return str(value).encode("utf-8", "replace").decode()


def _details(value: Any) -> dict[str, Any]:
    """Details that can be written down; what is not JSON is shown as text."""
    try:
        check_json(value)
    except RuneError:
        return {"text": _text(value)}
    return value if type(value) is dict else {"value": value}
