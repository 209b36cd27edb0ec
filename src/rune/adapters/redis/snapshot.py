"""Converts an execution state to the hash fields, timers and listeners that the Lua functions use, and back.

Rebuilt states are written this way; `explain` reads a state back to show why an execution waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.adapters.redis.encoding import (
    EncodedPlan,
    SentToken,
    decode_error,
    decode_finish,
    decode_optional_ref,
    decode_path,
    decode_ref,
    encode_arrived,
    encode_error,
    encode_finish,
    encode_optional_ref,
    encode_path,
    encode_races,
    encode_ref,
    encode_region,
    encode_timer,
    listener_members,
    token_from_fields,
)
from rune.core.execution.decision import FinishExecution, Timer
from rune.core.execution.fact import CHILD_SIGNAL, SignalReceived
from rune.core.execution.inline_run import COMPLETED
from rune.core.execution.joins import Arrival, Barrier
from rune.core.execution.state import FanOutState, LiveToken, Scope, State
from rune.core.execution.token import Path, TokenPurpose
from rune.core.execution.transition import end_by_failures
from rune.core.limits import LIMITS
from rune.core.plan.model import NodePlan, Plan

MARKS_PER_FIELD = 512
DONE_BITS = 7
ZERO_ALLOWED = "dxs"
"""Fields of a live token whose zero is stored; other falsy values are left out."""

Field = tuple[str, Any]
Fields = Mapping[str, Any]


class StateSnapshot(msgspec.Struct):
    """A state as it is installed."""

    fields: list[Field]
    timers: list[tuple[int, str]]
    listeners: list[bytes]
    offset: int


class SnapshotContext(msgspec.Struct):
    """What a snapshot contains besides the facts. The execution is unloaded while all of its tokens wait longer than
    `min_sleep_ms` ms, never if that is None. Workers may hold the tokens in `leased`: each keeps its lease if it renews
    it before `leased_until`."""

    server_run_id: str
    min_sleep_ms: int | None
    offset: int = 0
    fake_time: bool = False
    read_back: bool = False
    leased: frozenset[tuple[int, Path]] = frozenset()
    leased_until: int = 0


def encode_state(
    plan: Plan, state: State, context: SnapshotContext, armed: list[tuple[Timer, int]]
) -> StateSnapshot:
    """Return the snapshot of a state."""
    names = EncodedPlan(plan)
    fields: list[Field] = [("!", _meta(plan, state, context)), ("#", _fixed(plan, state))]
    if state.first_failures:
        first = [(encode_path(path), node, encode_error(each)) for path, node, each in state.first_failures]
        fields.append(("e", first))
    if state.pending_signals:
        fields.append(("q", [_encode_signal(each) for each in state.pending_signals]))
    fields += [(f"H{each}", 1) for each in state.received_signals]
    lease = {"n": 0, "u": context.leased_until, "r": True}
    fields += [(f"c{encode_path(path)}|{node}", lease) for node, path in context.leased]
    for scope in state.scopes.values():
        fields += _scope_fields(plan, names, state, scope)
    listeners = [
        member
        for name, waiting in state.waiting_for_signal.items()
        for (path, node), since in waiting.items()
        for member in listener_members(name, path, node, since)
    ]
    return StateSnapshot(
        fields, [(due, encode_timer(timer)) for timer, due in armed], listeners, context.offset
    )


def _encode_signal(signal: SignalReceived) -> tuple[int, str, str, str | bool]:
    return signal.at, signal.id, signal.name, False if signal.path is None else encode_path(signal.path)


def _meta(plan: Plan, state: State, context: SnapshotContext) -> dict[str, Any]:
    regions = [
        (join, encode_path(path), encode_region(plan.nodes[join])) for join, path in sorted(state.cancelled)
    ]
    children = sum(
        len(each) for name, each in state.waiting_for_signal.items() if name.startswith(CHILD_SIGNAL)
    )
    found = {
        "i": context.server_run_id,
        "np": context.min_sleep_ms,
        "o": context.offset,
        "ft": context.fake_time,
        "rb": context.read_back,
        "a": state.active_items,
        "k": state.pause_state,
        "p": state.paused_at,
        "pc": None if state.paused_at is None else len(context.leased),
        "ps": state.pauses,
        "r": regions,
        "f": None if state.finish is None else encode_finish(state.finish),
        "u": state.failures,
        "v": state.failed_items or None,
        "lt": state.late,
        "lc": children,
        "m": plan.max_parallel,
        "c": len(context.leased) if plan.max_parallel is not None else None,
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
    fixed = {"s": state.started_at, "t": timeout, "r": encode_races(plan, plan.races)}
    if plan.expect_within is not None:
        fixed["l"] = plan.expect_within
    return fixed


def _scope_fields(plan: Plan, names: EncodedPlan, state: State, scope: Scope) -> Iterator[Field]:
    path = encode_path(scope.path)
    body = {
        "o": scope.opened_at,
        "c": scope.count,
        "a": scope.active,
        "s": scope.running or None,
        "x": scope.failed or None,
        "d": _bits(scope.done),
        "f": list(scope.fans),
    }
    yield f"s{path}", {name: each for name, each in body.items() if each or name in ("o", "c", "a")}
    for node, live in scope.live.items():
        since = state.waiting_for_signal.get(live.signal or "", {}).get((scope.path, node))
        yield f"l{path}|{node}", _live(live, since)
    for node, barrier in scope.barriers.items():
        yield from _barrier(plan.nodes[node], names, f"{path}|{node}", barrier)
    for split, fan in scope.fans.items():
        yield from _encode_fan(names, f"{path}|{split}", split, fan)


def _bits(done: set[int]) -> str:
    if not done:
        return ""
    found = bytearray(max(done) // DONE_BITS + 1)
    for node in done:
        found[node // DONE_BITS] |= 1 << node % DONE_BITS
    return found.decode("ascii")


def _live(live: LiveToken, since: int | None) -> dict[str, Any]:
    token = live.token
    found = {
        "e": encode_optional_ref(token.error),
        "r": encode_arrived(token.arrived),
        "f": None if token.fate is TokenPurpose.RUN else token.fate.value,
        "t": None if token.attempt == 1 else token.attempt,
        "m": token.resumed,
        "g": token.signal,
        "i": token.items,
        "z": token.at,
        "o": token.last + 1,
        "w": live.waiting,
        "k": live.parked,
        "d": live.due,
        "s": live.signal,
        "x": live.deadline,
        "h": since,
        "j": None if live.received_signal is None else _encode_signal(live.received_signal),
    }
    kept = {name: each for name, each in found.items() if each or (name in ZERO_ALLOWED and each is not None)}
    return {"p": encode_ref(token.payload), **kept}


def _barrier(node: NodePlan, names: EncodedPlan, name: str, barrier: Barrier) -> Iterator[Field]:
    if not barrier.arrivals:
        return
    parties = 0
    for edge, each in barrier.arrivals.items():
        _, _, place, _, source, parties, *_ = names.join(edge)
        payload, error = encode_optional_ref(each.payload), encode_optional_ref(each.error)
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


def _encode_fan(names: EncodedPlan, name: str, split: int, fan: FanOutState) -> Iterator[Field]:
    window, gathers, edges, timeout, since, template, races = names.fan(split)
    payload, error = encode_ref(fan.payload), encode_optional_ref(fan.error)
    fixed = {"n": fan.count, "p": payload, "e": error, "w": window, "g": gathers, "m": edges, "t": timeout}
    yield f"F{name}", {**fixed, "o": since, "x": template, "r": races}
    released = gathers >= 0 and fan.count * edges > 0 and not fan.marks
    body = {
        "r": fan.resolved,
        "f": fan.first,
        "l": fan.latest,
        "q": fan.last + 1,
        "c": fan.closed,
        "z": released,
        "d": len(fan.ahead),
    }
    kept = {key: each for key, each in body.items() if each}
    yield f"f{name}", {"n": fan.count, "x": fan.next, "i": fan.in_flight, "a": fan.active, **kept}
    for item in fan.ahead:
        yield f"A{name}|{item}", 1
    for start in range(0, len(fan.marks), MARKS_PER_FIELD):
        marks = bytes(fan.marks[start : start + MARKS_PER_FIELD]).rstrip(b"\0")
        if marks:
            yield f"k{name}|{start // MARKS_PER_FIELD}", marks.decode("ascii")


def read_fields(raw: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Decode the fields of an execution."""
    return {name.decode(): msgspec.msgpack.decode(value) for name, value in raw.items()}


def decode_state(plan: Plan, fields: Fields) -> State:
    """Return the state that these fields encode."""
    meta, fixed = fields["!"], fields["#"]
    state = State(started_at=fixed["s"], active_items=meta.get("a", 0), pause_state=meta.get("k", 0))
    window, items = meta.get("lw", LIMITS.window), meta.get("li", LIMITS.items_in_flight)
    if (window, items) != (LIMITS.window, LIMITS.items_in_flight):
        state.limits = type(LIMITS)(window=window, items_in_flight=items)
    state.paused_at = meta.get("p")
    state.pauses = [(begin, end) for begin, end in meta.get("ps", ())]
    state.late = meta.get("lt", False)
    state.cancelled = {(join, decode_path(path)) for join, path, _ in meta.get("r", ())}
    state.failures = meta.get("u", 0)
    state.failed_items = meta.get("v", 0)
    state.first_failures = [
        (decode_path(p), node, decode_error(each)) for p, node, each in fields.get("e", ())
    ]
    state.pending_signals = [_decode_signal(each) for each in fields.get("q", ())]
    state.received_signals = {name[1:] for name in fields if name[0] == "H"}
    _add_scopes(state, fields)
    text = meta.get("f")
    if text is not None:
        failed = (state.failures, fields.get("e", ()), state.failed_items)
        state.finish = finish_of(plan, text, failed)
    return state


def _decode_signal(stored: Any) -> SignalReceived:
    at, id, name, path = stored
    return SignalReceived(at, id, name, decode_path(path) if isinstance(path, str) else None)


def _add_scopes(state: State, fields: Fields) -> None:
    for name, body in fields.items():
        if name[0] == "s":
            state.scopes[decode_path(name[1:])] = Scope(
                decode_path(name[1:]),
                body["o"],
                body["c"],
                body["a"],
                body.get("s", False),
                body.get("x", False),
                done=_done(body.get("d", "")),
            )
    for name, body in fields.items():
        path, _, rest = name[1:].partition("|")
        if name[0] == "l":
            _add_live(state, decode_path(path), path, int(rest), body)
        # A halt leaves barriers of scopes that have ended.
        elif name[0] == "b" and decode_path(path) in state.scopes:
            barrier = state.scopes[decode_path(path)].barriers[int(rest)] = Barrier(
                opened=body.get("o", False)
            )
            for place in range(body["p"]):
                arrival = fields.get(f"a{path}|{rest}|{place}")
                if arrival is not None:
                    edge, _, alive, payload, error, at = arrival
                    barrier.arrivals[edge] = Arrival(
                        alive, decode_optional_ref(payload), decode_optional_ref(error), at
                    )
        elif name[0] == "f":
            state.scopes[decode_path(path)].fans[int(rest)] = _decode_fan(fields, f"{path}|{rest}", body)


def _done(text: str) -> set[int]:
    return {
        place * DONE_BITS + bit
        for place, byte in enumerate(text.encode("ascii"))
        for bit in range(DONE_BITS)
        if byte >> bit & 1
    }


def sent_of(node: int, path: str, live: Fields) -> SentToken:
    """Return a token in its sent form from the field of a live token."""
    return (
        node,
        path,
        live["p"],
        live.get("e", False),
        live.get("r", ""),
        live.get("f", "run"),
        live.get("t", 1),
        live.get("m", False),
        live.get("g", False),
        live.get("i", 0),
        live.get("z", 0),
        live.get("o", 0),
    )


def _add_live(state: State, path: Path, text: str, node: int, body: Fields) -> None:
    waiting, parked = body.get("w", False), body.get("k", False)
    token = token_from_fields(sent_of(node, text, body))
    live = LiveToken(token, waiting, parked, body.get("d"), body.get("s"), body.get("x"))
    if "j" in body:
        live.received_signal = _decode_signal(body["j"])
    state.scopes[path].live[node] = live
    if live.signal is not None:
        state.waiting_for_signal.setdefault(live.signal, {})[(path, node)] = body["h"]


def _decode_fan(fields: Fields, name: str, body: Fields) -> FanOutState:
    fixed = fields[f"F{name}"]
    size = 0 if body.get("z") else body["n"] * fixed["m"]
    marks = bytearray(size)
    for start in range(0, size, MARKS_PER_FIELD):
        found = fields.get(f"k{name}|{start // MARKS_PER_FIELD}", "").encode("ascii")
        marks[start : start + len(found)] = found
    started = [each for each in fields if each.startswith(f"A{name}|")] if body.get("d") else []
    return FanOutState(
        body["n"],
        decode_ref(fixed["p"]),
        decode_optional_ref(fixed["e"]),
        marks,
        body["x"],
        {int(each.rpartition("|")[2]) for each in started},
        body["i"],
        body["a"],
        body.get("r", 0),
        body.get("f", 0),
        body.get("l", 0),
        body.get("c", False),
        last=body.get("q", 0) - 1,
    )


def finish_of(plan: Plan, text: str, failed: tuple[int, Any, int] | bool) -> FinishExecution:
    """Return an end. The error of failed items without an aggregator is built here, where node names are known."""
    count, first, items = (0, (), 0) if isinstance(failed, bool) else failed
    if text != "!items":
        finish = decode_finish(text)
        if finish == COMPLETED and not items:
            return COMPLETED
    else:
        finish = end_by_failures(
            plan, count, [(decode_path(path), node, decode_error(failure)) for path, node, failure in first]
        )
    return replace(finish, failed_items=items) if items else finish
