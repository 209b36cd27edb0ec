"""Custom node types made from plain functions.

    @node("acme.score")
    async def score(ctx: NodeContext, customer_id: str, weight: float = 1.0) -> dict[str, Any]:
        \"\"\"Scores a customer.\"\"\"

A decorated function can be called and tested as before; `kind_of(score)` returns its node type. Inside of `with flow:`
of `rune.build`, `score.node("id", …)` adds a node, and so does a call whose only positional argument is a text, the id.
Blocking functions run in threads that delay neither the event loop nor the exit of the process.

The node types cannot import the builder, which is above them: `rune.build` registers itself here when it is imported.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, get_type_hints, overload

import msgspec

from rune.core.execution.outcome import Failure, FanOut, Outcome, Output, Suspend
from rune.errors import NodeFailure
from rune.nodes.attempt_log import attempt_log
from rune.nodes.base import NOT_JSON, Level, NodeCall, RunnableType
from rune.nodes.blobs import Blobs
from rune.nodes.schema import Model, declare

if TYPE_CHECKING:
    import asyncio

Placer = Callable[[Any, str, Mapping[str, Any]], Any]
"""Add a node to the open workflow, given its type, id and keywords."""

_placers: list[tuple[Placer, Callable[[], bool]]] = []


def register_placer(placer: Placer, is_open: Callable[[], bool]) -> None:
    """Set what places custom nodes, and what tells whether a workflow is open."""
    _placers[:] = [(placer, is_open)]


def is_workflow_open() -> bool:
    """Return whether the caller is inside of `with flow:`."""
    return bool(_placers) and _placers[0][1]()


def place_custom(kind: Any, id: str, keywords: Mapping[str, Any]) -> Any:
    """Add a node of a custom type to the open workflow."""
    if not _placers:
        raise RuntimeError(
            f"node `{id}` is placed in a workflow: import rune.build and write `with flow:` around it"
        )
    return _placers[0][0](kind, id, keywords)


__all__ = ["NodeContext", "kind_of", "node"]

T = TypeVar("T")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_KIND = "__rune_node__"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class NodeContext:
    """One run of a custom node.

    `node` is the node id, `payload` the value it received, `attempt` the number of the attempt (from 1), `now` the
    time of the execution in epoch milliseconds. `idempotency_key` identifies the effect and is the same in every
    attempt, so that the called service can detect a repetition; it is empty if the node disabled it. `traceparent`
    is the W3C trace context for outgoing calls; empty without tracing.
    """

    def __init__(self, call: NodeCall[Any], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.node = call.node
        self.payload = call.payload
        self.attempt = call.attempt
        self.now = call.now
        self.idempotency_key = call.idempotency_key
        self.traceparent = call.traceparent
        self._call = call
        self._loop = loop
        self._cancelled = False

    @property
    def blob(self) -> Blobs:
        """Blob storage for large or binary values.

        `await put(data, name, content_type)` returns a reference that can be part of the output,
        `await get(reference)` returns the bytes.
        """
        return self._call.blobs

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled: it timed out, its execution ended, or the worker is stopping.

        A function without `await` cannot be interrupted; it can check this between steps and return.
        """
        return self._cancelled

    def progress(self, what: float | str) -> None:
        """Publish progress to subscribers: a fraction between 0 and 1, or a short text. It is not stored."""
        self._call.progress(what)

    def log(self, message: str, *, level: Level = "info", **fields: Any) -> None:
        """Write a line to the log of the attempt and to the worker's log, with the node and its execution as
        fields."""
        self._call.log(message, level=level, **fields)

    async def credential(self) -> Any:
        """Resolve the credential the node references, or return None if it references none."""
        return await self._call.credential()

    def wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Wait in a function without `await`: `ctx.wait(ctx.blob.get(reference))` blocks the thread for the result."""
        from rune.nodes import threads  # noqa: PLC0415 - writing a workflow needs no event loop

        if self._loop is None or self._cancelled:
            awaitable.close()
            if self._cancelled:
                raise NodeFailure("the run was cancelled", code="CANCELLED")
            raise RuntimeError("`wait` works only in functions that run in a thread; use `await` instead")
        return threads.wait_for(awaitable, self._loop)

    def abandon(self) -> None:
        """Set `cancelled`."""
        self._cancelled = True


class NodeFunction(Protocol[P, R_co]):
    """A decorated function: called directly it is the function it was; `node` places it in a workflow, as does a call
    with an id inside of `with flow:`."""

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, id: str, /, **parameters: Any) -> Any: ...

    def node(self, id: str, /, **parameters: Any) -> Any:
        """Add a node of this type to the open workflow of `rune.build`."""


def node(
    name: str, *, effectful: bool = True, **traits: Any
) -> Callable[[Callable[P, R_co]], NodeFunction[P, R_co]]:
    """Make a function a node type. Its arguments become the parameters, its docstring the documentation.

    `effectful=False` declares a pure function: no external effects and the same result for the same input.
    `traits` are further fields of the node type, such as `aliases`, `errors`, or `permanent`: the error codes that
    `retry` does not cover.
    """
    _check_name(name)

    def decorate(function: Callable[P, R_co]) -> NodeFunction[P, R_co]:
        kind = _kind(name, function, effectful, traits)
        made: Any = _placeable(function, kind)
        setattr(made, _KIND, kind)
        made.node = partial(_place, kind)
        return cast("NodeFunction[P, R_co]", made)

    return decorate


def define_kind(name: str, function: Callable[..., Any], *, effectful: bool) -> RunnableType:
    """Make a function a node type as `node` does, and leave it the function it is, also in an open workflow."""
    _check_name(name)
    kind = _kind(name, function, effectful, {})
    setattr(function, _KIND, kind)
    return kind


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"`{name}` is not a valid node type name; for example `acme.score`")


def _placeable(function: Callable[..., Any], kind: RunnableType) -> Callable[..., Any]:
    """Return a function that adds a node if it is called with an id inside of an open workflow, and calls the given one
    otherwise."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], str) and is_workflow_open():
            return place_custom(kind, args[0], keywords)
        return function(*args, **keywords)

    if sys.version_info >= (3, 12) and inspect.iscoroutinefunction(function):
        inspect.markcoroutinefunction(call)
    return call


def _place(kind: RunnableType, id: str, /, **keywords: Any) -> Any:
    return place_custom(kind, id, keywords)


def kind_of(function: Any) -> RunnableType | None:
    """Return the node type of a decorated function; None for anything else."""
    found = getattr(function, _KIND, None) if callable(function) else None
    return found if isinstance(found, RunnableType) else None


def _kind(
    name: str, function: Callable[..., Any], effectful: bool, traits: Mapping[str, Any]
) -> RunnableType:
    arguments, wants_context = _arguments(name, function)
    model = _model(name, function, arguments)
    doc = inspect.getdoc(function) or ""
    facts: dict[str, Any] = {
        "summary": doc.partition("\n")[0],
        "doc": doc,
        "output": "The return value of the function.",
        "effectful": lambda parameters: effectful,
        "reads_payload": lambda parameters: wants_context,
        **traits,
    }
    lax = bool(facts.pop("lax", False))
    facts["permanent"] = frozenset(facts.get("permanent", ()))
    declared = declare(name, model, lax=lax, **facts)
    behaviour = _behaviour(function, model, wants_context, effectful)
    return RunnableType(declared, model, behaviour, lax, reports=True)


def _arguments(name: str, function: Callable[..., Any]) -> tuple[list[inspect.Parameter], bool]:
    """Return the arguments that are parameters, and whether the function takes a context first."""
    hints = get_type_hints(function, include_extras=True)
    found = [
        each.replace(annotation=hints.get(each.name, Any))
        for each in inspect.signature(function).parameters.values()
    ]
    wants_context = bool(found) and found[0].annotation is NodeContext
    arguments = found[1:] if wants_context else found
    for each in arguments:
        if each.kind not in _NAMED:
            raise TypeError(f"node `{name}`: argument `{each.name}` cannot be passed by name")
        if each.annotation is NodeContext:
            raise TypeError(f"node `{name}`: the context must be the first argument, not `{each.name}`")
    return arguments, wants_context


def _model(
    name: str, function: Callable[..., Any], arguments: list[inspect.Parameter]
) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for each in arguments:
        if each.default is inspect.Parameter.empty:
            fields.append((each.name, each.annotation))
        else:
            fields.append((each.name, each.annotation, _default(each.default)))
    try:
        model = msgspec.defstruct(
            "Parameters",
            fields,
            bases=(Model,),
            module=function.__module__,
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
        )
        msgspec.json.schema(model)
    except TypeError as error:
        raise TypeError(f"node `{name}`: {error}") from error
    return model


def _default(value: Any) -> Any:
    if isinstance(value, list | dict | set):
        return msgspec.field(default_factory=lambda: copy.deepcopy(value))
    return value


def _behaviour(
    function: Callable[..., Any], model: type[msgspec.Struct], wants_context: bool, effectful: bool
) -> Callable[[NodeCall[Any]], Any]:
    names = model.__struct_fields__

    def invoke(call: NodeCall[Any], context: NodeContext | None) -> Any:
        values = {name: getattr(call.parameters, name) for name in names}
        return function(**values) if context is None else function(context, **values)

    def guarded(call: NodeCall[Any], context: NodeContext | None) -> Any:
        try:
            with attempt_log(call.write_line):
                return invoke(call, context)
        except StopIteration as error:
            # A coroutine cannot raise StopIteration.
            raise RuntimeError("the function raised StopIteration") from error

    async def run_async(call: NodeCall[Any]) -> Outcome:
        from rune.nodes.cancellation import Stoppable  # noqa: PLC0415 - writing a workflow needs no event loop

        with attempt_log(call.write_line):
            return _outcome(await Stoppable(invoke(call, NodeContext(call) if wants_context else None)))

    async def run_in_thread(call: NodeCall[Any]) -> Outcome:
        from rune.nodes import threads  # noqa: PLC0415 - asyncio is a third of the time of `import rune.build`

        # A function with effects but without `await` would block the event loop of the worker.
        context = NodeContext(call, threads.running_loop()) if wants_context else None
        abandon = context.abandon if context is not None else _ignore
        return _outcome(await threads.in_thread(lambda: guarded(call, context), abandon))

    def run(call: NodeCall[Any]) -> Outcome:
        with attempt_log(call.write_line):
            return _outcome(invoke(call, NodeContext(call) if wants_context else None))

    if inspect.iscoroutinefunction(function):
        return run_async
    return run_in_thread if effectful else run


def _ignore() -> None:
    """Do nothing: a function without a context cannot observe its cancellation."""


def _outcome(result: Any) -> Outcome:
    """Convert a return value into an outcome; structs, dataclasses, tuples and dates become JSON."""
    if isinstance(result, Output | Failure | Suspend | FanOut):
        return result
    try:
        return Output(_tuples_to_lists(msgspec.to_builtins(result)))
    except (TypeError, RecursionError) as error:
        raise NodeFailure(f"the return value is not JSON: {error}", code=NOT_JSON) from error


def _tuples_to_lists(value: Any) -> Any:
    """Replace tuples by lists, which `msgspec.to_builtins` does not do."""
    kind = type(value)
    if kind is list or kind is tuple:
        return [_tuples_to_lists(each) for each in value]
    if kind is dict:
        return {key: _tuples_to_lists(each) for key, each in value.items()}
    return value
