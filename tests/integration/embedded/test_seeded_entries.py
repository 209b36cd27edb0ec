"""What a node sees that an execution starts at in the middle: the same as in the execution that its outputs are from.

Random workflows of every kind of join, choice, failure and split run once. Then each of their nodes is started from the
outputs that it could read, as a self-contained message has them, and must be entered by the same `$json` and `$error`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rune.codec.facts import decode_value, encode_value
from rune.core.execution.fact import ExecutionStarted, NodeResult
from rune.core.execution.fold import fold
from rune.core.execution.scope import ValueSource
from rune.core.execution.stored_value import Inline, Same
from rune.core.execution.token import ROOT, Token
from rune.core.execution.token import Path as Lineage
from rune.core.plan.graph import ancestors
from rune.core.plan.model import Plan
from rune.errors import InvalidDocumentError
from rune.nodes.registry import full_registry
from rune.runtime.messaging.seeder import ExecutionSeeder
from rune.runtime.queries.node_input import entering_token
from rune.testing.harness import compiled, harness
from tests.support.documents import node

REGISTRY = full_registry(())
Raw = dict[str, Any]
START = {"v": 1}
ABSENT = object()
KINDS = (
    "noop",
    "log",
    "whole",
    "edit",
    "if",
    "switch",
    "fails",
    "ignored",
    "append",
    "object",
    "combine",
    "any",
    "split",
    "broken split",
)


class _Workflow:
    """A random workflow. Every node has up to three predecessors among those before it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.nodes: list[Raw] = [node("start", "manual")]
        self.edges: list[Raw] = []
        self._exits: dict[str, Iterator[Raw]] = {"start": self._exits_of("start", "start")}
        self._count = self._random.randint(3, 9)
        for number in range(self._count):
            self._add(f"n{number}", self._random.choice(KINDS))

    @property
    def document(self) -> Raw:
        return {"id": "seeded", "nodes": self.nodes, "edges": self.edges}

    def _add(self, id: str, kind: str) -> None:
        before = self._random.sample(
            sorted(self._exits), min(len(self._exits), self._random.choice((1, 1, 2, 2, 3)))
        )
        for source in before:
            self.edges.append({"src": source, "dst": id, **next(self._exits[source])})
        if "split" in kind:
            self._add_split(id, broken=kind != "split")
            return
        made = node(id, *self._type(id, kind))
        if kind == "fails":
            made["error"] = {"type": "branch", "error_edge": f"{id}-wrong"}
        elif kind == "ignored":
            made["error"] = "ignore"
        elif kind == "any":
            made["join"] = "any"
        self.nodes.append(made)
        self._exits[id] = self._exits_of(id, kind)

    def _type(self, id: str, kind: str) -> tuple[str, Raw]:
        match kind:
            case "noop" | "any":
                return "noop", {}
            case "log":
                return "log", {"message": id}
            case "whole":
                return "log", {"message": "{{ $json }}"}
            case "edit":
                return "edit", {"mode": "keep_only", "assignments": [{"name": id, "value": "{{ $json }}"}]}
            case "if":
                return "conditional", {"expression": f"{{{{ {self._random.choice((1, 0))} }}}}"}
            case "switch":
                return "switch", {
                    "rules": [{"value": self._random.choice((0, 1)), "compare": each} for each in (0, 2)]
                }
            case "fails" | "ignored":
                return "fail", {"message": id}
            case _:
                return "merge", {"wait_mode": "wait_for_all", "mode": kind}

    def _add_split(self, id: str, *, broken: bool) -> None:
        """Add a split with an aggregator. A broken one fails, and either goes on or takes its error edges."""
        item, last = f"{id}item", f"{id}all"
        made = node(id, "split", {"input_array": "{{ 1 }}" if broken else "{{ [1, $json] }}"})
        if broken and self._random.random() < 0.5:
            made["error"] = {"type": "branch", "error_edge": f"{id}-wrong"}
            self._exits[id] = self._exits_of(id, "rescued")
        elif broken:
            made["error"] = "ignore"
        self.nodes += [made, node(item, "noop"), node(last, "aggregator")]
        self.edges += [{"src": id, "dst": item}, {"src": item, "dst": last}]
        self._exits[last] = self._exits_of(last, "split")

    def _exits_of(self, id: str, kind: str) -> Iterator[Raw]:
        """The ends of the edges out of a node. The first of one that fails is its error edge."""
        if kind in ("fails", "rescued"):
            yield {"id": f"{id}-wrong", "is_error": True}
        while True:
            match kind:
                case "if":
                    yield {"label": self._random.choice(("true", "false"))}
                case "switch":
                    yield {"label": self._random.choice(("case_0", "case_1", "fallback"))}
                case "rescued":
                    yield {"is_error": True}
                case "fails":
                    yield self._random.choice(({}, {"is_error": True}))
                case _:
                    yield {}


def _decode(stored: Any) -> Any:
    assert type(stored) is Inline
    return decode_value(stored.data)


class _Values(ValueSource):
    """The values of an execution by the results of its nodes."""

    def __init__(self, plan: Plan, results: dict[tuple[int, Lineage], NodeResult]) -> None:
        super().__init__(plan, START, lambda index, path: results.get((index, path)), {"id": "x"}, _decode)

    def output(self, result: NodeResult) -> Any:
        if type(result.value) is Same:
            return self.value(result.value.ref)
        return _decode(result.value)

    def root(self, token: Token, name: str) -> Any:
        with suppress(KeyError):
            return self.scope(token, 0.0, "")[name]
        return ABSENT


def _context(values: _Values, plan: Plan, token: Token) -> dict[str, bytes]:
    """Return the outputs that a self-contained message of this token has."""
    found = {}
    for each in plan.nodes:
        if each.index in plan.triggers or each.depth or each.index == token.node:
            continue
        result = values.result(each.index, ROOT)
        if each.fans_out and (result is None or result.status != "failed"):
            continue  # the list that it iterates over
        value = values.root(token, f"${each.id}")
        if value is not ABSENT:
            found[each.id] = encode_value(value)
    return found


def _seeded_token(plan: Plan, first: int, outputs: dict[str, bytes], **more: Any) -> tuple[_Values, Token]:
    seeder = ExecutionSeeder(plan, first, outputs, **more)
    seeded = seeder.compile(REGISTRY.catalogue)
    facts = seeder.facts(seeded, {name: Inline(each) for name, each in seeder.outputs.items()}, 5)
    assert seeder.starts_at_first(seeded, facts, 5)
    state, _ = fold(seeded, [ExecutionStarted(5), *facts], 5)
    results = {(each.node, each.path): each for each in facts if isinstance(each, NodeResult)}
    return _Values(seeded, results), state.scopes[ROOT].live[seeded.index[plan.ids[first]]].token


def _check_entries(plan: Plan, results: dict[tuple[int, Lineage], NodeResult]) -> int:
    """Start every node of the root scope in the middle; return how many there were."""
    values, checked = _Values(plan, results), 0
    above = ancestors(plan.graph)
    races = sum(1 << each.index for each in plan.nodes if each.opens == "any")
    for (index, path), result in results.items():
        planned = plan.nodes[index]
        if path or result.status not in ("ok", "failed") or planned.joins_items:
            continue
        if above[index] & races:
            continue  # outputs do not tell which branch won
        token = entering_token(plan, index, ROOT, lambda node, path: results.get((node, path)))
        outputs = _context(values, plan, token)
        if not outputs:
            continue
        names = ("$json", "$error")
        wanted = {name: values.root(token, name) for name in names}
        variants: list[Raw] = [{}, {"arrived": [plan.ids[plan.src[each.edge]] for each in token.arrived]}]
        if planned.opens == "any":
            variants = variants[1:]
        if wanted["$error"] is not ABSENT:
            given = [{**each, "error": encode_value(wanted["$error"])} for each in variants]
            variants += given
        for each in variants:
            seeded, entered = _seeded_token(plan, index, outputs, **each)
            shown = {name: seeded.root(entered, name) for name in names}
            assert shown == wanted, (planned.id, each, outputs)
            checked += 1
    return checked


@pytest.mark.parametrize("share", range(4))
def test_node_in_the_middle_is_entered_as_in_the_execution(share: int, tmp_path: Path) -> None:
    async def go() -> int:
        checked = 0
        async with harness(tmp_path) as engine:
            for seed in range(share * 100, share * 100 + 100):
                document = _Workflow(seed).document
                try:
                    plan = compiled(document, REGISTRY)
                except InvalidDocumentError:
                    continue
                run = await engine.start(plan, START)
                await run.end()
                facts = [each.fact for each in await run.facts()]
                results = {(each.node, each.path): each for each in facts if isinstance(each, NodeResult)}
                try:
                    checked += _check_entries(plan, results)
                except AssertionError as error:
                    raise AssertionError(f"{seed}: {encode_value(document).decode()}") from error
        return checked

    assert asyncio.run(go()) >= 50
