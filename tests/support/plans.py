"""A short way to write plans, and a driver that leads an execution by hand.

    life = Life(plan("start -> a -> m, start -> b -> m", m=merge()))
    life.ok("a"); life.ok("b")
    assert life.queue == {"m@/"}

An edge is `->`, `-label->`, or `-!->` where it is an error edge; its id is `a-b`. Nodes that are not
described are of type `step`: pure, without traits. `act` is the same with an effect. A node called `start` is
the trigger.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

from rune.core.definition.parser import parse_document
from rune.core.execution.control import change_pause, deliver_signal
from rune.core.execution.decision import Applied, Decision, FinishExecution, Timer
from rune.core.execution.fact import (
    ExecutionStarted,
    Fact,
    NodeResult,
    PauseChanged,
    SignalReceived,
    TokenFact,
)
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Cancelled, Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.execution.scope import ValueSource
from rune.core.execution.state import LiveToken, Scope, State
from rune.core.execution.step import step, step_unrun
from rune.core.execution.timers import fire_timer
from rune.core.execution.token import Path, Token, TokenPurpose, token_name
from rune.core.execution.transition import apply, start_execution
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import NodeType
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import NodePlan, Plan
from rune.core.validation.validate import validate_document
from rune.nodes.registry import standard_catalogue
from tests.simulation.verdict import check_counts, picture, settled

Raw = dict[str, Any]
NOW = 1_700_000_000_000
STEP = NodeType(name="step")
ACT = NodeType(name="act", effectful=lambda parameters: True)
CATALOGUE = {**standard_catalogue(), "step": STEP, "act": ACT}
ARROW = re.compile(r"\s*-(?:([\w!]+)-)?>\s*")


def node(type: str = "step", parameters: Raw | None = None, **fields: Any) -> Raw:
    """A node of any type. `error="ignore"` is short for the policy of that name."""
    if isinstance(fields.get("error"), str):
        fields["error"] = {"type": fields["error"]}
    return {"type": type, "parameters": parameters or {}, **fields}


def merge(wait_mode: Any = "wait_for_all", parameters: Raw | None = None, **fields: Any) -> Raw:
    return node("merge", {"wait_mode": wait_mode, **(parameters or {})}, **fields)


def race(parameters: Raw | None = None, **fields: Any) -> Raw:
    return merge("wait_for_any", parameters, **fields)


def most(count: int, parameters: Raw | None = None, **fields: Any) -> Raw:
    return merge({"at_least": count}, parameters, **fields)


def split(parameters: Raw | None = None, **fields: Any) -> Raw:
    return node("split", {"input_array": "{{ $trigger.xs }}", **(parameters or {})}, **fields)


def gather(parameters: Raw | None = None, **fields: Any) -> Raw:
    return node("aggregator", parameters, **fields)


def choose(**fields: Any) -> Raw:
    return node("conditional", {"expression": True}, **fields)


def switch(rules: int = 2, **fields: Any) -> Raw:
    rule = {"value": 1, "operator": "eq", "compare": 2}
    return node("switch", {"rules": [rule] * rules}, **fields)


def document(chains: str, nodes: dict[str, Raw | str], settings: Raw | None = None) -> Raw:
    """The document of these chains of edges, nodes in the order in which they are first named."""
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
    twins = sum(each["src"] == src and each["dst"] == dst for each in edges)
    edge: Raw = {"id": f"{src}-{dst}" + (f"-{twins + 1}" if twins else ""), "src": src, "dst": dst}
    if label == "!":
        edge["is_error"] = True
    elif label:
        edge["label"] = label
    return edge


def _node(name: str, said: Raw | str, edges: list[Raw]) -> Raw:
    raw = {"id": name, **(node(said) if isinstance(said, str) else copy.deepcopy(said))}
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


def at(plan: Plan, name: str) -> NodePlan:
    """A node of a plan by its id."""
    return plan.nodes[plan.index[name]]


def edge(plan: Plan, name: str) -> int:
    """The index of an edge by its id."""
    return next(i for i, each in enumerate(plan.definition.edges) if each.id == name)


def edge_names(plan: Plan, edges: tuple[int, ...] | list[int]) -> list[str]:
    return [plan.definition.edges[each].id for each in edges]


class Life:
    """One execution led by hand. Tokens are named as in `x@/s:0`; `@/` may be left out.

    What ends by the rules alone is decided at once. Every fact is applied twice: its twin changes nothing.
    """

    def __init__(self, plan: Plan, *, limits: Limits = LIMITS, begins: bool = True) -> None:
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
        self.auto = True
        if begins:
            self.take(start_execution(plan, self.state, NOW))

    @property
    def queue(self) -> set[str]:
        return set(self.tokens)

    def name(self, node: int, path: Path) -> str:
        return token_name(node, path, self.plan.ids)

    def take(self, applied: Applied) -> Applied:
        """What the world around does with what followed."""
        for timer in applied.disarmed:
            self.timers.pop(timer, None)
        self.timers.update(applied.armed)
        for token in applied.emitted:
            self.tokens[self.name(*token.key)] = token
        self.skipped += [self.name(*each) for each in applied.skipped]
        self.waiting += [(self.name(node, path), k, n) for node, path, k, n in applied.waiting]
        self.finish = self.finish or applied.finish
        check_counts(self.state)
        while self.auto and (unrun := self._unrun()) is not None:
            self.decide(unrun)
        return applied

    def _unrun(self) -> str | None:
        return next((name for name, token in self.tokens.items() if token.fate is not TokenPurpose.RUN), None)

    def _full(self, name: str) -> str:
        return name if "@" in name else f"{name}@/"

    def token(self, name: str) -> Token:
        return self.tokens[self._full(name)]

    def decide(self, name: str) -> Applied:
        """End a token that never runs."""
        token = self.tokens.pop(self._full(name))
        return self.apply(step_unrun(self.plan, token, self.now))

    def ends(self, name: str, outcome: Outcome) -> Applied:
        """End the run of a token."""
        token = self.tokens.pop(self._full(name))
        return self.apply(step(self.plan, token, outcome, self.now, self.state.limits))

    def apply(self, decision: Decision) -> Applied:
        if decision.fact is not None:
            self.facts.append(decision.fact)
        applied = apply(self.plan, self.state, decision)
        assert applied.known, decision
        after = copy.deepcopy(self.state)
        if decision.fact is not None:
            twin = apply(self.plan, self.state, decision)
            assert (twin.fresh, twin.emitted, twin.armed, twin.disarmed) == (False, [], [], [])
            assert self.state == after, "a twin changed the state"
        return self.take(applied)

    def ok(self, *names: str, value: Any = None, outlet: str | None = None) -> Applied:
        for name in names:
            applied = self.ends(name, Output(value, outlet))
        return applied

    def fail(self, *names: str, code: str = "BROKEN", **details: Any) -> Applied:
        for name in names:
            applied = self.ends(name, Failure(Error(code, f"{name} failed", details)))
        return applied

    def fan(self, name: str, count: int) -> Applied:
        return self.ends(name, FanOut(count, list(range(count))))

    def sleep(self, name: str, until: int | None = None, signal: str | None = None) -> Applied:
        return self.ends(name, Suspend(until, signal))

    def cancel(self, name: str) -> Applied:
        return self.ends(name, Cancelled())

    def fire(self, kind: Any, name: str = "", *, at: int | None = None) -> Applied:
        """Let a timer fire, at its time unless another is given."""
        timer = self.timer(kind, name)
        self.now = self.timers.pop(timer) if at is None else at
        return self.take(fire_timer(self.plan, self.state, timer, self.now))

    def timer(self, kind: Any, name: str = "") -> Timer:
        wanted = [each for each in self.timers if each.kind == kind and self._timer_fits(each, name)]
        assert len(wanted) == 1, (kind, name, self.timers)
        return wanted[0]

    def _timer_fits(self, timer: Timer, name: str) -> bool:
        return not name or self.name(timer.node, timer.path) == self._full(name)

    def due(self, kind: Any, name: str = "") -> int:
        """When a timer is due, in ms from the start."""
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
            # The timers of joins were dropped when they fired; a resume arms what is needed.
            self.timers.update(applied.armed)
        return self.take(applied)

    def say(self, name: str, id: str = "", *, path: Path | None = None) -> Applied:
        """Give the execution a signal; its twin changes nothing."""
        fact = SignalReceived(self.now, id or f"signal-{len(self.facts)}", name, path)
        self.facts.append(fact)
        applied = deliver_signal(self.plan, self.state, fact)
        after = copy.deepcopy(self.state)
        twin = deliver_signal(self.plan, self.state, fact)
        assert (twin.fresh, twin.emitted, self.state == after) == (False, [], True)
        return self.take(applied)

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

    def sight(self, name: str, start: Any = None) -> Any:
        """What the expressions of a queued token see."""
        return self.values(start).scope(self.token(name), self.now / 1000, "seed")

    def fold(self, facts: list[Fact] | None = None) -> tuple[State, Applied]:
        given = self.facts if facts is None else facts
        return fold(self.plan, given, self.now, self.state.limits)

    def check_fold(self) -> None:
        """The state is what follows from the facts, also read backwards."""
        here = picture(settled(self.plan, self.state), self.now)
        for facts in (self.facts, self.facts[::-1]):
            folded, _ = self.fold(facts)
            assert picture(settled(self.plan, folded), self.now) == here


def token_facts(facts: list[Fact]) -> list[TokenFact]:
    return [each for each in facts if isinstance(each, TokenFact)]
