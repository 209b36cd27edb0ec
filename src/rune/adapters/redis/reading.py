"""Reading a state back from its fields, for whoever only looks: why an execution is where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rune.adapters.redis.image import DONE_BITS, MARKS
from rune.adapters.redis.instructions import error_in, finish_in
from rune.adapters.redis.texts import Sent, maybe_ref_in, path_in, ref_in, token_in
from rune.core.barrier import Arrival, Barrier
from rune.core.effect import Finish
from rune.core.ending import COMPLETED
from rune.core.fact import Signal
from rune.core.limits import LIMITS
from rune.core.lineage import Path, indices
from rune.core.outcome import Error
from rune.core.plan import Plan
from rune.core.state import Fan, Live, Scope, State

Fields = Mapping[str, Any]


def state_of(plan: Plan, fields: Fields) -> State:
    """The state that these fields are the image of."""
    meta, fixed = fields["!"], fields["#"]
    state = State(started_at=fixed["s"], active_items=meta.get("a", 0), controls=meta.get("k", 0))
    window, items = meta.get("lw", LIMITS.window), meta.get("li", LIMITS.items_in_flight)
    if (window, items) != (LIMITS.window, LIMITS.items_in_flight):
        state.limits = type(LIMITS)(window=window, items_in_flight=items)
    state.paused_at = meta.get("p")
    state.pauses = [(begin, end) for begin, end in meta.get("ps", ())]
    state.cancelled = {(join, path_in(path)) for join, path, _ in meta.get("r", ())}
    state.failures = meta.get("u", 0)
    state.first_failures = [(path_in(p), node, error_in(each)) for p, node, each in fields.get("e", ())]
    state.unheeded = [_signal(each) for each in fields.get("q", ())]
    state.heard = {name[1:] for name in fields if name[0] == "H"}
    _scopes(state, fields)
    text = meta.get("f")
    if text is not None:
        failed = (state.failures, fields.get("e", ()))
        state.finish = finish_of(plan, text, failed)
    return state


def _signal(kept: Any) -> Signal:
    at, id, name, path = kept
    return Signal(at, id, name, path_in(path) if isinstance(path, str) else None)


def _scopes(state: State, fields: Fields) -> None:
    for name, body in fields.items():
        if name[0] == "s":
            state.scopes[path_in(name[1:])] = Scope(
                path_in(name[1:]),
                body["o"],
                body["c"],
                body["a"],
                body.get("s", False),
                done=_done(body.get("d", "")),
            )
    for name, body in fields.items():
        path, _, rest = name[1:].partition("|")
        if name[0] == "l":
            _add_live(state, path_in(path), path, int(rest), body)
        elif (
            name[0] == "b" and path_in(path) in state.scopes
        ):  # a halt leaves edges unresolved in a scope that ends
            barrier = state.scopes[path_in(path)].barriers[int(rest)] = Barrier(opened=body.get("o", False))
            for place in range(body["p"]):
                arrival = fields.get(f"a{path}|{rest}|{place}")
                if arrival is not None:
                    edge, _, alive, payload, error, at = arrival
                    barrier.arrivals[edge] = Arrival(alive, maybe_ref_in(payload), maybe_ref_in(error), at)
        elif name[0] == "f":
            state.scopes[path_in(path)].fans[int(rest)] = _fan(fields, f"{path}|{rest}", body)


def _done(text: str) -> set[int]:
    return {
        place * DONE_BITS + bit
        for place, byte in enumerate(text.encode("ascii"))
        for bit in range(DONE_BITS)
        if byte >> bit & 1
    }


def sent_of(node: int, path: str, live: Fields) -> Sent:
    """A token as it is sent, from the field of a live one."""
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
    )


def _add_live(state: State, path: Path, text: str, node: int, body: Fields) -> None:
    waiting, parked = body.get("w", False), body.get("k", False)
    token = token_in(sent_of(node, text, body))
    live = Live(token, waiting, parked, body.get("d"), body.get("s"), body.get("x"))
    if "j" in body:
        live.heard = _signal(body["j"])
    state.scopes[path].live[node] = live
    if live.signal is not None:
        state.listening.setdefault(live.signal, {})[(path, node)] = body["h"]


def _fan(fields: Fields, name: str, body: Fields) -> Fan:
    fixed = fields[f"F{name}"]
    size = 0 if body.get("z") else body["n"] * fixed["m"]
    marks = bytearray(size)
    for start in range(0, size, MARKS):
        found = fields.get(f"k{name}|{start // MARKS}", "").encode("ascii")
        marks[start : start + len(found)] = found
    started = [each for each in fields if each.startswith(f"A{name}|")] if body.get("d") else []
    return Fan(
        body["n"],
        ref_in(fixed["p"]),
        maybe_ref_in(fixed["e"]),
        marks,
        body["x"],
        {int(each.rpartition("|")[2]) for each in started},
        body["i"],
        body["a"],
        body.get("r", 0),
        body.get("f", 0),
        body.get("l", 0),
        body.get("c", False),
    )


def finish_of(plan: Plan, text: str, failed: tuple[int, Any] | bool) -> Finish:
    """An end. One because of items that failed without a list is told here, where the names of nodes are known."""
    if text != "!items":
        finish = finish_in(text)
        return COMPLETED if finish == COMPLETED else finish
    assert not isinstance(failed, bool)
    count, first = failed
    shown = []
    for path, node, failure in first:
        error = error_in(failure)
        index = list(indices(path_in(path)))
        shown.append({"node": plan.ids[node], "index": index, "code": error.code, "message": error.message})
    message = f"{count} failed without a list that shows them"
    return Finish("failed", Error("ITEMS_FAILED", message, {"count": count, "first": shown}, engine=True))
