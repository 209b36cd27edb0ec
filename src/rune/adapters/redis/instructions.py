"""Instructions: decisions as the scripts take them. The plan stays here; what a script needs of it goes along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rune.adapters.redis.texts import arrived_out, maybe_ref_out, path_out, ref_out
from rune.core.effect import Arrive, Decision, Effect, Emit, Finish, Gather, Skip, Spread, Uncollected
from rune.core.fact import Attempt, Choice, Result, Suspension
from rune.core.outcome import Error
from rune.core.plan import NodePlan, Plan
from rune.core.retry import retry_due
from rune.core.routing import enter
from rune.core.token import START, token_name

EMIT, ARRIVE, GATHER, SKIP, SPREAD, UNCOLLECTED, FINISH = range(1, 8)
NONE = -1

pack = msgspec.msgpack.Encoder().encode
_JSON = msgspec.json.Encoder()
_FINISH = msgspec.json.Decoder(Finish)
_ERROR = msgspec.json.Decoder(Error)

Instruction = tuple[Any, ...]


def finish_out(finish: Finish) -> str:
    """An end as an opaque text."""
    return _text(finish)


def finish_in(text: str) -> Finish:
    return _FINISH.decode(text)


def error_out(error: Error) -> str:
    return _text(error)


def error_in(text: str) -> Error:
    return _ERROR.decode(text)


def _text(value: Any) -> str:
    return _JSON.encode(value).decode()


def region_out(node: NodePlan) -> str | bool:
    """The nodes that an opening cancels, so that a script finds one by looking for its number between commas."""
    return f",{','.join(map(str, sorted(node.region)))}," if node.region else False


class Instructions:
    """The translation of one plan's decisions."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._joins: dict[int, Instruction] = {}
        self._fans: dict[int, Instruction] = {}
        self._infos: dict[int, Instruction] = {}

    def packed(self, decisions: Sequence[Decision]) -> bytes:
        return pack(self.listed(decisions))

    def listed(self, decisions: Sequence[Decision]) -> list[Instruction]:
        return [self._decision(each) for each in decisions]

    def _decision(self, decision: Decision) -> Instruction:
        fact, path = decision.fact, path_out(decision.path)
        if type(fact) is Result:
            info = (fact.status, *self._info(decision.node), _or(fact.signal))
            return decision.node, path, decision.at, "result", info, self._effects(decision.effects)
        if fact is None:
            info = ("skipped", *self._info(decision.node), False)
            return decision.node, path, decision.at, "skip", info, self._effects(decision.effects)
        return decision.node, path, decision.at, *self._change(fact), ()

    def _info(self, node: int) -> Instruction:
        found = self._infos.get(node)
        if found is None:
            plan = self.plan.nodes[node]
            gathers = plan.split_of if plan.joins_items else NONE
            found = _timeout(plan), plan.timeout_from, gathers, region_out(plan)
            self._infos[node] = found
        return found

    def _change(self, fact: Any) -> Instruction:
        if type(fact) is Attempt:
            return "attempt", (fact.attempt, self._due(fact), _or(fact.signal))
        if type(fact) is Suspension:
            return "suspend", (fact.attempt, _or(fact.due), _or(fact.signal), _or(fact.deadline))
        assert type(fact) is Choice
        region = region_out(self.plan.nodes[fact.node])
        return "choice", (arrived_out(fact.arrived), ref_out(fact.payload), maybe_ref_out(fact.error), region)

    def _due(self, fact: Attempt) -> int:
        asked = fact.failure.details.get("retry_at")
        earliest = asked if type(asked) is int else 0
        name = token_name(fact.node, fact.path, self.plan.ids)
        return retry_due(self.plan.nodes[fact.node].retry, fact.attempt, fact.at, name, earliest)

    def _effects(self, effects: Sequence[Effect]) -> list[Instruction]:
        return [self._effect(each) for each in effects]

    def _effect(self, effect: Effect) -> Instruction:
        if type(effect) is Emit:
            return EMIT, effect.node, ref_out(effect.payload), maybe_ref_out(effect.error)
        if type(effect) is Arrive:
            payload, error = maybe_ref_out(effect.payload), maybe_ref_out(effect.error)
            return *self.join(effect.edge), effect.alive, payload, error
        if type(effect) is Gather:
            return GATHER, self.plan.gather_position[effect.edge], effect.mark
        if type(effect) is Skip:
            return SKIP, effect.node
        if type(effect) is Spread:
            payload, error = ref_out(effect.payload), maybe_ref_out(effect.error)
            return SPREAD, effect.node, effect.count, payload, error, *self.fan(effect.node)
        if type(effect) is Uncollected:
            return UNCOLLECTED, effect.node, error_out(effect.failure)
        assert type(effect) is Finish
        return FINISH, finish_out(effect)

    def join(self, edge: int) -> Instruction:
        """What an arrival brings along of its join: node, place, edge, source, parties, rule, timeout."""
        found = self._joins.get(edge)
        if found is None:
            plan = self.plan
            node = plan.nodes[plan.dst[edge]]
            opens = 0 if node.opens == "all" else 1 if node.opens == "any" else node.opens
            place = node.in_edges.index(edge)
            facts = (edge, plan.src[edge], len(node.in_edges), opens, _timeout(node), node.timeout_from)
            found = self._joins[edge] = (ARRIVE, node.index, place, *facts)
        return found

    def fan(self, split: int) -> Instruction:
        """What a fan-out needs to start its items: window, aggregator, what enters an item, its races."""
        found = self._fans.get(split)
        if found is None:
            plan = self.plan
            node = plan.nodes[split]
            window = NONE if node.window.size is None else node.window.size
            gathers: Instruction = (NONE, 0, NONE, "")
            if node.aggregator >= 0:
                join = plan.nodes[node.aggregator]
                gathers = (join.index, len(join.in_edges), _timeout(join), join.timeout_from)
            found = (window, *gathers, self._template(node), races_out(plan, node.races))
            self._fans[split] = found
        return found

    def _template(self, node: NodePlan) -> list[Instruction]:
        """What enters each item; payload and error are left to the script."""
        found: list[Instruction] = []
        for each in self._effects(enter(self.plan, node.success, START, None)):
            kept = {EMIT: 2, ARRIVE: 10}.get(each[0])
            found.append(each if kept is None else (*each[:kept], False, False))
        return found


def races_out(plan: Plan, joins: tuple[int, ...]) -> list[tuple[int, int]]:
    """Joins whose timeout runs from the opening of their scope."""
    return [(join, plan.nodes[join].timeout or 0) for join in joins]


def _timeout(node: NodePlan) -> int:
    return NONE if node.timeout is None else node.timeout


def _or(value: Any) -> Any:
    return False if value is None else value
