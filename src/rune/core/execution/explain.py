"""Explain what an open execution is waiting for, from its plan and state."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rune.core.definition.model import DEFAULT_QUEUE
from rune.core.execution.reasons import Waiting
from rune.core.execution.state import LiveToken, Scope, State, join_waits_since, paused_since
from rune.core.execution.token import Path, TokenPurpose, path_text
from rune.core.plan.model import NodePlan, Plan


class RunningAttempt(msgspec.Struct, frozen=True):
    """An attempt that a worker runs now, since a time (epoch ms). `progress` is what its node last reported."""

    worker: str
    since: int
    attempt: int
    progress: str = ""


class ActiveRuns(msgspec.Struct, frozen=True):
    """What workers run now, by node and path. Not `complete`: a worker did not answer. `queues`: those that workers
    receive from, None if there is one queue or it is unknown."""

    runs: Mapping[tuple[int, Path], RunningAttempt]
    now: int
    complete: bool = True
    queues: frozenset[str] | None = None


def expected_by(plan: Plan, state: State) -> int | None:
    """Return when an open execution is late, or since when; None if it cannot be."""
    if plan.expect_within is None or state.ended:
        return None
    return state.started_at + plan.expect_within


def explain(plan: Plan, state: State, active: ActiveRuns | None = None) -> list[Waiting]:
    """List everything that is open, outermost scope first. Without `active`, the tokens that run are unknown."""
    waiting: list[Waiting] = []
    for path in sorted(state.scopes):
        scope = state.scopes[path]
        waiting += [_explain_token(plan, scope, live, active) for _, live in sorted(scope.live.items())]
        waiting += _explain_joins(plan, state, scope)
        waiting += _explain_fans(plan, state, scope)
    return waiting


def _explain_token(plan: Plan, scope: Scope, live: LiveToken, active: ActiveRuns | None) -> Waiting:
    token = live.token
    running = None if active is None else active.runs.get((token.node, scope.path))
    if active is not None and running is not None:
        return _explain_running(plan, scope, token.node, running, active.now)
    if live.parked:
        reason = "parked by a pause"
    elif live.signal is not None:
        reason = f"waits for signal `{live.signal}`"
    elif live.waiting:
        retry = f"waits for its retry (attempt {token.attempt})"
        reason = "waits for its timer" if token.resumed else retry
    elif token.fate is TokenPurpose.DISPATCH:
        reason = "has more items to start"
    else:
        reason = _queued(active, plan.nodes[token.node].node.queue or DEFAULT_QUEUE)
    return Waiting(plan.ids[token.node], path_text(scope.path, plan.ids), reason, due=live.wakes_at)


def _explain_running(plan: Plan, scope: Scope, node: int, running: RunningAttempt, now: int) -> Waiting:
    lasted = max(0, now - running.since) / 1000
    progress = f": {running.progress}" if running.progress else ""
    return Waiting(
        plan.ids[node],
        path_text(scope.path, plan.ids),
        f"is running on worker {running.worker} for {lasted:.1f} s (attempt {running.attempt}){progress}",
        worker=running.worker,
        since=running.since,
        attempt=running.attempt,
        progress=running.progress or None,
    )


def _queued(active: ActiveRuns | None, queue: str) -> str:
    if active is None:
        return "is queued or running"
    if active.queues is not None and queue not in active.queues:
        return f"is queued: no worker serves the queue `{queue}`"
    return "is queued" if active.complete else "is queued, or runs on a worker that did not answer"


def _explain_joins(plan: Plan, state: State, scope: Scope) -> list[Waiting]:
    waiting: list[Waiting] = []
    for index, barrier in sorted(scope.barriers.items()):
        if barrier.opened:
            continue
        node = plan.nodes[index]
        names = {edge: plan.definition.edges[edge].id for edge in node.in_edges}
        waiting.append(
            Waiting(
                node.id,
                path_text(scope.path, plan.ids),
                f"waits for {'all' if node.opens == 'all' else 'enough'} of its {len(names)} edges",
                arrived=tuple(
                    names[edge] for edge, arrival in sorted(barrier.arrivals.items()) if arrival.alive
                ),
                skipped=tuple(
                    names[edge] for edge, arrival in sorted(barrier.arrivals.items()) if not arrival.alive
                ),
                missing=tuple(name for edge, name in names.items() if edge not in barrier.arrivals),
                due=_join_due(state, scope, node),
            )
        )
    return waiting


def _explain_fans(plan: Plan, state: State, scope: Scope) -> list[Waiting]:
    waiting: list[Waiting] = []
    for split, fan in sorted(scope.fans.items()):
        aggregator = plan.nodes[split].aggregator
        if aggregator < 0 or aggregator in scope.done or aggregator in scope.live:
            continue
        node = plan.nodes[aggregator]
        waiting.append(
            Waiting(
                node.id,
                path_text(scope.path, plan.ids),
                f"collects the items of `{plan.ids[split]}`",
                due=_join_due(state, scope, node),
                done=fan.resolved // len(node.in_edges),
                total=fan.count,
            )
        )
    return waiting


def _join_due(state: State, scope: Scope, node: NodePlan) -> int | None:
    since = join_waits_since(node, scope)
    if since is None or node.timeout is None:
        return None
    return since + node.timeout + paused_since(state, since)
