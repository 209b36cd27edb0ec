"""What a definition means: one recursive pass over the graph, scope by scope, without time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.oracle.choices import Choices, Expected
from tests.simulation.oracle.expr import ANY, EXPRESSION_ERROR, ExpressionError, compare
from tests.simulation.oracle.frame import (
    Error,
    Frame,
    NodeError,
    Sight,
    Token,
    Wire,
    all_seen,
    error_object,
    first_error,
    joined,
    merged,
    too_many,
)
from tests.simulation.oracle.legal import check_choices
from tests.simulation.oracle.model import (
    ASKS,
    PASSES_PAYLOAD,
    Conditional,
    Edge,
    Edit,
    Effect,
    Fail,
    Log,
    Merge,
    Model,
    Node,
    Output,
    Split,
    Switch,
    TokenKey,
    Trigger,
    Wait,
)

__all__ = ["Choices", "Evaluation", "Expected", "check_choices", "evaluate"]

Picker = Callable[[TokenKey, Sequence[str], int], tuple[str, ...]]
DETECTED = ("TIMEOUT", "UNKNOWN_OUTCOME")
"""Failures that the engine finds: an execution that they stop has failed, it was not halted."""


class Evaluation:
    """One evaluation; `picker` stands in for timing where a choice is missing."""

    def __init__(self, model: Model, start: Any, choices: Choices, picker: Picker | None = None) -> None:
        self.model, self.shape, self.input, self.choices = model, model.shape, start, choices
        self.picker = picker
        self.expected = Expected()

    def run(self) -> Expected:
        root = Frame(None, ())
        self._scope(None, root)
        self._finish(root)
        return self.expected

    def _scope(self, split: str | None, frame: Frame) -> None:
        for name in self.shape.members[split]:
            self._resolve(self.shape.nodes[name], frame)

    def _resolve(self, node: Node, frame: Frame) -> None:
        """Decides what one token becomes and what its out-edges carry."""
        key = (node.id, frame.path)
        if node.kind == "aggregator":
            self._resolve_aggregator(node, frame, key)
            return
        edges = self.shape.ins[node.id]
        wires = [frame.wires[edge.id] for edge in edges]
        if key in self.choices.cancelled:
            self._close(node, frame, Token("cancelled", None, None, all_seen(wires)))
        elif key in self.choices.timed_out:
            self._fail(node, frame, "TIMEOUT", self._seen_at_failure(node, key, edges, wires))
        elif not edges:
            self._run(node, frame, self.input, None, 0)
        elif node.quorum and len(edges) > 1:
            self._race(node, frame, key, edges, wires)
        elif any(wire.alive is None for wire in wires):
            self._undecided(node, frame)
        else:
            live = [i for i, wire in enumerate(wires) if wire.alive]
            self._enter(node, frame, edges, wires, live, all_seen(wires))

    def _race(self, node: Node, frame: Frame, key: TokenKey, edges: list[Edge], wires: list[Wire]) -> None:
        """A join that opens at its first, or k-th, live arrival."""
        self.expected.parties[key] = {edge.id: wire.alive for edge, wire in zip(edges, wires, strict=True)}
        live = [i for i, wire in enumerate(wires) if wire.alive]
        certain = all(wire.alive is not None for wire in wires)
        opened = self.choices.opened.get(key)
        if opened is None and certain and len(live) == node.quorum:
            opened = tuple(edges[i].id for i in live)
        if opened is None and certain and len(live) > node.quorum and self.picker:
            opened = self.picker(key, [edges[i].id for i in live], node.quorum)
        if opened is not None and len(opened) >= node.quorum:
            chosen = [i for i in live if edges[i].id in opened]
            self._enter(node, frame, edges, wires, chosen, all_seen([wires[i] for i in chosen]))
        elif certain and not live:
            self._enter(node, frame, edges, wires, live, all_seen(wires))
        elif certain and len(live) < node.quorum:
            self._fail(node, frame, "UNREACHABLE", self._seen_at_failure(node, key, edges, wires))
        else:
            self._undecided(node, frame)

    def _seen_at_failure(self, node: Node, key: TokenKey, edges: list[Edge], wires: list[Wire]) -> int:
        arrived = self.choices.opened.get(key)
        if node.kind in ASKS and not (node.quorum and len(edges) > 1):
            return all_seen(wires)
        if arrived is None:
            return 0 if node.quorum else all_seen(wires)
        return all_seen([wire for edge, wire in zip(edges, wires, strict=True) if edge.id in arrived])

    def _enter(
        self, node: Node, frame: Frame, edges: list[Edge], wires: list[Wire], live: list[int], seen: int
    ) -> None:
        """Runs the node on its live edges, or skips it; the first error in edge order goes with it."""
        if not live:
            self._close(node, frame, Token("skipped", None, first_error(wires), seen))
            return
        error = first_error([wires[i] for i in live])
        arrivals = [(edges[i].src, wires[i].payload) for i in live]
        if isinstance(node.params, Merge):
            params = node.params
            self._settle(node, frame, lambda: (merged(params, arrivals), None), None, error, seen)
        else:
            self._run(node, frame, joined(arrivals), error, seen)

    def _undecided(self, node: Node, frame: Frame) -> None:
        self.expected.undecided.add((node.id, frame.path))
        self._emit(node, frame, None, None, None, 0)
        if node.kind == "split":
            self._undecided_body(node, frame)

    def _undecided_body(self, node: Node, frame: Frame) -> None:
        frame.fans[node.id] = None
        frame.tokens[node.id] = Token("undecided", None, None, 0)
        for name in self.shape.body(node.id):
            self.expected.undecided.add((name, frame.path))

    def _run(self, node: Node, frame: Frame, payload: Any, error: Error | None, seen: int) -> None:
        sight = Sight(self.shape, self.input, frame, payload, error, seen)
        if node.kind in ASKS and (node.id, frame.path) not in self.model.answers:
            self._undecided(node, frame)
            return
        if isinstance(node.params, Split):
            self._run_split(node, node.params, frame, sight)
            return
        self._settle(node, frame, lambda: self._outcome(node, frame, sight), payload, error, seen)

    def _settle(
        self,
        node: Node,
        frame: Frame,
        outcome: Callable[[], tuple[Any, str | None]],
        payload: Any,
        error: Error | None,
        seen: int,
    ) -> None:
        try:
            value, outlet = outcome()
        except ExpressionError:
            self._fail(node, frame, EXPRESSION_ERROR, seen)
        except NodeError as failure:
            self._fail(node, frame, failure.code, seen)
        else:
            self._record(node, frame, Token("success", value, error, seen))
            carried = payload if node.kind in PASSES_PAYLOAD else value
            self._emit(node, frame, outlet, carried, error, seen, success=True)

    def _outcome(self, node: Node, frame: Frame, sight: Sight) -> tuple[Any, str | None]:
        """A node's output and the outlet it takes."""
        answer = self.model.answers.get((node.id, frame.path))
        if answer is not None:
            status, value = answer
            if status == "failed":
                raise NodeError(value)
            return value, None
        match node.params:
            case Edit(assignments):
                return {name: value.evaluate(sight) for name, value in assignments}, None
            case Log(expr) | Output(expr):
                return expr.evaluate(sight), None
            case Fail(code):
                raise NodeError(code)
            case Conditional(expr):
                result = bool(expr.evaluate(sight))
                return {"result": result}, "true" if result else "false"
            case Switch(rules):
                return self._switched(rules, sight)
            case Wait(seconds):
                seconds.evaluate(sight)
                return {"resume_at": ANY, "timer_id": ANY}, None
            case Effect():
                return self._effect(node, node.params, frame, sight), None
            case Trigger():
                return self.input, None
        return sight.payload, None

    def _switched(self, rules: Any, sight: Sight) -> tuple[Any, str]:
        for position, rule in enumerate(rules):
            if compare(rule.value.evaluate(sight), rule.operator, rule.compare.evaluate(sight)):
                return {"output_index": position, "matched_rule": ANY}, f"case_{position}"
        return {"output_index": len(rules), "matched_rule": ANY}, "fallback"

    def _effect(self, node: Node, params: Effect, frame: Frame, sight: Sight) -> Any:
        retry = node.retry
        allowed = 1
        if retry and (not retry.on or params.code in retry.on):
            allowed = retry.max_attempts
        hopeless = frame.index in params.fail_items
        needed = allowed if hopeless else min(params.fail_attempts + 1, allowed)
        self.expected.attempts[(node.id, frame.path)] = needed
        if hopeless or params.fail_attempts >= allowed:
            raise NodeError(params.code)
        return {"did": params.key, "json": sight.payload}

    def _run_split(self, node: Node, params: Split, frame: Frame, sight: Sight) -> None:
        try:
            items = params.input_array.evaluate(sight)
        except ExpressionError:
            self._fail(node, frame, EXPRESSION_ERROR, sight.seen)
            return
        if not isinstance(items, list):
            self._fail(node, frame, ANY, sight.seen)
            return
        if params.batch_size:
            items = [items[i : i + params.batch_size] for i in range(0, len(items), params.batch_size)]
        self._record(node, frame, Token("success", ANY, sight.error, sight.seen))
        self._emit(node, frame, None, None, None, sight.seen)
        self._fan_out(node, frame, items, sight.error, sight.seen)

    def _fan_out(self, node: Node, frame: Frame, items: list[Any], error: Error | None, seen: int) -> None:
        children: list[Frame | None] = []
        frame.fans[node.id] = children
        if not items:
            self._skip_body(node, frame)
        reach = seen | self.shape.bit[node.id]
        for index, item in enumerate(items):
            path = (*frame.path, (node.id, index))
            if path in self.choices.unstarted:
                children.append(None)
                continue
            child = Frame(frame, path, item, index)
            children.append(child)
            for edge in self.shape.outs[node.id]:
                if not edge.is_error:
                    child.wires[edge.id] = Wire(True, item, error, reach)
            self._scope(node.id, child)

    def _skip_body(self, split: Node, frame: Frame) -> None:
        """The body of a split that never fanned out is listed at the lineage of its split."""
        for name in self.shape.body(split.id):
            key = (name, frame.path)
            status = "cancelled" if key in self.choices.cancelled else "skipped"
            self.expected.results[key] = (status, None)

    def _resolve_aggregator(self, node: Node, frame: Frame, key: TokenKey) -> None:
        split = self.shape.paired[node.id]
        before = frame.tokens[split]
        children = frame.fans[split]
        seen = before.seen | self.shape.bit[split]
        if key in self.choices.cancelled:
            self._close(node, frame, Token("cancelled", None, None, seen))
        elif before.status == "undecided":
            self._undecided(node, frame)
        elif children is None:
            self._close(node, frame, Token("skipped", None, before.error, seen))
        elif key in self.choices.timed_out:
            self._fail(node, frame, "TIMEOUT", seen)
        else:
            self._gather(node, frame, children, before.error, seen)

    def _gather(
        self, node: Node, frame: Frame, children: list[Frame | None], error: Error | None, seen: int
    ) -> None:
        edges = self.shape.ins[node.id]
        entries: list[Any] = []
        failed = 0
        for child in children:
            wires = [child.wires[edge.id] for edge in edges] if child else []
            if any(wire.alive is None for wire in wires):
                self._undecided(node, frame)
                return
            cause = first_error([wire for wire in wires if not wire.alive])
            live = [(edge.src, wire.payload) for edge, wire in zip(edges, wires, strict=False) if wire.alive]
            failed += cause is not None
            entries.append(error_object(cause) if cause is not None else joined(live) if live else None)
        if too_many(node.params, failed, len(children)):
            self._fail(node, frame, "TOO_MANY_FAILURES", seen)
            return
        self._settle(node, frame, lambda: (entries, None), None, error, seen)

    def _record(self, node: Node, frame: Frame, token: Token) -> None:
        frame.tokens[node.id] = token
        self.expected.results[(node.id, frame.path)] = (token.status, token.value)

    def _close(self, node: Node, frame: Frame, token: Token) -> None:
        """A token that never ran: all its out-edges are dead, and a cause travels on along them."""
        self._record(node, frame, token)
        self._emit(node, frame, None, None, token.error, token.seen)
        if node.kind == "split":
            self._never_fanned_out(node, frame)

    def _never_fanned_out(self, node: Node, frame: Frame) -> None:
        frame.fans[node.id] = None
        self._skip_body(node, frame)

    def _fail(self, node: Node, frame: Frame, code: Any, seen: int) -> None:
        """A failure that no retry cured, under the node's policy."""
        value = error_object(code)
        policy = node.error or ("collect" if frame.path else "halt")
        self._record(node, frame, Token("failed", value, code, seen))
        key = (node.id, frame.path)
        if policy == "halt":
            self.expected.halting.add(key)
            status = "failed" if code in DETECTED else "halted"
            self.expected.endings.add((status, code))
        if policy == "collect" and not self.shape.shows(node.id):
            self.expected.items_failed.append(key)
        if policy == "ignore":
            outlet = {"conditional": "false", "switch": "fallback"}.get(node.kind)
            self._emit(node, frame, outlet, value, code, seen, success=True)
        elif policy == "branch":
            self._emit(node, frame, None, value, code, seen, error_edge=True)
        else:
            self._emit(node, frame, None, None, code if policy == "collect" else None, seen)
        if node.kind == "split":
            self._failed_split(node, frame, policy, code, seen)

    def _failed_split(self, node: Node, frame: Frame, policy: str, code: Any, seen: int) -> None:
        if policy == "ignore":
            self._fan_out(node, frame, [], code, seen)
            return
        if policy != "collect":
            # Handled, or fatal: the body and the aggregator are skipped without a cause.
            frame.tokens[node.id] = Token("failed", error_object(code), None, seen)
        self._never_fanned_out(node, frame)

    def _emit(
        self,
        node: Node,
        frame: Frame,
        outlet: str | None,
        payload: Any,
        error: Error | None,
        seen: int,
        *,
        success: bool = False,
        error_edge: bool = False,
    ) -> None:
        """Resolves the out-edges; with neither flag all of them are dead (or undecided with the node)."""
        reach = seen | self.shape.bit[node.id]
        undecided = (node.id, frame.path) in self.expected.undecided
        for edge in self.shape.outs[node.id]:
            if node.kind == "split" and not edge.is_error:
                continue
            alive: bool | None = error_edge if edge.is_error else success and edge.outlet in (None, outlet)
            if undecided:
                alive = None
            # The two flags mean that a failure, if there was one, is handled: no cause on dead edges.
            cause = error if alive or not (success or error_edge) else None
            frame.wires[edge.id] = Wire(alive, payload, cause, reach)

    def _finish(self, root: Frame) -> None:
        expected, shape = self.expected, self.shape
        expected.context = {"$trigger": self.input}
        for name, token in root.tokens.items():
            if token.status in ("success", "failed"):
                expected.context[f"${name}"] = token.value
        if expected.halting:
            expected.status, expected.error_code = min(expected.endings, key=str)
            expected.shadow = shape.behind({name for name, _ in expected.halting})
            expected.output = ANY
        elif expected.items_failed:
            expected.items_failed.sort(key=lambda key: [index for _, index in key[1]])
            expected.status, expected.error_code, expected.output = "failed", "ITEMS_FAILED", ANY
            expected.endings = {("failed", "ITEMS_FAILED")}
        else:
            expected.output = self._output(root)

    def _output(self, root: Frame) -> Any:
        ran = {n: t.value for n, t in root.tokens.items() if t.status in ("success", "failed")}
        named = [name for name, node in self.shape.nodes.items() if node.kind == "output"]
        if named:
            return next((ran[name] for name in named if name in ran), None)
        return {name: value for name, value in ran.items() if not self.shape.outs[name]}


def evaluate(model: Model, start: Any, choices: Choices | None = None) -> Expected:
    """What the model must come to, given the start payload and what timing decided."""
    return Evaluation(model, start, choices or Choices()).run()
