"""What one seed runs: a random definition, varied so that it waits for signals, starts children, is held to limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.nodes.registry import Registry
from tests.simulation.effect import sim_registry
from tests.simulation.journal import Violation
from tests.simulation.known import known_model, small
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.evaluate import evaluate
from tests.simulation.oracle.generate import random_model
from tests.simulation.oracle.model import Child, Effect, Hear, Model, Node, Retry

THEMES = {"signals": 0.34, "once": 0.2, "children": 0.14, "deadline": 0.08, "parallel": 0.12, "again": 0.25}
SHARED = "go"
CHILD_SIZES = (2, 3, 4, 5)
MOST_CHILDREN = 2
NESTING = 2
PATIENCE = 20


@cache
def registry() -> Registry:
    return sim_registry()


@dataclass(frozen=True)
class Case:
    """A definition with its start payload, the workflows its nodes may start, and whether it is run again."""

    model: Model
    plan: Plan
    start: Any
    children: dict[str, Case]
    again: bool = False
    is_known: bool = False  # made by hand

    def mended(self) -> Case:
        """The same, in a world where every effect succeeds."""
        nodes = tuple(replace(node, params=_mended(node.params)) for node in self.model.nodes)
        inner = {name: each.mended() for name, each in self.children.items()}
        return replace(self, model=replace(self.model, nodes=nodes), children=inner)


def _mended(params: Any) -> Any:
    return replace(params, fail_attempts=0, fail_items=()) if isinstance(params, Effect) else params


def random_case(seed: int, size: int | None = None, level: int = 0) -> Case:
    """The case of a seed; about a third of them is the plain random definition."""
    known = None if level else known_model(seed)
    if known is not None:
        inner = small()
        children = {inner.id: Case(inner, plan_of(inner), {}, {})}
        return Case(known[0], plan_of(known[0]), known[1], children, again=True, is_known=True)
    model, start = random_model(seed, size)
    rng = Random(f"case-{seed}-{level}")
    themes = {name for name, share in THEMES.items() if rng.random() < share}
    if level:
        themes -= {"again"} | ({"children"} if level >= NESTING else set())
    started: dict[str, Case] = {}
    nodes = list(model.nodes)
    if "signals" in themes:
        nodes = [_hearing(node, rng) for node in nodes]
    if "once" in themes:
        nodes = [replace(node, once=True) if _may_be_once(node, rng) else node for node in nodes]
    if "children" in themes:
        nodes = _parents(model, nodes, started, rng, level)
    settings: dict[str, Any] = {}
    if "deadline" in themes:
        settings["timeout"] = rng.choice((4, 20, 60, 300))
    if "parallel" in themes:
        settings["max_parallel"] = rng.choice((1, 1, 2, 3))
    varied = replace(model, nodes=tuple(nodes), settings=tuple(settings.items()))
    return Case(varied, plan_of(varied), start, started, "again" in themes)


def plan_of(model: Model) -> Plan:
    """A model, compiled as the engine would."""
    parsed = parse_data(Decoded(to_document(model)))
    if parsed.definition is None:
        raise Violation(f"the generator made an invalid document: {parsed.problems}")
    return compile_definition(parsed.definition, registry().catalogue)


def _hearing(node: Node, rng: Random) -> Node:
    """Some nodes that wait for a time, or only pass on, wait for a signal instead."""
    if rng.random() >= {"wait": 0.7, "noop": 0.3, "effect": 0.25, "log": 0.2}.get(node.kind, 0):
        return node
    name = SHARED if rng.random() < 0.7 else node.id
    return _patient(replace(node, params=Hear(name), retry=None), rng)


def _patient(node: Node, rng: Random) -> Node:
    """How long a node waits for the world, and what follows if it waits in vain."""
    if rng.random() >= 0.45:
        return node
    policy = node.error or ("ignore" if rng.random() < 0.8 else None)
    retry = Retry(2, 1, 1) if rng.random() < 0.3 else None
    return replace(node, timeout=rng.choice((1, 3, 10, 40)), error=policy, retry=retry)


def _may_be_once(node: Node, rng: Random) -> bool:
    return isinstance(node.params, Effect) and rng.random() < 0.6


def _parents(
    model: Model, nodes: list[Node], children: dict[str, Case], rng: Random, level: int
) -> list[Node]:
    """A few nodes run another workflow."""
    fit = [n for n in nodes if n.kind in ("effect", "noop", "edit") and model.shape.depth[n.id] <= 1]
    chosen = {node.id for node in rng.sample(fit, min(len(fit), rng.randint(1, MOST_CHILDREN)))}
    return [_parent(node, children, rng, level) if node.id in chosen else node for node in nodes]


def _parent(node: Node, children: dict[str, Case], rng: Random, level: int) -> Node:
    child = _child(rng, level + 1)
    children[child.model.id] = child
    retry = Retry(2, 1, 1) if rng.random() < 0.3 else None
    policy = node.error or ("ignore" if rng.random() < 0.5 else None)
    asks = replace(node, params=Child(child.model.id, child.start), retry=retry, error=policy)
    return _patient(asks, rng)


def _child(rng: Random, level: int) -> Case:
    """A small workflow, mostly one that completes."""
    fails = rng.random() < 0.2
    for _ in range(PATIENCE):
        seed, size = rng.randrange(10**6), rng.choice(CHILD_SIZES)
        model, start = random_model(seed, size)
        if bool(evaluate(model, start).halting) is fails:
            break
    return random_case(seed, size, level)
