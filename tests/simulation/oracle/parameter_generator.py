"""Generates the parameters of a graph so that node outputs show which values were visible."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.oracle.expr import Arith, Compare, Exists, Expr, Lit, Ref, Text, ref
from tests.simulation.oracle.graph_generator import Draft
from tests.simulation.oracle.model import (
    Aggregator,
    Conditional,
    Edge,
    Edit,
    Effect,
    Fail,
    Log,
    Merge,
    Model,
    Node,
    Noop,
    Output,
    Params,
    Retry,
    Rule,
    Split,
    Switch,
    Trigger,
    Wait,
)
from tests.simulation.oracle.shape import Shape

SMALL = 24
LARGE = 120
TRIGGER_SIZE = 40
CODES = ("BOOM", "FLAKY", "DENIED")


class ParameterGenerator:
    """Generates parameters in topological order; sizes are estimated so that values stay small."""

    def __init__(self, rng: Random, drafts: list[Draft], edges: list[Edge]) -> None:
        self.rng = rng
        self.drafts = {draft.id: draft for draft in drafts}
        self.edges = edges
        self.shape = Shape(Model("", tuple(Node(d.id, _placeholder(d)) for d in drafts), tuple(edges)))
        self.size: dict[str, int] = {}
        self.payload: dict[str, int] = {}
        self.is_object: dict[str, bool] = {}
        self.item: dict[str, str] = {}
        self.params: dict[str, Params] = {}
        self.nodes: dict[str, Node] = {}
        self._references = self._referable_nodes()

    def generate(self) -> list[Node]:
        """All nodes in the order of their drafts."""
        for name in self.shape.order:
            draft = self.drafts[name]
            input_size = self._input_size(draft)
            if input_size > LARGE and draft.kind in ("effect", "noop", "log"):
                draft.kind = "edit"
            params = self._parameters(draft, input_size)
            self._measure(draft, params, input_size)
            self.params[name] = params
            retry = self._retry(draft, params)
            self.nodes[name] = Node(name, params, draft.error, retry, draft.join)
        return [self.nodes[name] for name in self.drafts]

    def _referable_nodes(self) -> dict[str, list[str]]:
        """For each node the ancestors whose visibility depends only on recorded choices.

        Downstream of a merge of all edges with a timeout, a node on a slow path may be unfinished when it is read;
        such nodes are excluded unless another path waits for them.
        """
        shape, bit = self.shape, self.shape.bit
        above: dict[str, int] = {}
        certain: dict[str, int] = {}
        unstable: dict[str, int] = {}
        for name in shape.order:
            draft = self.drafts[name]
            parents = [edge.src for edge in shape.ins[name]]
            masks = [certain[p] | bit[p] for p in parents]
            can_time_out = draft.kind == "merge" and "timeout" in draft.options
            partial = draft.join == "any" or draft.options.get("wait", "all") != "all" or can_time_out
            above[name] = _union([above[p] | bit[p] for p in parents])
            certain[name] = _common(masks) if partial else _union(masks)
            if draft.kind == "aggregator":
                split = shape.paired[name]
                certain[name] = certain[split] | bit[split]
            unstable[name] = _union([unstable[p] for p in parents])
            if can_time_out:
                unstable[name] |= above[name]
            unstable[name] &= ~certain[name]
        return {
            name: [
                other
                for other in shape.order
                if above[name] & ~unstable[name] & bit[other]
                and self.drafts[other].kind != "split"
                and shape.scope[name][: shape.depth[other]] == shape.scope[other]
            ]
            for name in shape.order
        }

    def _input_size(self, draft: Draft) -> int:
        """The estimated size of the payload of a node."""
        shape = self.shape
        if not shape.ins[draft.id]:
            return TRIGGER_SIZE
        sizes = [self._carried(edge.src, edge.is_error) for edge in shape.ins[draft.id]]
        return max(sizes) if draft.join == "any" else sum(sizes)

    def _carried(self, source: str, is_error: bool) -> int:
        if is_error:
            return 1
        if self.drafts[source].kind == "split":
            return {"int": 1, "list": 3, "row": 9, "cell": 4, "result": 20, "batch": 12}[self.item[source]]
        return self.payload[source]

    def _measure(self, draft: Draft, params: Params, input_size: int) -> None:
        name, kind = draft.id, draft.kind
        match params:
            case Edit(assignments):
                size = sum(self._cost(expr, draft, input_size) for _, expr in assignments)
            case Effect() | Noop() | Merge():
                size = input_size + 1
            case Aggregator():
                size = input_size * 3
            case Trigger():
                size = TRIGGER_SIZE
            case _:
                size = 1
        self.size[name] = size
        self.payload[name] = input_size if kind in ("conditional", "switch", "wait", "log", "noop") else size
        self.is_object[name] = kind in ("edit", "effect", "trigger", "fail") or (
            kind in ("conditional", "switch", "wait", "log", "noop") and self._receives_objects(draft)
        )

    def _receives_objects(self, draft: Draft) -> bool:
        edges = self.shape.ins[draft.id]
        return all(
            edge.is_error
            or self.is_object.get(edge.src, False)
            or (self.drafts[edge.src].kind == "split" and self.item[edge.src] in ("row", "cell"))
            for edge in edges
        )

    def _cost(self, expr: Expr, draft: Draft, input_size: int) -> int:
        total = 1
        for part in expr.walk():
            if isinstance(part, Ref) and part.name == "json" and not part.path:
                total += input_size
            elif isinstance(part, Ref) and not part.path:
                total += self.size.get(part.name, 5)
        return total

    def _parameters(self, draft: Draft, input_size: int) -> Params:
        match draft.kind:
            case "trigger":
                return Trigger()
            case "noop":
                return Noop()
            case "edit":
                return Edit(self._assignments(draft, input_size))
            case "effect":
                return self._effect(draft)
            case "log":
                return Log(self._failure(draft) if draft.failing else self._log_message(draft))
            case "fail":
                return Fail(self.rng.choice(CODES))
            case "wait":
                return Wait(self._wait_seconds(draft))
            case "output":
                return Output(self._reference(draft) or ref("trigger", "t"))
        return self._control_parameters(draft)

    def _control_parameters(self, draft: Draft) -> Params:
        match draft.kind:
            case "conditional":
                return Conditional(self._condition(draft))
            case "switch":
                return Switch(tuple(self._rule(draft, i) for i in range(draft.options["cases"])))
            case "split":
                return self._split(draft)
            case "aggregator":
                return Aggregator(draft.options.get("tolerate"), draft.options.get("timeout"))
            case "merge":
                return self._merge(draft)
        raise ValueError(f"unknown kind {draft.kind}")

    def _assignments(self, draft: Draft, input_size: int) -> tuple[tuple[str, Expr], ...]:
        rng = self.rng
        stamp: tuple[str | Expr, ...] = (ref("json", "t", default="-"), f">{draft.id}")
        if draft.scope and rng.random() < 0.5:
            stamp += (".", Ref("index"))
        pairs: list[tuple[str, Expr]] = [("t", Text(stamp))]
        if rng.random() < 0.7:
            pairs.append(("n", Arith(ref("json", "n", default=0), "+", Lit(rng.randint(0, 2)))))
        pairs.append(("j", Ref("json") if input_size <= SMALL else ref("json", "t", default=None)))
        if rng.random() < 0.6:
            pairs.append(("e", ref("error", "code", default=None)))
        if draft.scope:
            pairs.append(("i", Ref("index")))
            small = self.item[draft.scope[-1]] in ("int", "list", "row", "cell")
            pairs.append(("x", Ref("item") if small else ref("item", "t", default="?")))
        for i in range(rng.randint(1, 4)):
            seen = self._reference(draft)
            if seen is not None:
                pairs.append((f"r{i}", seen))
        if draft.failing:
            pairs.append(("f", self._failure(draft)))
        return tuple(pairs)

    def _reference(self, draft: Draft) -> Expr | None:
        """A reference to an ancestor, with a default if it is not visible."""
        rng, others = self.rng, self._references[draft.id]
        if not others:
            return None
        other = rng.choice(others)
        if rng.random() < 0.15:
            return Exists(Ref(other))
        default = rng.choice((None, "none", 0))
        if self.drafts[other].error in ("ignore", "branch") and rng.random() < 0.25:
            return ref(other, "error", "code", default=default)
        if self.size[other] <= SMALL and self.drafts[other].kind not in ("wait", "switch"):
            return ref(other, default=default)
        path = self._short_path(other)
        return Exists(Ref(other, path)) if path == ("timer_id",) else ref(other, *path, default=default)

    def _short_path(self, other: str) -> tuple[str | int, ...]:
        """A path to a small value in the output of a node."""
        match self.params[other]:
            case Effect():
                return self.rng.choice((("did",), ("json", "t")))
            case Conditional():
                return ("result",)
            case Switch():
                return ("output_index",)
            case Wait():
                return ("timer_id",)
            case Log():
                return ()
            case Fail():
                return ("error", "code")
            case Aggregator():
                return (self.rng.choice((0, 1)), "t")
            case Merge(mode="append", wait_mode="all" | "at_least"):
                return (self.rng.choice((0, 1)), "t")
        return self.rng.choice((("t",), ("n",)))

    def _failure(self, draft: Draft) -> Expr:
        """An expression that fails always, or for items without a key."""
        if draft.scope and self.rng.random() < 0.75:
            return Ref("item", ("m",))
        if draft.kind == "conditional" and self.rng.random() < 0.5:
            return Compare(Ref("trigger", ("t",)), ">", Lit(1))
        return Ref("trigger", ("nope",))

    def _number(self, draft: Draft) -> Expr:
        """A number that differs between items, paths or inputs."""
        choices: list[Expr] = [ref("json", "n", default=0), ref("trigger", "n")]
        if draft.scope:
            choices += [Ref("index"), Ref("index"), ref("item", "n", default=1)]
        others = [o for o in self._references[draft.id] if isinstance(self.params[o], Edit)]
        if others:
            choices.append(ref(self.rng.choice(others), "n", default=0))
        return self.rng.choice(choices)

    def _condition(self, draft: Draft) -> Expr:
        rng = self.rng
        if draft.failing:
            failure = self._failure(draft)
            return failure if isinstance(failure, Compare) else Compare(failure, "==", Lit(1))
        roll = rng.random()
        if roll < 0.15:
            return ref("trigger", "ok")
        if roll < 0.3:
            code = Lit(rng.choice(CODES))
            return Compare(ref("error", "code", default="-"), rng.choice(("==", "!=")), code)
        return Compare(self._number(draft), rng.choice(("==", ">", "<=", "!=")), Lit(rng.randint(0, 2)))

    def _rule(self, draft: Draft, position: int) -> Rule:
        rng = self.rng
        value = self._number(draft)
        if draft.failing and position == 0:
            value = self._failure(draft)
            return Rule(value, "==", Lit(1))
        return Rule(value, rng.choice(("==", "==", ">", "<")), Lit(rng.randint(0, 2)))

    def _log_message(self, draft: Draft) -> Expr:
        return Text(("at ", ref("json", "t", default="-"), " err ", ref("error", "code", default="none")))

    def _wait_seconds(self, draft: Draft) -> Expr:
        rng = self.rng
        if draft.scope and rng.random() < 0.5:
            return Arith(Arith(Ref("index"), "*", Lit(rng.choice((2, 3)))), "+", Lit(rng.randint(1, 4)))
        return Lit(rng.choice((1, 2, 3, 5, 8, 20)))

    def _effect(self, draft: Draft) -> Effect:
        rng, code = self.rng, self.rng.choice(CODES)
        if not draft.failing:
            draft.options["attempts"] = rng.choice((0, 0, 2, 3))
            tries = max(draft.options["attempts"] - 1, 0)
            return Effect(f"k-{draft.id}", rng.randint(0, tries), (), code)
        if draft.scope and rng.random() < 0.7:
            draft.options["attempts"] = rng.choice((0, 0, 2))
            items = tuple(i for i in range(4) if rng.random() < 0.4) or (0,)
            return Effect(f"k-{draft.id}", 0, items, code)
        draft.options["attempts"] = rng.choice((0, 2, 3))
        return Effect(f"k-{draft.id}", max(draft.options["attempts"], 1) + rng.randint(0, 1), (), code)

    def _retry(self, draft: Draft, params: Params) -> Retry | None:
        rng = self.rng
        attempts = draft.options.get("attempts", 0)
        if not isinstance(params, Effect):
            return Retry(2) if draft.failing and rng.random() < 0.1 else None
        if not attempts:
            return None
        # A failure outside of `on` is only wanted if the node must fail.
        others = tuple(code for code in CODES if code != params.code)
        on = rng.choice(((), (), (params.code,), others if draft.failing else ()))
        return Retry(attempts, rng.choice((1, 2)), rng.choice((1, 2)), on)

    def _split(self, draft: Draft) -> Split:
        rng = self.rng
        array, item = self._array(draft)
        window = rng.choice((None, None, None, 1, 2, 3))
        batch = rng.choice((None,) * 9 + (2,))
        self.item[draft.id] = "batch" if batch else item
        return Split(Ref("trigger", ("nope",)) if draft.failing and item != "cell" else array, window, batch)

    def _array(self, draft: Draft) -> tuple[Expr, str]:
        """A list to split, and the kind of its items."""
        rng = self.rng
        outer_item = self.item[draft.scope[-1]] if draft.scope else None
        if outer_item in ("row", "cell"):
            inner = "cell" if outer_item == "row" else "int"
            return (Ref("item", ("cells",)) if draft.failing else ref("item", "cells", default=[]), inner)
        if outer_item == "list":
            return Ref("item"), "int"
        aggregators = [o for o in self._references[draft.id] if self.drafts[o].kind == "aggregator"]
        if aggregators and rng.random() < 0.4:
            aggregator = rng.choice(aggregators)
            options = self.drafts[aggregator].options
            if not {"tolerate", "timeout"} & options.keys() and self.size[aggregator] < LARGE:
                return ref(aggregator, default=[]), "result"
        if outer_item is not None:
            return ref("trigger", rng.choice(("xs", "xs", "none"))), "int"
        kinds = (("xs", "int"),) * 3 + (("rows", "row"),) * 5 + (("lists", "list"), ("none", "int"))
        name, item = rng.choice(kinds)
        return ref("trigger", name), item

    def _merge(self, draft: Draft) -> Merge:
        options: dict[str, Any] = draft.options
        mode = options["mode"]
        if mode == "combine" and not self._receives_objects(draft):
            mode = "append"
        cancel = options.get("cancel_losers", False)
        return Merge(mode, options["wait"], options.get("k", 0), options.get("timeout"), cancel)


def _placeholder(draft: Draft) -> Params:
    match draft.kind:
        case "split":
            return Split(Lit([]))
        case "aggregator":
            return Aggregator()
    return Noop()


def _union(masks: list[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total


def _common(masks: list[int]) -> int:
    if not masks:
        return 0
    total = masks[0]
    for mask in masks[1:]:
        total &= mask
    return total
