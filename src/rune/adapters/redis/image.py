"""The image of a state: the fields, timers and listeners by which the scripts know it, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rune.adapters.redis.instructions import Instructions, error_out, finish_out, races_out, region_out
from rune.adapters.redis.texts import (
    arrived_out,
    listener_members,
    maybe_ref_out,
    path_out,
    ref_out,
    timer_out,
)
from rune.core.barrier import Barrier
from rune.core.effect import Timer
from rune.core.fact import Signal
from rune.core.limits import LIMITS
from rune.core.plan import NodePlan, Plan
from rune.core.state import Fan, Live, Scope, State
from rune.core.token import Fate

MARKS = 512  # places to a field
DONE_BITS = 7
MAY_BE_ZERO = "dxs"

Field = tuple[str, Any]


class Image(msgspec.Struct):
    """What is to be installed."""

    fields: list[Field]
    timers: list[tuple[int, str]]
    listeners: list[bytes]
    offset: int


class Circumstances(msgspec.Struct):
    """What a state is installed with that does not follow from facts."""

    incarnation: str
    nap: int | None  # ms: shorter waits stay; None: all do
    offset: int = 0
    fake_time: bool = False
    read_back: bool = False


def image(plan: Plan, state: State, around: Circumstances, armed: list[tuple[Timer, int]]) -> Image:
    """How a folded state is written."""
    names = Instructions(plan)
    fields: list[Field] = [("!", _meta(plan, state, around)), ("#", _fixed(plan, state))]
    if state.first_failures:
        first = [(path_out(path), node, error_out(each)) for path, node, each in state.first_failures]
        fields.append(("e", first))
    if state.unheeded:
        fields.append(("q", [_signal(each) for each in state.unheeded]))
    fields += [(f"H{each}", 1) for each in state.heard]
    for scope in state.scopes.values():
        fields += _scope_fields(plan, names, state, scope)
    listeners = [
        member
        for name, waiting in state.listening.items()
        for (path, node), since in waiting.items()
        for member in listener_members(name, path, node, since)
    ]
    return Image(fields, [(due, timer_out(timer)) for timer, due in armed], listeners, around.offset)


def _signal(signal: Signal) -> tuple[int, str, str, str | bool]:
    return signal.at, signal.id, signal.name, False if signal.path is None else path_out(signal.path)


def _meta(plan: Plan, state: State, around: Circumstances) -> dict[str, Any]:
    regions = [(join, path_out(path), region_out(plan.nodes[join])) for join, path in sorted(state.cancelled)]
    children = sum(len(each) for name, each in state.listening.items() if name.startswith("child:"))
    found = {
        "i": around.incarnation,
        "np": around.nap,
        "o": around.offset,
        "ft": around.fake_time,
        "rb": around.read_back,
        "a": state.active_items,
        "k": state.controls,
        "p": state.paused_at,
        "pc": None if state.paused_at is None else 0,
        "ps": state.pauses,
        "r": regions,
        "f": None if state.finish is None else finish_out(state.finish),
        "u": state.failures,
        "lc": children,
        "m": plan.max_parallel,
        "c": 0 if plan.max_parallel is not None else None,
        "lw": None if state.limits.window == LIMITS.window else state.limits.window,
        "li": None
        if state.limits.items_in_flight == LIMITS.items_in_flight
        else state.limits.items_in_flight,
    }
    return {
        name: value
        for name, value in found.items()
        if value or (name in ("i", "c", "np", "pc") and value is not None)
    }


def _fixed(plan: Plan, state: State) -> dict[str, Any]:
    timeout = -1 if plan.timeout is None else plan.timeout
    return {"s": state.started_at, "t": timeout, "r": races_out(plan, plan.races)}


def _scope_fields(plan: Plan, names: Instructions, state: State, scope: Scope) -> Iterator[Field]:
    path = path_out(scope.path)
    body = {
        "o": scope.opened_at,
        "c": scope.count,
        "a": scope.active,
        "s": scope.stirring or None,
        "d": _bits(scope.done),
        "f": list(scope.fans),
    }
    yield f"s{path}", {name: each for name, each in body.items() if each or name in ("o", "c", "a")}
    for node, live in scope.live.items():
        since = state.listening.get(live.signal or "", {}).get((scope.path, node))
        yield f"l{path}|{node}", _live(live, since)
    for node, barrier in scope.barriers.items():
        yield from _barrier(plan.nodes[node], names, f"{path}|{node}", barrier)
    for split, fan in scope.fans.items():
        yield from _fan(names, f"{path}|{split}", split, fan)


def _bits(done: set[int]) -> str:
    if not done:
        return ""
    found = bytearray(max(done) // DONE_BITS + 1)
    for node in done:
        found[node // DONE_BITS] |= 1 << node % DONE_BITS
    return found.decode("ascii")


def _live(live: Live, since: int | None) -> dict[str, Any]:
    token = live.token
    found = {
        "e": maybe_ref_out(token.error),
        "r": arrived_out(token.arrived),
        "f": None if token.fate is Fate.RUN else token.fate.value,
        "t": None if token.attempt == 1 else token.attempt,
        "m": token.resumed,
        "g": token.signal,
        "i": token.items,
        "z": token.at,
        "w": live.waiting,
        "k": live.parked,
        "d": live.due,
        "s": live.signal,
        "x": live.deadline,
        "h": since,
        "j": None if live.heard is None else _signal(live.heard),
    }
    kept = {name: each for name, each in found.items() if each or (name in MAY_BE_ZERO and each is not None)}
    return {"p": ref_out(token.payload), **kept}


def _barrier(node: NodePlan, names: Instructions, name: str, barrier: Barrier) -> Iterator[Field]:
    if not barrier.arrivals:
        return
    parties = 0
    for edge, each in barrier.arrivals.items():
        _, _, place, _, source, parties, *_ = names.join(edge)
        payload, error = maybe_ref_out(each.payload), maybe_ref_out(each.error)
        yield f"a{name}|{place}", (edge, source, each.alive, payload, error, each.at)
    body = {
        "n": len(barrier.arrivals),
        "l": len(barrier.live()),
        "f": barrier.first,
        "t": barrier.latest,
        "p": parties,
        "x": -1 if node.timeout is None else node.timeout,
        "y": node.timeout_from,
    }
    yield f"b{name}", {**body, "o": True} if barrier.opened else body


def _fan(names: Instructions, name: str, split: int, fan: Fan) -> Iterator[Field]:
    window, gathers, edges, timeout, since, template, races = names.fan(split)
    payload, error = ref_out(fan.payload), maybe_ref_out(fan.error)
    fixed = {"n": fan.count, "p": payload, "e": error, "w": window, "g": gathers, "m": edges, "t": timeout}
    yield f"F{name}", {**fixed, "o": since, "x": template, "r": races}
    released = gathers >= 0 and fan.count * edges > 0 and not fan.marks
    body = {
        "r": fan.resolved,
        "f": fan.first,
        "l": fan.latest,
        "c": fan.closed,
        "z": released,
        "d": len(fan.ahead),
    }
    kept = {key: each for key, each in body.items() if each}
    yield f"f{name}", {"n": fan.count, "x": fan.next, "i": fan.in_flight, "a": fan.active, **kept}
    for item in fan.ahead:
        yield f"A{name}|{item}", 1
    for start in range(0, len(fan.marks), MARKS):
        marks = bytes(fan.marks[start : start + MARKS]).rstrip(b"\0")
        if marks:
            yield f"k{name}|{start // MARKS}", marks.decode("ascii")


def read_fields(raw: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The fields of an execution, decoded."""
    return {name.decode(): msgspec.msgpack.decode(value) for name, value in raw.items()}
