"""The registry of node types: built-in and custom types by name and alias, how they run, and their descriptions.

Custom types come from installed distributions (entry points) and from modules named in the settings.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache, lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType, ModuleType
from typing import Any, TypedDict, Unpack

import msgspec

from rune.core.definition import problems as codes
from rune.core.execution.outcome import Cancelled, Failure, FanOut, Outcome, Output, Suspend
from rune.core.expr.budget import Meter
from rune.core.limits import Limits
from rune.core.node_type import Catalogue, NodeType
from rune.core.plan.model import Parameters
from rune.errors import NodeFailure, RuneError
from rune.nodes.base import (
    Arrivals,
    Entries,
    Interruption,
    NodeCall,
    Progress,
    Resources,
    RunnableType,
    check_json,
    failure_of,
)
from rune.nodes.blobs import Blobs
from rune.nodes.control import (
    aggregator,
    conditional,
    fail,
    input,
    manual,
    merge,
    noop,
    output,
    schedule,
    split,
    switch,
    wait,
    webhook,
    workflow,
)
from rune.nodes.credentials import Reference
from rune.nodes.custom import kind_of
from rune.nodes.data import datetime, edit, filter, limit, log, sort
from rune.nodes.endings import is_ctrl_c, is_running
from rune.nodes.foreign_errors import failure_in_time, failure_off_loop, is_own
from rune.nodes.io import http, llm_service, smtp
from rune.nodes.schema import problem_text
from rune.off_loop import off_loop_in_turn
from rune.ports.journal import ExecutionEndedError, StoreUnavailableError, TokenEndedError

_HTTP_MODULES = (
    "idna",
    "mimetypes",
    "rune.nodes.io.http_client.client",
    "rune.nodes.io.http_client.exchange",
    "rune.nodes.io.http_client.ssrf",
)
_SCHEMA_MODULES = ("rune.documents.json_schema",)
_LLM_MODULES = (*_HTTP_MODULES, *_SCHEMA_MODULES)

STANDARD_KINDS: tuple[RunnableType, ...] = (
    RunnableType(manual.TYPE, manual.Parameters, manual.run, builds=False),
    RunnableType(input.TYPE, input.Parameters, input.run, builds=False),
    RunnableType(webhook.TYPE, webhook.Parameters, webhook.run, builds=False),
    RunnableType(schedule.TYPE, schedule.Parameters, schedule.run, builds=False, modules=("cronsim",)),
    RunnableType(conditional.TYPE, conditional.Parameters, conditional.run, builds=False),
    RunnableType(switch.TYPE, switch.Parameters, switch.run),
    RunnableType(split.TYPE, split.Parameters, split.run, builds=False),
    RunnableType(aggregator.TYPE, aggregator.Parameters, aggregator.run),
    RunnableType(merge.TYPE, merge.Parameters, merge.run),
    RunnableType(wait.TYPE, wait.Parameters, wait.run, builds=False, modules=_SCHEMA_MODULES),
    RunnableType(edit.TYPE, edit.Parameters, edit.run),
    RunnableType(filter.TYPE, filter.Parameters, filter.run),
    RunnableType(sort.TYPE, sort.Parameters, sort.run),
    RunnableType(limit.TYPE, limit.Parameters, limit.run),
    RunnableType(datetime.TYPE, datetime.Parameters, datetime.run, builds=False),
    RunnableType(log.TYPE, log.Parameters, log.run),
    RunnableType(workflow.TYPE, workflow.Parameters, workflow.run),
    RunnableType(noop.TYPE, noop.Parameters, noop.run, builds=False),
    RunnableType(fail.TYPE, fail.Parameters, fail.run, builds=False),
    RunnableType(output.TYPE, output.Parameters, output.run),
    RunnableType(http.TYPE, http.Parameters, http.run, lax=True, modules=_HTTP_MODULES),
    RunnableType(smtp.TYPE, smtp.Parameters, smtp.run, modules=("aiosmtplib", "idna")),
    RunnableType(
        llm_service.TYPE,
        llm_service.Parameters,
        llm_service.run,
        reports=True,
        modules=_LLM_MODULES,
    ),
)
"""Types that build outputs from payloads and expressions are checked again: the output nests deeper than its parts."""

STANDARD: tuple[NodeType, ...] = tuple(kind.type for kind in STANDARD_KINDS)
ENTRY_POINT_GROUP = "rune.nodes"

_OUTCOMES = (Output, Failure, Suspend, FanOut, Cancelled)


LATER = ("re2", "rune.nodes.named_secrets", "rune.nodes.cancellation", "rune.nodes.threads")
"""What is imported for the first pattern, for the first message of a node, and for the first custom node."""


def import_modules() -> None:
    """Import what nodes import in their first run. A process that works for long calls it before it receives: an import
    blocks the event loop, that of aiohttp for a third of a second."""
    for name in LATER:
        importlib.import_module(name)
    for kind in STANDARD_KINDS:
        for name in kind.modules:
            importlib.import_module(name)


class UnknownNodeTypeError(RuneError):
    """The node type is not registered in this process."""

    code = codes.UNKNOWN_TYPE


class NodeModuleError(RuneError):
    """A module of node types cannot be used."""

    code = "BAD_NODE_MODULE"


def has_outside_effects(kind: RunnableType, parameters: Mapping[str, Any]) -> bool:
    """Return whether a node acts on something outside of the engine."""
    if kind.run.__module__.startswith(("rune.nodes.control", "rune.nodes.data")):
        return False
    try:
        return bool(kind.type.effectful(parameters))
    except (KeyError, TypeError, ValueError):
        return True


def catalogue(types: Iterable[NodeType]) -> Catalogue:
    """Index node types by name and alias; a duplicate name is an error."""
    found: dict[str, NodeType] = {}
    for each in types:
        for name in (each.name, *each.aliases):
            if name in found:
                raise ValueError(f"two node types are named `{name}`")
            found[name] = each
    return MappingProxyType(found)


@cache
def standard_catalogue() -> Catalogue:
    """Return the catalogue of built-in node types."""
    return catalogue(STANDARD)


class Registry:
    """Node types by name and alias."""

    def __init__(self, kinds: Iterable[RunnableType]) -> None:
        self._kinds = {kind.type.name: kind for kind in kinds}
        self.catalogue: Catalogue = catalogue(kind.type for kind in self)

    def __iter__(self) -> Iterator[RunnableType]:
        return iter(self._kinds.values())

    def __contains__(self, name: object) -> bool:
        return name in self.catalogue

    def __getitem__(self, name: str) -> RunnableType:
        if name not in self:
            raise UnknownNodeTypeError(f"unknown node type `{name}`")
        return self._kinds[self.catalogue[name].name]

    def extended(self, kinds: Iterable[RunnableType]) -> Registry:
        """Return a registry with further types; a duplicate name is an error."""
        both = (*self, *kinds)
        catalogue(kind.type for kind in both)
        return Registry(both)


@cache
def standard_registry() -> Registry:
    """Return the registry of built-in node types."""
    return Registry(STANDARD_KINDS)


class CallOptions(TypedDict, total=False):
    """Arguments of a run besides its parameters and scope; see `NodeCall`."""

    node: str
    arrivals: Arrivals
    entries: Entries
    attempt: int
    idempotency_key: str
    resumed: bool
    timer_id: str
    due: int | None
    signal: Any
    limits: Limits
    resources: Resources
    blobs: Blobs
    progress: Progress
    credentials: Reference | None


def run_node(
    kind: RunnableType,
    compiled: Parameters,
    scope: Mapping[str, Any],
    *,
    now: int,
    **options: Unpack[CallOptions],
) -> Outcome:
    """Resolve the parameters of a synchronous node and run it."""
    prepared = prepare(kind, compiled, scope, now=now, **options)
    return prepared if isinstance(prepared, Failure) else execute(kind, prepared)


def prepare(
    kind: RunnableType,
    compiled: Parameters,
    scope: Mapping[str, Any],
    *,
    now: int,
    **options: Unpack[CallOptions],
) -> NodeCall[Any] | Failure:
    """Resolve and type the parameters of a node; return its call, or the failure."""
    try:
        values = typed(kind, compiled.resolve(scope))
    except RuneError as error:
        return failure_of(error)
    return NodeCall(values, scope, now=now, elements=compiled.elements, **options)


def typed(kind: RunnableType, values: Mapping[str, Any]) -> Any:
    """Convert resolved values to the type's parameter model; an invalid value fails the node."""
    try:
        return msgspec.convert(values, kind.parameters, strict=not kind.lax)
    except msgspec.ValidationError as error:
        message = problem_text(error, "parameters")
    problems = kind.type.check(values, lambda text: False)
    if problems:
        message = f"parameters.{problems[0].path}: {problems[0].message}"
    raise NodeFailure(message, code=codes.BAD_PARAMETER)


def execute(
    kind: RunnableType,
    call: NodeCall[Any],
    failure_of_foreign: Callable[[BaseException], Failure] = failure_in_time,
) -> Outcome:
    """Run a synchronous node. Every way it ends is converted to an outcome, exceptions of other code by the given
    function."""

    def failure_by(error: BaseException) -> Failure:
        return failure_of(error) if is_own(error) else failure_of_foreign(error)

    try:
        outcome = kind.run(call)
        assert isinstance(outcome, _OUTCOMES), "an asynchronous node runs in execute_async"
        if type(outcome) is Failure:
            return _cleaned(outcome, failure_by(_raised(outcome)))
        return _checked(kind, outcome, call)
    except Interruption:
        raise
    # `sys.exit` in a node fails the node, not the worker.
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return failure_by(error)


async def execute_async(kind: RunnableType, call: NodeCall[Any]) -> Outcome:
    """Run a synchronous or asynchronous node. Every way it ends is converted to an outcome.

    Nothing but an Exception may leave a coroutine of a task unless the task is to end: asyncio raises KeyboardInterrupt
    and SystemExit again out of the event loop, and a slot of the worker ends with its task.
    """
    task = _current_task()
    try:
        outcome = kind.run(call)
        if not isinstance(outcome, _OUTCOMES):
            outcome = await outcome
        if type(outcome) is Failure:
            return _cleaned(outcome, await _failure_by(_raised(outcome), task))
        return _checked(kind, outcome, call) if task is None else await _checked_off_loop(kind, outcome, call)
    except (StoreUnavailableError, ExecutionEndedError, TokenEndedError, Interruption):
        # A store outage, or the end of the execution or token, is not an outcome of the node.
        raise
    except BaseException as error:
        if is_ctrl_c(error) or _ends_task(error, task):
            raise
        return await _failure_by(error, task)


async def _failure_by(error: BaseException, task: asyncio.Task[Any] | None) -> Failure:
    """Return the outcome of a node that raised."""
    if is_own(error):
        return failure_of(error)
    return failure_in_time(error) if task is None else await failure_off_loop(error)


def _current_task() -> asyncio.Task[Any] | None:
    """Return the task that runs the node; None in a simulation, which has no event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _ends_task(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether the worker cancelled the task or the interpreter closes its coroutine, as opposed to the same
    exception raised by the node."""
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) and not is_running(task)


def _raised(outcome: Failure) -> NodeFailure:
    """Return what a node would have raised instead of returning its failure."""
    error = outcome.error
    return NodeFailure(error.message, code=error.code, details=error.details)


def _cleaned(outcome: Failure, bounded: Failure) -> Failure:
    """Return the failure that a node returned, with what is kept of its texts."""
    error = outcome.error
    return Failure(msgspec.structs.replace(bounded.error, engine=error.engine, permanent=error.permanent))


def _checked(kind: RunnableType, outcome: Outcome, call: NodeCall[Any]) -> Outcome:
    if kind.builds and isinstance(outcome, Output):
        check_json(outcome.value, call.limits, call.meter)
    return outcome


MAX_CHECK_NS = 10_000_000
"""An output whose check is estimated to take longer is checked in a thread."""


class _LongCheckInterruption(Interruption):
    """The check of an output takes long."""


def _interrupt(cost: int) -> int:
    raise _LongCheckInterruption


async def _checked_off_loop(kind: RunnableType, outcome: Outcome, call: NodeCall[Any]) -> Outcome:
    """Check an output as `_checked` does: a large one again in a thread."""
    if kind.builds and isinstance(outcome, Output):
        try:
            check_json(outcome.value, call.limits, Meter(MAX_CHECK_NS, _interrupt))
        except _LongCheckInterruption:
            await off_loop_in_turn(partial(check_json, outcome.value, call.limits))
    return outcome


def described(registry: Registry) -> list[dict[str, Any]]:
    """Describe every type of the registry, once each."""
    known = {each.name: each for each in registry.catalogue.values()}
    return [describe(registry, each) for each in known.values()]


def describe(registry: Registry, each: NodeType) -> dict[str, Any]:
    """Describe a node type. `parameters` is a JSON Schema; `outlets` and `effectful` assume default parameters."""
    return {
        "type": each.name,
        "aliases": list(each.aliases),
        "summary": each.summary,
        "doc": each.doc,
        "output": each.output,
        "output_schema": None if each.output_schema is None else dict(each.output_schema),
        "category": each.category,
        "icon": each.icon,
        "widgets": _widgets(each),
        "credential_types": list(each.credential_types),
        "errors": dict(each.errors),
        "error_classes": {code: each.error_class(code) for code in each.errors},
        "outlets": _outlets(each),
        "trigger": each.trigger,
        "effectful": _effectful(each),
        "fans_out": each.fans_out,
        "gathers_items": each.joins_items,
        "waits": each.suspends,
        "runnable": each.name in registry,
        "parameters": dict(each.schema),
    }


def _widgets(each: NodeType) -> dict[str, str]:
    """Return the declared widgets; other parameters that are one expression get that widget."""
    found = {name: "expression" for name, kind in each.kinds.items() if kind in {"expression", "element"}}
    return found | dict(each.widgets)


def _outlets(each: NodeType) -> list[str]:
    try:
        return list(each.outlets({}))
    except (KeyError, TypeError, ValueError):
        return []


def _effectful(each: NodeType) -> bool:
    try:
        return bool(each.effectful({}))
    except (KeyError, TypeError, ValueError):
        return False


def load_module(name: str) -> tuple[RunnableType, ...]:
    """Import a module and return the node types in it."""
    try:
        with redirect_stdout(sys.stderr):
            module = importlib.import_module(name)
    # A script that calls `sys.exit` on import would end the process silently.
    except (Exception, SystemExit) as error:
        raise NodeModuleError(
            f"module `{name}` cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return _kinds_in(module, f"module `{name}`")


def installed() -> tuple[RunnableType, ...]:
    """Return the node types of installed distributions, from the entry-point group `rune.nodes`."""
    return tuple(kind for each in _entry_points(tuple(sys.path)) for kind in _load(each))


@lru_cache(maxsize=4)
def _entry_points(folders: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of node types in the folders of the import path. They are read once: the metadata of all
    distributions takes milliseconds."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def full_registry(modules: Iterable[str] = ()) -> Registry:
    """Return a registry of built-in types, installed types and types of the named modules."""
    found = {id(kind): kind for kind in installed()}
    found.update((id(kind), kind) for name in modules for kind in load_module(name))
    try:
        return standard_registry().extended(found.values())
    except ValueError as error:
        raise NodeModuleError(str(error)) from error


def _load(point: EntryPoint) -> tuple[RunnableType, ...]:
    place = f"entry point `{point.name} = {point.value}`"
    try:
        with redirect_stdout(sys.stderr):
            target: Any = point.load()
    except (Exception, SystemExit) as error:
        raise NodeModuleError(f"{place} cannot be loaded: {type(error).__name__}: {error}") from error
    return _kinds_in(target, place)


def _kinds_in(target: Any, place: str) -> tuple[RunnableType, ...]:
    """Return the node types of a module, or of one decorated function."""
    candidates = vars(target).values() if isinstance(target, ModuleType) else (target,)
    found = {id(kind): kind for each in candidates if (kind := kind_of(each)) is not None}
    if not found:
        raise NodeModuleError(f"{place} has no function decorated with @node")
    return tuple(found.values())
