"""Builders for plans, and a driver that runs an execution of a plan step by step.

    execution = ExecutionDriver(plan("start -> a -> m, start -> b -> m", m=merge()))
    execution.ok("a", "b")
    assert execution.queue == {"m@/"}

An edge is `->`, `-label->`, or `-!->` for an error edge; its id is `a-b`. A node without a description has type
`step`: pure, without traits. Type `act` is the same with an effect. The node `start` is the trigger.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

from rune.core.definition.parser import parse_document
from rune.core.execution.control import change_pause, deliver_signal, fire_timer
from rune.core.execution.decision import Applied, Decision, FinishExecution, Timer
from rune.core.execution.fact import (
    ExecutionStarted,
    Fact,
    NodeResult,
    PauseChanged,
    SignalReceived,
)
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Cancelled, Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.execution.scope import ValueSource
from rune.core.execution.state import LiveToken, Scope, State
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import Path, Token, TokenPurpose, token_name
from rune.core.execution.transition import apply, start_execution
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import NodeType
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import NodePlan, Plan
from rune.core.validation.validate import validate_document
from rune.nodes.registry import standard_catalogue
from tests.simulation.invariants import check_counts, settled_state, state_summary

Raw = dict[str, Any]
NOW = 1_700_000_000_000
STEP = NodeType(name="step")
ACT = NodeType(name="act", effectful=lambda parameters: True)
CATALOGUE = {**standard_catalogue(), "step": STEP, "act": ACT}
ARROW = re.compile(r"\s*-(?:([\w!]+)-)?>\s*")


def node(type: str = "step", parameters: Raw | None = None, **fields: Any) -> Raw:
    """A node of any type. `error="ignore"` stands for `{"type": "ignore"}`."""
    if isinstance(fields.get("error"), str):
        fields["error"] = {"type": fields["error"]}
    return {"type": type, "parameters": parameters or {}, **fields}


def merge(wait_mode: Any = "wait_for_all", parameters: Raw | None = None, **fields: Any) -> Raw:
    return node("merge", {"wait_mode": wait_mode, **(parameters or {})}, **fields)


def race(parameters: Raw | None = None, **fields: Any) -> Raw:
    return merge("wait_for_any", parameters, **fields)


def quorum(count: int, parameters: Raw | None = None, **fields: Any) -> Raw:
    return merge({"at_least": count}, parameters, **fields)


def split(parameters: Raw | None = None, **fields: Any) -> Raw:
    return node("split", {"input_array": "{{ $trigger.xs }}", **(parameters or {})}, **fields)


def aggregator(parameters: Raw | None = None, **fields: Any) -> Raw:
    return node("aggregator", parameters, **fields)


def conditional(**fields: Any) -> Raw:
    return node("conditional", {"expression": True}, **fields)


def switch(rules: int = 2, **fields: Any) -> Raw:
    rule = {"value": 1, "operator": "eq", "compare": 2}
    return node("switch", {"rules": [rule] * rules}, **fields)


def document(chains: str, nodes: dict[str, Raw | str], settings: Raw | None = None) -> Raw:
    """The document of these chains of edges; nodes are in order of first mention."""
    edges: list[Raw] = []
    names: dict[str, None] = {}
    for chain in chains.replace("\n", " ").split(","):
        parts = ARROW.split(chain.strip())
        names.update(dict.fromkeys(parts[0::2]))
        for src, label, dst in zip(parts[0::2], parts[1::2], parts[2::2], strict=False):
            edges.append(_edge(edges, src, dst, label))
    raw = [_node(name, nodes.get(name, "input" if name == "start" else "step"), edges) for name in names]
    return {"id": "test", "nodes": raw, "edges": edges, **({"settings": settings} if settings else {})}


def _edge(edges: list[Raw], src: str, dst: str, label: str | None) -> Raw:
    parallel = sum(each["src"] == src and each["dst"] == dst for each in edges)
    edge: Raw = {"id": f"{src}-{dst}" + (f"-{parallel + 1}" if parallel else ""), "src": src, "dst": dst}
    if label == "!":
        edge["is_error"] = True
    elif label:
        edge["label"] = label
    return edge


def _node(name: str, given: Raw | str, edges: list[Raw]) -> Raw:
    raw = {"id": name, **(node(given) if isinstance(given, str) else copy.deepcopy(given))}
    if raw.get("error") == {"type": "branch"}:
        raw["error"]["error_edge"] = next(
            each["id"] for each in edges if each["src"] == name and "is_error" in each
        )
    return raw


def plan(chains: str, settings: Raw | None = None, **nodes: Raw | str) -> Plan:
    """The plan of a valid definition."""
    parsed = parse_document(json.dumps(document(chains, nodes, settings)))
    verdict = validate_document(parsed, CATALOGUE)
    assert verdict.valid, [each for each in verdict.problems if each.severity == "error"]
    assert parsed.definition is not None
    return compile_definition(parsed.definition, CATALOGUE)


def node_plan(plan: Plan, name: str) -> NodePlan:
    """The compiled node with this id."""
    return plan.nodes[plan.index[name]]


def edge_index(plan: Plan, name: str) -> int:
    """The index of the edge with this id."""
    return next(i for i, each in enumerate(plan.definition.edges) if each.id == name)


def edge_names(plan: Plan, edges: tuple[int, ...] | list[int]) -> list[str]:
    return [plan.definition.edges[each].id for each in edges]


class ExecutionDriver:
    """Runs one execution in memory. Tokens are named as in `x@/s:0`; `@/` may be left out.

    Tokens that do not run are decided at once unless `auto_decide` is off. Every fact is applied twice; the
    duplicate must change nothing.
    """

    def __init__(self, plan: Plan, *, limits: Limits = LIMITS) -> None:
        self.plan = plan
        self.now = NOW
        self.state = State(limits=limits)
        self.tokens: dict[str, Token] = {}
        self.timers: dict[Timer, int] = {}
        self.facts: list[Fact] = [ExecutionStarted(NOW)]
        self.skipped: list[str] = []
        self.waiting: list[tuple[str, int, int]] = []
        self.finish: FinishExecution | None = None
        self.controls = 0
        self.auto_decide = True
        self.record(start_execution(plan, self.state, NOW))

    @property
    def queue(self) -> set[str]:
        return set(self.tokens)

    def name(self, node: int, path: Path) -> str:
        return token_name(node, path, self.plan.ids)

    def record(self, applied: Applied) -> Applied:
        """Keep the emitted tokens, timers, skips and the finish of a transition."""
        for timer in applied.disarmed:
            self.timers.pop(timer, None)
        self.timers.update(applied.armed)
        for token in applied.emitted:
            self.tokens[self.name(*token.key)] = token
        self.skipped += [self.name(*each) for each in applied.skipped]
        self.waiting += [(self.name(node, path), k, n) for node, path, k, n in applied.waiting]
        self.finish = self.finish or applied.finish
        check_counts(self.state)
        while self.auto_decide and (unrun := self._unrun()) is not None:
            self.decide(unrun)
        return applied

    def _unrun(self) -> str | None:
        return next((name for name, token in self.tokens.items() if token.fate is not TokenPurpose.RUN), None)

    def _full(self, name: str) -> str:
        return name if "@" in name else f"{name}@/"

    def token(self, name: str) -> Token:
        return self.tokens[self._full(name)]

    def decide(self, name: str) -> Applied:
        """Decide a token that does not run: skip, expiry, dispatch."""
        token = self.tokens.pop(self._full(name))
        return self.apply(step_unrun(self.plan, token, self.now))

    def step(self, name: str, outcome: Outcome) -> Applied:
        """Complete the run of a token with an outcome."""
        token = self.tokens.pop(self._full(name))
        return self.apply(step(self.plan, token, outcome, self.now, self.state.limits))

    def apply(self, decision: Decision) -> Applied:
        if decision.fact is not None:
            self.facts.append(decision.fact)
        applied = apply(self.plan, self.state, decision)
        assert applied.known, decision
        after = copy.deepcopy(self.state)
        if decision.fact is not None:
            duplicate = apply(self.plan, self.state, decision)
            assert not duplicate.fresh
            assert (duplicate.emitted, duplicate.armed, duplicate.disarmed) == ([], [], [])
            assert self.state == after, "a duplicate changed the state"
        return self.record(applied)

    def ok(self, *names: str, value: Any = None, outlet: str | None = None) -> Applied:
        for name in names:
            applied = self.step(name, Output(value, outlet))
        return applied

    def fail(self, *names: str, code: str = "BROKEN", **details: Any) -> Applied:
        for name in names:
            applied = self.step(name, Failure(Error(code, f"{name} failed", details)))
        return applied

    def fan_out(self, name: str, count: int) -> Applied:
        return self.step(name, FanOut(count, list(range(count))))

    def suspend(self, name: str, until: int | None = None, signal: str | None = None) -> Applied:
        return self.step(name, Suspend(until, signal))

    def cancel(self, name: str) -> Applied:
        return self.step(name, Cancelled())

    def fire(self, kind: Any, name: str = "", *, at: int | None = None) -> Applied:
        """Fire a timer at its due time, or at the given time."""
        timer = self.timer(kind, name)
        self.now = self.timers.pop(timer) if at is None else at
        return self.record(fire_timer(self.plan, self.state, timer, self.now))

    def timer(self, kind: Any, name: str = "") -> Timer:
        matches = [each for each in self.timers if each.kind == kind and self._timer_fits(each, name)]
        assert len(matches) == 1, (kind, name, self.timers)
        return matches[0]

    def _timer_fits(self, timer: Timer, name: str) -> bool:
        return not name or self.name(timer.node, timer.path) == self._full(name)

    def due(self, kind: Any, name: str = "") -> int:
        """Due time of a timer in ms since the start."""
        return self.timers[self.timer(kind, name)] - NOW

    def pause(self) -> Applied:
        return self._control(paused=True)

    def resume(self) -> Applied:
        return self._control(paused=False)

    def _control(self, *, paused: bool) -> Applied:
        self.controls += 1
        fact = PauseChanged(self.now, self.controls, paused)
        self.facts.append(fact)
        applied = change_pause(self.plan, self.state, fact)
        if not paused:
            # Join timers that fired during the pause were dropped; the resume arms the timers that are needed.
            self.timers.update(applied.armed)
        return self.record(applied)

    def signal(self, name: str, id: str = "", *, path: Path | None = None) -> Applied:
        """Deliver a signal twice; the duplicate must change nothing."""
        fact = SignalReceived(self.now, id or f"signal-{len(self.facts)}", name, path)
        self.facts.append(fact)
        applied = deliver_signal(self.plan, self.state, fact)
        after = copy.deepcopy(self.state)
        duplicate = deliver_signal(self.plan, self.state, fact)
        assert (duplicate.fresh, duplicate.emitted, self.state == after) == (False, [], True)
        return self.record(applied)

    def scope(self, path: Path = ()) -> Scope:
        return self.state.scopes[path]

    def live(self, name: str) -> LiveToken:
        return next(
            live
            for scope in self.state.scopes.values()
            for live in scope.live.values()
            if self.name(*live.token.key) == self._full(name)
        )

    def results(self) -> Iterator[NodeResult]:
        return (each for each in self.facts if isinstance(each, NodeResult))

    def result(self, name: str) -> NodeResult:
        return next(each for each in self.results() if self.name(each.node, each.path) == self._full(name))

    def lookup(self, node: int, path: Path) -> NodeResult | None:
        return next((each for each in self.results() if (each.node, each.path) == (node, path)), None)

    def values(self, start: Any = None) -> ValueSource:
        return ValueSource(self.plan, start, self.lookup, {"id": "x"}, lambda value: value)

    def expression_scope(self, name: str, start: Any = None) -> Any:
        """The scope in which the expressions of a queued token are evaluated."""
        return self.values(start).scope(self.token(name), self.now / 1000, "seed")

    def fold(self, facts: list[Fact] | None = None) -> tuple[State, Applied]:
        return fold(self.plan, self.facts if facts is None else facts, self.now, self.state.limits)

    def check_fold(self) -> None:
        """Check that folding the facts, in order and reversed, gives the current state."""
        expected = state_summary(settled_state(self.plan, self.state), self.now)
        for facts in (self.facts, self.facts[::-1]):
            folded, _ = self.fold(facts)
            assert state_summary(settled_state(self.plan, folded), self.now) == expected
