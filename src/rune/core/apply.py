"""Apply: what follows from a decision, in one atomic act on the state.

A twin of a decision changes nothing. A decision about a token that the state has never heard of changes
nothing either and says so: the state is behind the journal and must be folded.
"""

from __future__ import annotations

from msgspec.structs import replace

from rune.core.effect import Applied, Decision, Timer
from rune.core.fact import Attempt, Choice, Result, Suspension
from rune.core.lineage import ROOT
from rune.core.plan import NodePlan, Plan
from rune.core.retry import retry_due
from rune.core.routing import follow
from rune.core.state import Live, Scope, State, in_cancelled_region, own_timer, started
from rune.core.token import START, Fate, Token, token_name
from rune.core.transition import Transition


def begin(plan: Plan, state: State, at: int) -> Applied:
    """Start an execution: triggers have run by being triggered, every other entry gets its token."""
    act = Transition(plan, state, at)
    state.started_at = at
    root = state.scopes[ROOT] = Scope(ROOT, at)
    for entry in plan.entries:
        if entry in plan.triggers:
            root.done.add(entry)
            act.perform(root, follow(plan, Result(entry, ROOT, at, "ok", payload=START)).effects)
        else:
            act.emit(root, Token(entry))
    act.arm_races(root, plan.races)
    if plan.timeout is not None:
        act.applied.armed.append((Timer("deadline"), at + plan.timeout))
    act.settle(root)
    return act.applied


def apply(plan: Plan, state: State, decision: Decision) -> Applied:
    """Make a decision true."""
    act = Transition(plan, state, decision.at)
    scope = state.scopes.get(decision.path)
    if scope is None:
        return _unchanged(act, known=state.ended or started(state, decision.path))
    live = scope.live.get(decision.node)
    fact = decision.fact
    if decision.node in scope.done and (live is None or fact is not None):
        return _unchanged(act)
    given = None if live is None else live.heard
    named = fact.signal if type(fact) is Result or type(fact) is Attempt else None
    twin = type(fact) is Attempt and live is not None and live.token.attempt > fact.attempt
    if named is not None and not state.folding and not twin and (given is None or given.id != named):
        return _unchanged(act, known=False)  # this state keeps the signal, or gave it to another
    if fact is None or type(fact) is Result:
        changed = _complete(plan, act, scope, live, decision, fact)
    elif live is None:
        return _unchanged(act, known=False)
    elif type(fact) is Attempt:
        changed = _try_again(plan, act, scope, live, fact)
    elif type(fact) is Suspension:
        changed = _suspend(plan, act, scope, live, fact)
    else:
        changed = _choose(plan, state, act, scope, live, fact)
    if not changed:
        return _unchanged(act, known=live is not None)
    act.settle(scope)
    if given is not None and named is None and type(fact) is not Suspension and type(fact) is not Choice:
        act.hand_on(given)  # the token ended without it
    return act.applied


def _unchanged(act: Transition, *, known: bool = True) -> Applied:
    act.applied.fresh = False
    act.applied.known = known
    return act.applied


def _complete(
    plan: Plan, act: Transition, scope: Scope, live: Live | None, decision: Decision, fact: Result | None
) -> bool:
    node = plan.nodes[decision.node]
    if live is None:
        # Only a join can be given up before it has a token; anything else is news to this state.
        if not _gives_up(node, scope, fact) and not _was_made(act.state, node, scope, fact):
            return False
        act.applied.disarmed.append(Timer("join", node.index, scope.path))
    else:
        _remove(act, scope, live)
    if live is not None and live.token.fate is Fate.DISPATCH:
        act.fill(scope, decision.node)
        return True
    scope.done.add(decision.node)
    scope.barriers.pop(decision.node, None)
    if fact is None or fact.status == "skipped":
        act.applied.skipped.append((decision.node, decision.path))
    if node.joins_items:
        _release(scope, node, given_up=fact is None or fact.status != "ok")
    if node.region and fact is not None and fact.status == "ok":
        act.cancel_region(scope, node)
    act.perform(scope, decision.effects)
    return True


def _remove(act: Transition, scope: Scope, live: Live) -> None:
    del scope.live[live.token.node]
    scope.count -= 1
    if live.waiting:
        _stop_waiting(act, live)
    else:
        scope.active -= 1


def _stop_waiting(act: Transition, live: Live) -> None:
    """A fact says what became of a token that this state still sees waiting."""
    act.applied.disarmed.append(own_timer(live))
    act.stop_listening(live)
    live.signal, live.deadline = None, None


def _gives_up(node: NodePlan, scope: Scope, fact: Result | None) -> bool:
    if fact is None or fact.status != "failed" or node.timeout is None:
        return False
    return node.index in scope.barriers or node.split_of in scope.fans or node.timeout_from == "scope"


def _was_made(state: State, node: NodePlan, scope: Scope, fact: Result | None) -> bool:
    """A fold believes the row of a list, whatever its items lack: some may still have to run, beside it."""
    return state.folding and node.joins_items and node.split_of in scope.fans and fact is not None


def _release(scope: Scope, node: NodePlan, *, given_up: bool) -> None:
    """The list is made, and the marks of the items have served. If it was given up, nothing more starts."""
    fan = scope.fans[node.split_of]
    fan.closed = fan.closed or given_up
    fan.marks = bytearray()


def _try_again(plan: Plan, act: Transition, scope: Scope, live: Live, fact: Attempt) -> bool:
    if live.token.attempt != fact.attempt:
        return False
    if live.waiting:
        _stop_waiting(act, live)
    live.token = replace(live.token, attempt=fact.attempt + 1, resumed=False, signal=None, fate=Fate.RUN)
    live.heard = None
    asked = fact.failure.details.get("retry_at")
    earliest = asked if type(asked) is int else 0
    name = token_name(fact.node, fact.path, plan.ids)
    due = retry_due(plan.nodes[fact.node].retry, fact.attempt, fact.at, name, earliest)
    act.sleep(scope, live, due)
    _end_if_pointless(plan, act, scope, live)
    return True


def _end_if_pointless(plan: Plan, act: Transition, scope: Scope, live: Live) -> None:
    """A race that was decided while the node ran leaves it nothing to wait for: it is touched, and ends."""
    if live.waiting and in_cancelled_region(plan, act.state, live.token.node, scope.path):
        act.disarm(live)
        act.wake(scope, live)


def _suspend(plan: Plan, act: Transition, scope: Scope, live: Live, fact: Suspension) -> bool:
    if live.token.attempt != fact.attempt or live.token.resumed:
        return False
    live.token = replace(live.token, resumed=True)
    act.sleep(scope, live, fact.due)
    if fact.signal is not None:
        act.listen(scope, live, fact.signal, fact.deadline)
    _end_if_pointless(plan, act, scope, live)
    return True


def _choose(plan: Plan, state: State, act: Transition, scope: Scope, live: Live, fact: Choice) -> bool:
    chosen = replace(live.token, arrived=fact.arrived, payload=fact.payload, error=fact.error)
    node = plan.nodes[fact.node]
    cancels = bool(node.region) and (node.index, scope.path) not in state.cancelled
    if chosen == live.token and not cancels:
        return False
    live.token = chosen
    if cancels:
        act.cancel_region(scope, node)
    return True
