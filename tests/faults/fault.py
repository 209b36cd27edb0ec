"""A fault: a test, and the changes to the product that this test must detect."""

from __future__ import annotations

import types
from collections.abc import Callable
from heapq import heappop
from typing import Any, NamedTuple

from tests.faults.change import Change, replace


class Fault(NamedTuple):
    """A test and the changes that it must detect. `hangs`: it detects them by waiting in vain."""

    test: str
    changes: tuple[Change, ...]
    hangs: bool = False


def fault(test: str, *changes: Change, hangs: bool = False) -> Fault:
    """Build an entry of a table; the test waits a shorter time for an end that may never come."""
    return Fault(test, (*SHORT_DEADLINES, *changes), hangs)


def same(test: str, other: Fault) -> Fault:
    """Build an entry with the changes of another one, which this test must detect too."""
    return Fault(test, other.changes)


def _shorten_deadline(original: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function of the harness whose last argument is its deadline."""
    made = types.FunctionType(original.__code__, original.__globals__, original.__name__, (10.0,))
    made.__kwdefaults__ = original.__kwdefaults__
    return made


SHORT_DEADLINES = (
    replace("rune.testing.harness:Run.end", _shorten_deadline),
    replace("rune.testing.harness:Harness.settle", _shorten_deadline),
    replace("rune.testing.harness:Harness.wait_for", _shorten_deadline),
    replace("rune.testing.harness:Harness.until", _shorten_deadline),
)
"""The harness waits 10 s instead of 30 s. Installed with every fault."""


def _repeat_finished_node(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(plan: Any, state: Any, decision: Any) -> Any:
        """Forget for the moment that the node is finished."""
        scope = state.scopes.get(decision.path)
        if scope is None or decision.node not in scope.done:
            return original(plan, state, decision)
        scope.done.remove(decision.node)
        try:
            return original(plan, state, decision)
        finally:
            scope.done.add(decision.node)

    return apply


REPEAT_FINISHED_NODE = replace("rune.core.execution.transition:apply", _repeat_finished_node)
"""A decision about a node that is finished is applied again."""


def _run_finished_token(original: Callable[..., Any]) -> Callable[..., Any]:
    def touch(plan: Any, state: Any, token: Any, now: int) -> Any:
        verdict = original(plan, state, token, now)
        scope = state.scopes.get(token.path)
        if verdict == "void" or scope is None or token.node in scope.live or token.fate.name == "EXPIRE":
            return verdict
        return "run"

    return touch


RUN_FINISHED_TOKEN = replace("rune.core.execution.control:claim_verdict", _run_finished_token)
"""A token that is finished may run again."""


def _tolerate_duplicate(original: Callable[..., Any]) -> Callable[..., Any]:
    def _replay(fold: Any) -> Any:
        while fold._heap and (fold._heap[0][2], fold._heap[0][1]) not in fold._queued:
            heappop(fold._heap)
        return original(fold)

    return _replay


def _give_up_at_once(original: Any) -> Any:
    async def count(*_: Any) -> int:
        return 1_000

    return count


TOLERATE_DUPLICATE_IN_FOLD = replace("rune.core.execution.fold:_Fold._replay", _tolerate_duplicate)
"""Folding the history of a node that was emitted twice raises no error."""


NO_ENGINE_RETRY = replace("rune.runtime.worker.worker:Worker._count_engine_error", _give_up_at_once)
"""An error of the engine ends its execution at once; no test has to wait for the tries in between."""
