"""Operations on executions as steps, with the expected results and the failpoints that they pass."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

Steps = list[dict[str, Any]]


class Scenario(NamedTuple):
    """Steps, the expected status and output of each named execution, effects per node, and the failpoints passed."""

    steps: Steps
    ends: dict[str, tuple[str, Any]]
    effects: dict[str, int]
    points: tuple[str, ...]


def effect(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": "ledger.effect", "parameters": {"did": name}, **fields}


def document(name: str, nodes: list[dict[str, Any]], value: Any, **settings: Any) -> dict[str, Any]:
    """A chain from the input through the nodes to the output."""
    chain = [
        {"id": "in", "type": "input"},
        *nodes,
        {"id": "out", "type": "output", "parameters": {"value": value}},
    ]
    edges = [{"src": a["id"], "dst": b["id"]} for a, b in itertools.pairwise(chain)]
    return {"id": name, "settings": settings, "nodes": chain, "edges": edges}


WAIT: dict[str, Any] = {"id": "ask", "type": "wait", "parameters": {"resume": "signal"}}
CALL: dict[str, Any] = {"id": "call", "type": "workflow", "parameters": {"workflow": "kid"}}
WAITS = document("waits", [effect("e1"), WAIT, effect("e2")], "{{ [$e1.did, $ask, $e2.did] }}")
QUICK_KID = document("kid", [effect("k1")], "$k1.did")
WAITING_KID = document("kid", [effect("k1"), WAIT], "$ask")
PARENT = document("parent", [effect("e1"), CALL, effect("e2")], "{{ [$e1.did, $call, $e2.did] }}")
START_POINTS = ("accepted", "admitted", "received", "claimed", "ran", "journaled", "applied", "sent")

SIGNAL = {"signal": {"name": "ask", "value": 7, "key": "s1"}}
RESUMED_OUTPUT = ["e1", 7, "e2"]


def _start(source: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"start": {"document": source, "key": "start", **fields}}


def _limited(**fields: Any) -> dict[str, Any]:
    return {**WAIT, "error": "ignore", **fields}


SCENARIOS: dict[str, Scenario] = {
    "signal": Scenario(
        [_start(WAITS), {"await": {"waiting": "ask"}}, SIGNAL, {"await": "ended"}],
        {"it": ("completed", RESUMED_OUTPUT)},
        {"e1": 1, "e2": 1},
        (*START_POINTS, "signalled", "signal_applied", "ending", "ended"),
    ),
    "early signal": Scenario(
        [_start(WAITS), SIGNAL, {"await": "ended"}],
        {"it": ("completed", RESUMED_OUTPUT)},
        {"e1": 1, "e2": 1},
        ("signalled", "signal_applied", "journaled", "applied", "sent"),
    ),
    "pause": Scenario(
        [
            _start(WAITS),
            {"await": {"waiting": "ask"}},
            {"pause": None},
            SIGNAL,
            {"await": {"parked": "ask"}},
            {"resume": None},
            {"await": "ended"},
        ],
        {"it": ("completed", RESUMED_OUTPUT)},
        {"e1": 1, "e2": 1},
        ("controlled", "signalled", "signal_applied", "journaled", "applied", "sent"),
    ),
    "cancel": Scenario(
        [_start(WAITS), {"await": {"waiting": "ask"}}, {"cancel": None}, {"await": "ended"}],
        {"it": ("cancelled", None)},
        {"e1": 1, "e2": 0},
        ("ending", "ended"),
    ),
    "child": Scenario(
        [{"deploy": {"document": QUICK_KID}}, _start(PARENT), {"await": "ended"}],
        {"it": ("completed", ["e1", "k1", "e2"])},
        {"e1": 1, "k1": 1, "e2": 1},
        (
            *START_POINTS,
            "launching",
            "launched",
            "reporting",
            "signalled",
            "signal_applied",
            "ending",
            "ended",
        ),
    ),
    "detached child": Scenario(
        [
            {"deploy": {"document": QUICK_KID}},
            _start(
                document(
                    "parent",
                    [{**CALL, "parameters": {"workflow": "kid", "wait": False}}, effect("e2")],
                    "$e2.did",
                )
            ),
            {"await": "ended"},
            {"find": {"workflow": "kid"}, "as": "kid"},
            {"await": "ended", "as": "kid"},
        ],
        {"it": ("completed", "e2"), "kid": ("completed", "k1")},
        {"k1": 1, "e2": 1},
        ("launching", "launched", "accepted", "admitted", "ran", "journaled", "applied", "ended"),
    ),
    "cancelled parent": Scenario(
        [
            {"deploy": {"document": WAITING_KID}},
            _start(PARENT),
            {"find": {"workflow": "kid"}, "as": "kid"},
            {"await": {"waiting": "ask"}, "as": "kid"},
            {"cancel": None},
            {"await": "ended"},
            {"await": "ended", "as": "kid"},
        ],
        {"it": ("cancelled", None), "kid": ("cancelled", None)},
        {"e1": 1, "k1": 1, "e2": 0},
        ("launched", "journaled", "ending", "ended", "reporting"),
    ),
    "child of a retry": Scenario(
        [
            {"deploy": {"document": WAITING_KID}},
            _start(PARENT),
            {"find": {"workflow": "kid"}, "as": "kid"},
            {"await": {"waiting": "call"}},
            {"await": {"waiting": "ask"}, "as": "kid"},
            {"signal": {"name": "ask", "value": "hi", "key": "s1"}, "as": "kid"},
            {"await": "ended"},
        ],
        {"it": ("completed", ["e1", "hi", "e2"]), "kid": ("completed", "hi")},
        {"e1": 1, "k1": 1, "e2": 1},
        ("signalled", "signal_applied", "reporting", "ended", "launched"),
    ),
    "retry": Scenario(
        [
            _start(WAITS),
            {"await": {"waiting": "ask"}},
            {"cancel": None},
            {"retry": {"key": "r1"}, "as": "again"},
            {"signal": {"name": "ask", "value": 7, "key": "s1"}, "as": "again"},
            {"await": "ended", "as": "again"},
        ],
        {"it": ("cancelled", None), "again": ("completed", RESUMED_OUTPUT)},
        {"e1": 1, "e2": 1},
        (*START_POINTS, "signalled", "signal_applied", "ending", "ended"),
    ),
    "rerun": Scenario(
        [
            _start(WAITS),
            SIGNAL,
            {"await": "ended"},
            {"rerun": {"from": "e2", "key": "r1"}, "as": "again"},
            {"await": "ended", "as": "again"},
        ],
        {"it": ("completed", RESUMED_OUTPUT), "again": ("completed", RESUMED_OUTPUT)},
        {"e1": 1, "e2": 2},
        ("accepted", "admitted", "journaled", "applied", "sent", "ended"),
    ),
    "deadline": Scenario(
        [
            _start(document("late", [effect("e1"), WAIT], "$ask", timeout=3600), fake_time=True),
            {"await": "ended"},
        ],
        {"it": ("failed", None)},
        {"e1": 1},
        ("journaled", "applied", "fired", "ending", "ended"),
    ),
    "deadline with a child": Scenario(
        [
            {"deploy": {"document": WAITING_KID}},
            _start({**PARENT, "settings": {"timeout": 0.5}}),
            {"await": "ended"},
            {"find": {"workflow": "kid"}, "as": "kid"},
            {"await": "ended", "as": "kid"},
        ],
        {"it": ("failed", None), "kid": ("cancelled", None)},
        {"e1": 1, "k1": 1, "e2": 0},
        ("fired", "ending", "ended", "reporting"),
    ),
    "wait too long": Scenario(
        [
            _start(
                document("limited", [_limited(timeout=60), effect("e2")], "{{ $ask.error.code }}"),
                fake_time=True,
            ),
            {"await": "ended"},
        ],
        {"it": ("completed", "TIMEOUT")},
        {"e2": 1},
        ("fired", "received", "claimed", "journaled", "applied", "sent", "ended"),
    ),
}
