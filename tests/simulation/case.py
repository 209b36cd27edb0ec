"""The definition of one seed: a random model varied with signals, children, limits and reruns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.core.limits import LIMITS, Limits
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.nodes.registry import Registry
from tests.simulation.effect import sim_registry
from tests.simulation.handwritten import child_workflow, handwritten_model
from tests.simulation.journal import ViolationError
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.evaluate import evaluate
from tests.simulation.oracle.generate import random_model
from tests.simulation.oracle.model import Child, Effect, Model, Node, Retry, SignalWait

THEMES = {"signals": 0.34, "once": 0.2, "children": 0.14, "deadline": 0.08, "parallel": 0.12, "rerun": 0.25}
SHARED_SIGNAL = "go"
CHILD_SIZES = (2, 3, 4, 5)
MAX_CHILDREN = 2
NESTING = 2
MAX_CHILD_DRAWS = 20


@cache
def registry() -> Registry:
    return sim_registry()


@dataclass(frozen=True)
class Case:
    """A definition with its start payload and its child workflows."""

    model: Model
    plan: Plan
    start: Any
    children: dict[str, Case]
    reruns: bool = False
    is_handwritten: bool = False
    limits: Limits = LIMITS

    def without_failures(self) -> Case:
        """The same case with effects that never fail."""
        nodes = tuple(replace(node, params=_without_failures(node.params)) for node in self.model.nodes)
        inner = {name: each.without_failures() for name, each in self.children.items()}
        return replace(self, model=replace(self.model, nodes=nodes), children=inner)


def _without_failures(params: Any) -> Any:
    return replace(params, fail_attempts=0, fail_items=()) if isinstance(params, Effect) else params


def random_case(seed: int, size: int | None = None, level: int = 0) -> Case:
    """The case of a seed; about a third of the cases are unmodified random models."""
    handwritten = None if level else handwritten_model(seed)
    if handwritten is not None:
        model, start = handwritten
        child = child_workflow()
        children: dict[str, Case] = {child.id: Case(child, compile_model(child), {}, {})}
        return Case(model, compile_model(model), start, children, reruns=True, is_handwritten=True)
    model, start = random_model(seed, size)
    rng = Random(f"case-{seed}-{level}")
    themes = {name for name, share in THEMES.items() if rng.random() < share}
    if level:
        themes -= {"rerun"} | ({"children"} if level >= NESTING else set())
    children = {}
    nodes = list(model.nodes)
    if "signals" in themes:
        nodes = [_as_signal_wait(node, rng) for node in nodes]
    if "once" in themes:
        nodes = [replace(node, at_most_once=True) if _may_run_once(node, rng) else node for node in nodes]
    if "children" in themes:
        nodes = _with_child_workflows(model, nodes, children, rng, level)
    settings: dict[str, Any] = {}
    if "deadline" in themes:
        settings["timeout"] = rng.choice((4, 20, 60, 300))
    if "parallel" in themes:
        settings["max_parallel"] = rng.choice((1, 1, 2, 3))
    varied = replace(model, nodes=tuple(nodes), settings=tuple(settings.items()))
    return Case(varied, compile_model(varied), start, children, "rerun" in themes)


def compile_model(model: Model) -> Plan:
    """Compile a model as the engine does."""
    parsed = parse_data(Decoded(to_document(model)))
    if parsed.definition is None:
        raise ViolationError(f"the generator made an invalid document: {parsed.problems}")
    return compile_definition(parsed.definition, registry().catalogue)


def _as_signal_wait(node: Node, rng: Random) -> Node:
    """Turn some nodes into waits for a signal."""
    if rng.random() >= {"wait": 0.7, "noop": 0.3, "effect": 0.25, "log": 0.2}.get(node.kind, 0):
        return node
    name = SHARED_SIGNAL if rng.random() < 0.7 else node.id
    return _with_timeout(replace(node, params=SignalWait(name), retry=None), rng)


def _with_timeout(node: Node, rng: Random) -> Node:
    """Give some nodes a timeout, with an error policy and a retry."""
    if rng.random() >= 0.45:
        return node
    policy = node.error or ("ignore" if rng.random() < 0.8 else None)
    retry = Retry(2, 1, 1) if rng.random() < 0.3 else None
    return replace(node, timeout=rng.choice((1, 3, 10, 40)), error=policy, retry=retry)


def _may_run_once(node: Node, rng: Random) -> bool:
    return isinstance(node.params, Effect) and rng.random() < 0.6


def _with_child_workflows(
    model: Model, nodes: list[Node], children: dict[str, Case], rng: Random, level: int
) -> list[Node]:
    """Turn a few nodes into starts of a child workflow."""
    candidates = [n for n in nodes if n.kind in ("effect", "noop", "edit") and model.shape.depth[n.id] <= 1]
    chosen = {node.id for node in rng.sample(candidates, min(len(candidates), rng.randint(1, MAX_CHILDREN)))}
    return [_with_child_workflow(node, children, rng, level) if node.id in chosen else node for node in nodes]


def _with_child_workflow(node: Node, children: dict[str, Case], rng: Random, level: int) -> Node:
    child = _child(rng, level + 1)
    children[child.model.id] = child
    retry = Retry(2, 1, 1) if rng.random() < 0.3 else None
    policy = node.error or ("ignore" if rng.random() < 0.5 else None)
    parent = replace(node, params=Child(child.model.id, child.start), retry=retry, error=policy)
    return _with_timeout(parent, rng)


def _child(rng: Random, level: int) -> Case:
    """A small workflow that completes in most cases."""
    fails = rng.random() < 0.2
    for _ in range(MAX_CHILD_DRAWS):
        seed, size = rng.randrange(10**6), rng.choice(CHILD_SIZES)
        model, start = random_model(seed, size)
        if bool(evaluate(model, start).halting) is fails:
            break
    return random_case(seed, size, level)
