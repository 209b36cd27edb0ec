"""Evaluates a model in one recursive pass over the graph, scope by scope, without time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.oracle.choice_rules import check_choices
from tests.simulation.oracle.choices import Choices, Expected
from tests.simulation.oracle.expr import ANY, EXPRESSION_ERROR, ExpressionError, compare
from tests.simulation.oracle.frame import (
    Error,
    ExpressionScope,
    Frame,
    NodeError,
    Token,
    Wire,
    error_object,
    first_error,
    join_payload,
    merge_payloads,
    too_many,
    union_visible,
)
from tests.simulation.oracle.model import (
    EXTERNAL_KINDS,
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
ENGINE_CODES = ("TIMEOUT", "UNKNOWN_OUTCOME")
"""Error codes raised by the engine; they end an execution as failed instead of halted."""


class Evaluation:
    """One evaluation; `picker` makes choices that are missing."""

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
        """Resolve one token and its out-edges."""
        key = (node.id, frame.path)
        if node.kind == "aggregator":
            self._resolve_aggregator(node, frame, key)
            return
        edges = self.shape.ins[node.id]
        wires = [frame.wires[edge.id] for edge in edges]
        if key in self.choices.cancelled:
            self._resolve_unrun(node, frame, Token("cancelled", None, None, union_visible(wires)))
        elif key in self.choices.timed_out:
            self._fail(node, frame, "TIMEOUT", self._visible_at_failure(node, key, edges, wires))
        elif not edges:
            self._run(node, frame, self.input, None, 0)
        elif node.quorum and len(edges) > 1:
            self._race(node, frame, key, edges, wires)
        elif any(wire.alive is None for wire in wires):
            self._undecided(node, frame)
        else:
            live = [i for i, wire in enumerate(wires) if wire.alive]
            self._enter(node, frame, edges, wires, live, union_visible(wires))

    def _race(self, node: Node, frame: Frame, key: TokenKey, edges: list[Edge], wires: list[Wire]) -> None:
        """Resolve a join that opens at its first or k-th live arrival."""
        self.expected.parties[key] = {edge.id: wire.alive for edge, wire in zip(edges, wires, strict=True)}
        live = [i for i, wire in enumerate(wires) if wire.alive]
        decided = all(wire.alive is not None for wire in wires)
        opened = self.choices.opened.get(key)
        if opened is None and decided and len(live) == node.quorum:
            opened = tuple(edges[i].id for i in live)
        if opened is None and decided and len(live) > node.quorum and self.picker:
            opened = self.picker(key, [edges[i].id for i in live], node.quorum)
        if opened is not None and len(opened) >= node.quorum:
            chosen = [i for i in live if edges[i].id in opened]
            self._enter(node, frame, edges, wires, chosen, union_visible([wires[i] for i in chosen]))
        elif decided and not live:
            self._enter(node, frame, edges, wires, live, union_visible(wires))
        elif decided and len(live) < node.quorum:
            self._fail(node, frame, "UNREACHABLE", self._visible_at_failure(node, key, edges, wires))
        else:
            self._undecided(node, frame)

    def _visible_at_failure(self, node: Node, key: TokenKey, edges: list[Edge], wires: list[Wire]) -> int:
        arrived = self.choices.opened.get(key)
        if node.kind in EXTERNAL_KINDS and not (node.quorum and len(edges) > 1):
            return union_visible(wires)
        if arrived is None:
            return 0 if node.quorum else union_visible(wires)
        return union_visible([wire for edge, wire in zip(edges, wires, strict=True) if edge.id in arrived])

    def _enter(
        self, node: Node, frame: Frame, edges: list[Edge], wires: list[Wire], live: list[int], visible: int
    ) -> None:
        """Run the node on its live edges or skip it; the first error in edge order is passed on."""
        if not live:
            self._resolve_unrun(node, frame, Token("skipped", None, first_error(wires), visible))
            return
        error = first_error([wires[i] for i in live])
        arrivals = [(edges[i].src, wires[i].payload) for i in live]
        if isinstance(node.params, Merge):
            params = node.params
            self._complete(
                node, frame, lambda: (merge_payloads(params, arrivals), None), None, error, visible
            )
        else:
            self._run(node, frame, join_payload(arrivals), error, visible)

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

    def _run(self, node: Node, frame: Frame, payload: Any, error: Error | None, visible: int) -> None:
        scope = ExpressionScope(self.shape, self.input, frame, payload, error, visible)
        if node.kind in EXTERNAL_KINDS and (node.id, frame.path) not in self.model.external_results:
            self._undecided(node, frame)
            return
        if isinstance(node.params, Split):
            self._run_split(node, node.params, frame, scope)
            return
        self._complete(node, frame, lambda: self._outcome(node, frame, scope), payload, error, visible)

    def _complete(
        self,
        node: Node,
        frame: Frame,
        outcome: Callable[[], tuple[Any, str | None]],
        payload: Any,
        error: Error | None,
        visible: int,
    ) -> None:
        try:
            value, outlet = outcome()
        except ExpressionError:
            self._fail(node, frame, EXPRESSION_ERROR, visible)
        except NodeError as failure:
            self._fail(node, frame, failure.code, visible)
        else:
            self._record(node, frame, Token("success", value, error, visible))
            carried = payload if node.kind in PASSES_PAYLOAD else value
            self._emit(node, frame, outlet, carried, error, visible, success=True)

    def _outcome(self, node: Node, frame: Frame, scope: ExpressionScope) -> tuple[Any, str | None]:
        """The output of a node and the outlet it takes."""
        external = self.model.external_results.get((node.id, frame.path))
        if external is not None:
            status, value = external
            if status == "failed":
                raise NodeError(value)
            return value, None
        match node.params:
            case Edit(assignments):
                return {name: value.evaluate(scope) for name, value in assignments}, None
            case Log(expr) | Output(expr):
                return expr.evaluate(scope), None
            case Fail(code):
                raise NodeError(code)
            case Conditional(expr):
                result = bool(expr.evaluate(scope))
                return {"result": result}, "true" if result else "false"
            case Switch(rules):
                return self._switch(rules, scope)
            case Wait(seconds):
                seconds.evaluate(scope)
                return {"resume_at": ANY, "timer_id": ANY}, None
            case Effect():
                return self._effect(node, node.params, frame, scope), None
            case Trigger():
                return self.input, None
        return scope.payload, None

    def _switch(self, rules: Any, scope: ExpressionScope) -> tuple[Any, str]:
        for position, rule in enumerate(rules):
            if compare(rule.value.evaluate(scope), rule.operator, rule.compare.evaluate(scope)):
                return {"output_index": position, "matched_rule": ANY}, f"case_{position}"
        return {"output_index": len(rules), "matched_rule": ANY}, "fallback"

    def _effect(self, node: Node, params: Effect, frame: Frame, scope: ExpressionScope) -> Any:
        retry = node.retry
        allowed = 1
        if retry and (not retry.on or params.code in retry.on):
            allowed = retry.max_attempts
        always_fails = frame.index in params.fail_items
        needed = allowed if always_fails else min(params.fail_attempts + 1, allowed)
        self.expected.attempts[(node.id, frame.path)] = needed
        if always_fails or params.fail_attempts >= allowed:
            raise NodeError(params.code)
        return {"did": params.key, "json": scope.payload}

    def _run_split(self, node: Node, params: Split, frame: Frame, scope: ExpressionScope) -> None:
        try:
            items = params.input_array.evaluate(scope)
        except ExpressionError:
            self._fail(node, frame, EXPRESSION_ERROR, scope.visible)
            return
        if not isinstance(items, list):
            self._fail(node, frame, ANY, scope.visible)
            return
        if params.batch_size:
            items = [items[i : i + params.batch_size] for i in range(0, len(items), params.batch_size)]
        self._record(node, frame, Token("success", ANY, scope.error, scope.visible))
        self._emit(node, frame, None, None, None, scope.visible)
        self._fan_out(node, frame, items, scope.error, scope.visible)

    def _fan_out(self, node: Node, frame: Frame, items: list[Any], error: Error | None, visible: int) -> None:
        children: list[Frame | None] = []
        frame.fans[node.id] = children
        if not items:
            self._skip_body(node, frame)
        visible_after = visible | self.shape.bit[node.id]
        for index, item in enumerate(items):
            path = (*frame.path, (node.id, index))
            if path in self.choices.unstarted:
                children.append(None)
                continue
            child = Frame(frame, path, item, index)
            children.append(child)
            for edge in self.shape.outs[node.id]:
                if not edge.is_error:
                    child.wires[edge.id] = Wire(True, item, error, visible_after)
            self._scope(node.id, child)

    def _skip_body(self, split: Node, frame: Frame) -> None:
        """Record the body of a split without items as skipped, at the path of the split."""
        for name in self.shape.body(split.id):
            key = (name, frame.path)
            status = "cancelled" if key in self.choices.cancelled else "skipped"
            self.expected.results[key] = (status, None)

    def _resolve_aggregator(self, node: Node, frame: Frame, key: TokenKey) -> None:
        split = self.shape.paired[node.id]
        before = frame.tokens[split]
        children = frame.fans[split]
        visible = before.visible | self.shape.bit[split]
        if key in self.choices.cancelled:
            self._resolve_unrun(node, frame, Token("cancelled", None, None, visible))
        elif before.status == "undecided":
            self._undecided(node, frame)
        elif children is None:
            self._resolve_unrun(node, frame, Token("skipped", None, before.error, visible))
        elif key in self.choices.timed_out:
            self._fail(node, frame, "TIMEOUT", visible)
        else:
            self._gather(node, frame, children, before.error, visible)

    def _gather(
        self, node: Node, frame: Frame, children: list[Frame | None], error: Error | None, visible: int
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
            entries.append(error_object(cause) if cause is not None else join_payload(live) if live else None)
        if too_many(node.params, failed, len(children)):
            self._fail(node, frame, "TOO_MANY_FAILURES", visible)
            return
        self._complete(node, frame, lambda: (entries, None), None, error, visible)

    def _record(self, node: Node, frame: Frame, token: Token) -> None:
        frame.tokens[node.id] = token
        self.expected.results[(node.id, frame.path)] = (token.status, token.value)

    def _resolve_unrun(self, node: Node, frame: Frame, token: Token) -> None:
        """Resolve a token that did not run: its out-edges are dead and carry its error."""
        self._record(node, frame, token)
        self._emit(node, frame, None, None, token.error, token.visible)
        if node.kind == "split":
            self._skip_fan_out(node, frame)

    def _skip_fan_out(self, node: Node, frame: Frame) -> None:
        frame.fans[node.id] = None
        self._skip_body(node, frame)

    def _fail(self, node: Node, frame: Frame, code: Any, visible: int) -> None:
        """Apply the error policy of a node after its last attempt failed."""
        value = error_object(code)
        policy = node.error or ("collect" if frame.path else "halt")
        self._record(node, frame, Token("failed", value, code, visible))
        key = (node.id, frame.path)
        if policy == "halt":
            self.expected.halting.add(key)
            status = "failed" if code in ENGINE_CODES else "halted"
            self.expected.endings.add((status, code))
        if policy == "collect" and not self.shape.is_collected(node.id):
            self.expected.items_failed.append(key)
        if policy == "ignore":
            outlet = {"conditional": "false", "switch": "fallback"}.get(node.kind)
            self._emit(node, frame, outlet, value, code, visible, success=True)
        elif policy == "branch":
            self._emit(node, frame, None, value, code, visible, error_edge=True)
        else:
            self._emit(node, frame, None, None, code if policy == "collect" else None, visible)
        if node.kind == "split":
            self._failed_split(node, frame, policy, code, visible)

    def _failed_split(self, node: Node, frame: Frame, policy: str, code: Any, visible: int) -> None:
        if policy == "ignore":
            self._fan_out(node, frame, [], code, visible)
            return
        if policy != "collect":
            # Handled or fatal: the body and the aggregator are skipped without an error.
            frame.tokens[node.id] = Token("failed", error_object(code), None, visible)
        self._skip_fan_out(node, frame)

    def _emit(
        self,
        node: Node,
        frame: Frame,
        outlet: str | None,
        payload: Any,
        error: Error | None,
        visible: int,
        *,
        success: bool = False,
        error_edge: bool = False,
    ) -> None:
        """Resolve the out-edges; without a flag all of them are dead, or undecided if the node is."""
        visible_after = visible | self.shape.bit[node.id]
        undecided = (node.id, frame.path) in self.expected.undecided
        for edge in self.shape.outs[node.id]:
            if node.kind == "split" and not edge.is_error:
                continue
            alive: bool | None = error_edge if edge.is_error else success and edge.outlet in (None, outlet)
            if undecided:
                alive = None
            # With either flag a failure is handled: dead edges carry no error.
            cause = error if alive or not (success or error_edge) else None
            frame.wires[edge.id] = Wire(alive, payload, cause, visible_after)

    def _finish(self, root: Frame) -> None:
        expected, shape = self.expected, self.shape
        expected.context = {"$trigger": self.input}
        for name, token in root.tokens.items():
            if token.status in ("success", "failed"):
                expected.context[f"${name}"] = token.value
        if expected.halting:
            expected.status, expected.error_code = min(expected.endings, key=str)
            expected.downstream = shape.descendants_of({name for name, _ in expected.halting})
            expected.output = ANY
        elif expected.items_failed:
            expected.items_failed.sort(key=lambda key: [index for _, index in key[1]])
            expected.status, expected.error_code, expected.output = "failed", "ITEMS_FAILED", ANY
            expected.endings = {("failed", "ITEMS_FAILED")}
        else:
            expected.output = self._output(root)

    def _output(self, root: Frame) -> Any:
        ran = {n: t.value for n, t in root.tokens.items() if t.status in ("success", "failed")}
        outputs = [name for name, node in self.shape.nodes.items() if node.kind == "output"]
        if outputs:
            return next((ran[name] for name in outputs if name in ran), None)
        return {name: value for name, value in ran.items() if not self.shape.outs[name]}


def evaluate(model: Model, start: Any, choices: Choices | None = None) -> Expected:
    """The expected results of a model for a start payload and choices."""
    return Evaluation(model, start, choices or Choices()).run()
