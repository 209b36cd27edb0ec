"""The context of a custom node: what its function may know of its run, and what it may ask for.

Threads for functions that block. One that never returns holds up neither the loop nor the end of the process.

Node types from plain functions.

    @node("acme.score")
    async def score(ctx: NodeContext, customer_id: str, weight: float = 1.0) -> dict[str, Any]:
        \"\"\"Scores a customer.\"\"\"

The function stays what it was and can be called and tested as such; its node kind is `kind_of(score)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import inspect
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar, get_type_hints

import msgspec

from rune.core.execution.outcome import Failure, FanOut, Outcome, Output, Suspend
from rune.errors import NodeFailure
from rune.nodes.base import NOT_JSON, Level, NodeCall, RunnableType
from rune.nodes.blobs import Blobs
from rune.nodes.schema import Model, declare

T = TypeVar("T")


class NodeContext:
    """One run of a custom node.

    `node` is its id, `payload` what entered it, `attempt` which try this is (from 1), `now` the time of the
    execution in epoch milliseconds. `idempotency_key` names the effect: the same in every attempt, so that whoever is
    called can tell a repetition; empty if the node wants none. `traceparent` is the W3C trace context to send along
    with calls to others; empty where nobody traces.
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
        """Keeps bytes that are too large or too binary to return: `put(data, name, content_type)` gives a reference
        that can be part of the output, `get(reference)` the bytes. Both are awaited."""
        return self._call.blobs

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this run any more: it took too long, its execution has ended, or the worker stops.
        A function without `await` cannot be interrupted; it may look here between two steps and return."""
        return self._cancelled

    def progress(self, what: float | str) -> None:
        """Tell whoever looks on how far it is: a share between 0 and 1, or a few words. Nothing is kept of it."""
        self._call.progress(what)

    def log(self, message: str, *, level: Level = "info", **fields: Any) -> None:
        """Write a line to the log of the worker, with the node and its execution beside it."""
        self._call.log(message, level=level, **fields)

    async def credential(self) -> Any:
        """The credential that the node names, resolved at this moment; None if it names none."""
        return await self._call.credential()

    def wait(self, asked: Coroutine[Any, Any, T]) -> T:
        """For functions without `await`: `ctx.wait(ctx.blob.get(reference))` blocks the thread until it is there."""
        if self._loop is None or self._cancelled:
            asked.close()
            if self._cancelled:
                raise NodeFailure("nobody waits for this run any more", code="CANCELLED")
            raise RuntimeError(
                "only a function that runs in a thread can wait so; elsewhere there is `await`"
            )
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

    def abandon(self) -> None:
        """From now on `cancelled` is true."""
        self._cancelled = True


async def in_thread(function: Callable[[], T], abandon: Callable[[], None]) -> T:
    """What the function gives. If the wait for it is cancelled, `abandon` is called and the thread left to itself.

    The threads of a pool are waited for when the interpreter ends, for as long as it takes; these are not. How many
    there are is bounded by the slots of the worker.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except (
            BaseException
        ) as raised:  # whatever it is, it is the function's, and whoever waits must hear of it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=body, name="rune-node", daemon=True).start()
    try:
        return await ended
    except asyncio.CancelledError:
        abandon()
        raise


__all__ = ["NodeContext", "kind_of", "node"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_KIND = "__rune_node__"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

F = TypeVar("F", bound=Callable[..., Any])


def node(name: str, *, effectful: bool = True, **traits: Any) -> Callable[[F], F]:
    """Make a function a node type. Its arguments are the parameters, its docstring the documentation.

    With `effectful=False` the function promises to reach nothing outside and to give the same again. `traits`
    are further fields of the node type, such as `aliases` or `errors`.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"`{name}` is no name for a node type; for example `acme.score`")

    def decorate(function: F) -> F:
        setattr(function, _KIND, _kind(name, function, effectful, traits))
        return function

    return decorate


def kind_of(function: Any) -> RunnableType | None:
    """The node kind of a decorated function; None for anything else."""
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
        "output": "What the function returns.",
        "effectful": lambda parameters: effectful,
        "reads_payload": lambda parameters: wants_context,
        **traits,
    }
    lax = bool(facts.pop("lax", False))
    declared = declare(name, model, lax=lax, **facts)
    return RunnableType(declared, model, _behaviour(function, model, wants_context, effectful), lax)


def _arguments(name: str, function: Callable[..., Any]) -> tuple[list[inspect.Parameter], bool]:
    """The arguments that are parameters, and whether the first one is the context."""
    hints = get_type_hints(function, include_extras=True)
    found = [
        each.replace(annotation=hints.get(each.name, Any))
        for each in inspect.signature(function).parameters.values()
    ]
    wants_context = bool(found) and found[0].annotation is NodeContext
    arguments = found[1:] if wants_context else found
    for each in arguments:
        if each.kind not in _NAMED:
            raise TypeError(f"node `{name}`: argument `{each.name}` cannot be given by name")
        if each.annotation is NodeContext:
            raise TypeError(f"node `{name}`: the context is the first argument, not `{each.name}`")
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
            return invoke(call, context)
        except StopIteration as error:
            # A future cannot hold it: whoever waits for the thread would wait for ever.
            raise RuntimeError("the function raised StopIteration") from error

    async def run_async(call: NodeCall[Any]) -> Outcome:
        return _outcome(await invoke(call, NodeContext(call) if wants_context else None))

    async def run_in_thread(call: NodeCall[Any]) -> Outcome:
        # A function that reaches outside without `await` would hold up everything else of its worker.
        context = NodeContext(call, asyncio.get_running_loop()) if wants_context else None
        abandon = context.abandon if context is not None else _nothing
        return _outcome(await in_thread(lambda: guarded(call, context), abandon))

    def run(call: NodeCall[Any]) -> Outcome:
        return _outcome(invoke(call, NodeContext(call) if wants_context else None))

    if inspect.iscoroutinefunction(function):
        return run_async
    return run_in_thread if effectful else run


def _nothing() -> None:
    """A function without a context cannot be told."""


def _outcome(result: Any) -> Outcome:
    """What a function returned: an outcome, or a value; structs, dataclasses, tuples, dates become JSON."""
    if isinstance(result, Output | Failure | Suspend | FanOut):
        return result
    try:
        return Output(_listed(msgspec.to_builtins(result)))
    except (TypeError, RecursionError) as error:
        raise NodeFailure(f"what the function returned is not JSON: {error}", code=NOT_JSON) from error


def _listed(value: Any) -> Any:
    """The value with lists for tuples, which the conversion before leaves alone."""
    kind = type(value)
    if kind is list or kind is tuple:
        return [_listed(each) for each in value]
    if kind is dict:
        return {key: _listed(each) for key, each in value.items()}
    return value
