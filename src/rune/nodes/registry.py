"""The registry: every node type that can run, and how one is run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypedDict, Unpack

import msgspec

from rune.core import codes
from rune.core.limits import Limits
from rune.core.nodetype import Catalogue
from rune.core.outcome import Cancelled, Failure, FanOut, Outcome, Output, Suspend
from rune.core.parameters import Parameters
from rune.errors import NodeFailure, RuneError
from rune.nodes.base import Arrivals, Call, Entries, Interruption, Progress, RunnableType, failure_of
from rune.nodes.blobs import Blobs
from rune.nodes.boundary import check_json
from rune.nodes.catalogue import STANDARD_KINDS, catalogue
from rune.nodes.fit import told
from rune.nodes.usage import Reference
from rune.nodes.world import World
from rune.ports.journal import Ended, StoreAway, TokenEnded

_ENDINGS = (Output, Failure, Suspend, FanOut, Cancelled)


class UnknownNodeType(RuneError):
    """A node type that nothing here can run."""

    code = codes.UNKNOWN_TYPE


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
            raise UnknownNodeType(f"no node type `{name}` can run here")
        return self._kinds[self.catalogue[name].name]

    def extended(self, kinds: Iterable[RunnableType]) -> Registry:
        """A registry with these as well; a name that is taken is refused."""
        both = (*self, *kinds)
        catalogue(kind.type for kind in both)
        return Registry(both)


@cache
def standard_registry() -> Registry:
    """The node types that come with Rune."""
    return Registry(STANDARD_KINDS)


class Facts(TypedDict, total=False):
    """What a run is told besides its parameters and scope; see `Call`."""

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
    world: World | None
    blobs: Blobs
    progress: Progress
    credentials: Reference | None


def run_node(
    kind: RunnableType, compiled: Parameters, scope: Mapping[str, Any], *, now: int, **facts: Unpack[Facts]
) -> Outcome:
    """Resolve the parameters of a node that does not wait for I/O, and run it."""
    prepared = prepare(kind, compiled, scope, now=now, **facts)
    return prepared if isinstance(prepared, Failure) else execute(kind, prepared)


def prepare(
    kind: RunnableType, compiled: Parameters, scope: Mapping[str, Any], *, now: int, **facts: Unpack[Facts]
) -> Call[Any] | Failure:
    """The call of a node, parameters resolved and typed; or why there can be none."""
    try:
        values = typed(kind, compiled.resolve(scope))
    except RuneError as error:
        return failure_of(error)
    return Call(values, scope, now=now, elements=compiled.elements, **facts)


def typed(kind: RunnableType, values: Mapping[str, Any]) -> Any:
    """Resolved values as the type's parameter model; a value that does not fit fails the node."""
    try:
        return msgspec.convert(values, kind.parameters, strict=not kind.lax)
    except msgspec.ValidationError as error:
        message = told(error, "parameters")
    problems = kind.type.check(values, lambda text: False)
    if problems:
        message = f"parameters.{problems[0].path}: {problems[0].message}"
    raise NodeFailure(message, code=codes.BAD_PARAMETER)


def execute(kind: RunnableType, call: Call[Any]) -> Outcome:
    """Run a node that does not wait for I/O. Every ending is an outcome."""
    try:
        outcome = kind.run(call)
        assert isinstance(outcome, _ENDINGS), "a node that waits for I/O runs in execute_async"
        return _checked(kind, outcome, call)
    except Exception as error:
        return failure_of(error)
    except (Interruption, KeyboardInterrupt):
        raise
    except BaseException as error:  # `sys.exit` in a node is its own affair
        return failure_of(error)


async def execute_async(kind: RunnableType, call: Call[Any]) -> Outcome:
    """Run any node."""
    try:
        outcome = kind.run(call)
        return _checked(kind, outcome if isinstance(outcome, _ENDINGS) else await outcome, call)
    except (StoreAway, Ended, TokenEnded):
        raise  # an outage, or the end of the execution or of the token, is no ending of the node
    except Exception as error:
        return failure_of(error)
    except (Interruption, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        return failure_of(error)


def _is_cancelled() -> bool:
    """Whether it was the worker that was cancelled, and not something inside the node."""
    here = asyncio.current_task()
    return here is not None and here.cancelling() > 0


def _checked(kind: RunnableType, outcome: Outcome, call: Call[Any]) -> Outcome:
    if type(outcome) is Failure:
        error = outcome.error
        told = failure_of(NodeFailure(error.message, code=error.code, details=error.details)).error
        return Failure(msgspec.structs.replace(told, engine=error.engine))
    if kind.builds and isinstance(outcome, Output):
        check_json(outcome.value, call.limits)
    return outcome
