"""What is asked of executions in the acts that may be interrupted: documents, steps, and what must come out."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

Steps = list[dict[str, Any]]


class Story(NamedTuple):
    """Steps; how the executions that they name must end, with what output; effects by node; where it may die."""

    steps: Steps
    ends: dict[str, tuple[str, Any]]
    effects: dict[str, int]
    points: tuple[str, ...]


def effect(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": "ledger.effect", "parameters": {"did": name}, **fields}


def document(name: str, nodes: list[dict[str, Any]], value: Any, **settings: Any) -> dict[str, Any]:
    """A chain, from the input through the nodes to the output."""
    chain = [
        {"id": "in", "type": "input"},
        *nodes,
        {"id": "out", "type": "output", "parameters": {"value": value}},
    ]
    edges = [{"src": a["id"], "dst": b["id"]} for a, b in itertools.pairwise(chain)]
    return {"id": name, "settings": settings, "nodes": chain, "edges": edges}


ASK: dict[str, Any] = {"id": "ask", "type": "wait", "parameters": {"resume": "signal"}}
CALL: dict[str, Any] = {"id": "call", "type": "workflow", "parameters": {"workflow": "kid"}}
ASKS = document("asks", [effect("e1"), ASK, effect("e2")], "{{ [$e1.did, $ask, $e2.did] }}")
QUICK_KID = document("kid", [effect("k1")], "$k1.did")
WAITING_KID = document("kid", [effect("k1"), ASK], "$ask")
PARENT = document("parent", [effect("e1"), CALL, effect("e2")], "{{ [$e1.did, $call, $e2.did] }}")
BEGUN = ("accepted", "admitted", "received", "claimed", "ran", "journaled", "applied", "sent")

SIGNAL = {"signal": {"name": "ask", "value": 7, "key": "s1"}}
TOLD = ["e1", 7, "e2"]


def _started(source: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"start": {"document": source, "key": "start", **fields}}


def _limited(**fields: Any) -> dict[str, Any]:
    return {**ASK, "error": "ignore", **fields}


STORIES: dict[str, Story] = {
    "signal": Story(
        [_started(ASKS), {"await": {"waiting": "ask"}}, SIGNAL, {"await": "ended"}],
        {"it": ("completed", TOLD)},
        {"e1": 1, "e2": 1},
        (*BEGUN, "signalled", "heard", "ending", "ended"),
    ),
    "early signal": Story(
        [_started(ASKS), SIGNAL, {"await": "ended"}],
        {"it": ("completed", TOLD)},
        {"e1": 1, "e2": 1},
        ("signalled", "heard", "journaled", "applied", "sent"),
    ),
    "pause": Story(
        [
            _started(ASKS),
            {"await": {"waiting": "ask"}},
            {"pause": None},
            SIGNAL,
            {"await": {"parked": "ask"}},
            {"resume": None},
            {"await": "ended"},
        ],
        {"it": ("completed", TOLD)},
        {"e1": 1, "e2": 1},
        ("controlled", "signalled", "heard", "journaled", "applied", "sent"),
    ),
    "cancel": Story(
        [_started(ASKS), {"await": {"waiting": "ask"}}, {"cancel": None}, {"await": "ended"}],
        {"it": ("cancelled", None)},
        {"e1": 1, "e2": 0},
        ("ending", "ended"),
    ),
    "child": Story(
        [{"deploy": {"document": QUICK_KID}}, _started(PARENT), {"await": "ended"}],
        {"it": ("completed", ["e1", "k1", "e2"])},
        {"e1": 1, "k1": 1, "e2": 1},
        (*BEGUN, "launching", "launched", "telling", "signalled", "heard", "ending", "ended"),
    ),
    "detached child": Story(
        [
            {"deploy": {"document": QUICK_KID}},
            _started(
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
    "cancelled parent": Story(
        [
            {"deploy": {"document": WAITING_KID}},
            _started(PARENT),
            {"find": {"workflow": "kid"}, "as": "kid"},
            {"await": {"waiting": "ask"}, "as": "kid"},
            {"cancel": None},
            {"await": "ended"},
            {"await": "ended", "as": "kid"},
        ],
        {"it": ("cancelled", None), "kid": ("cancelled", None)},
        {"e1": 1, "k1": 1, "e2": 0},
        ("launched", "journaled", "ending", "ended", "telling"),
    ),
    "child of a retry": Story(
        [
            {"deploy": {"document": WAITING_KID}},
            _started(PARENT),
            {"find": {"workflow": "kid"}, "as": "kid"},
            {"await": {"waiting": "call"}},
            {"await": {"waiting": "ask"}, "as": "kid"},
            {"signal": {"name": "ask", "value": "hi", "key": "s1"}, "as": "kid"},
            {"await": "ended"},
        ],
        {"it": ("completed", ["e1", "hi", "e2"]), "kid": ("completed", "hi")},
        {"e1": 1, "k1": 1, "e2": 1},
        ("signalled", "heard", "telling", "ended", "launched"),
    ),
    "retry": Story(
        [
            _started(ASKS),
            {"await": {"waiting": "ask"}},
            {"cancel": None},
            {"retry": {"key": "r1"}, "as": "again"},
            {"signal": {"name": "ask", "value": 7, "key": "s1"}, "as": "again"},
            {"await": "ended", "as": "again"},
        ],
        {"it": ("cancelled", None), "again": ("completed", TOLD)},
        {"e1": 1, "e2": 1},
        (*BEGUN, "signalled", "heard", "ending", "ended"),
    ),
    "rerun": Story(
        [
            _started(ASKS),
            SIGNAL,
            {"await": "ended"},
            {"rerun": {"from": "e2", "key": "r1"}, "as": "again"},
            {"await": "ended", "as": "again"},
        ],
        {"it": ("completed", TOLD), "again": ("completed", TOLD)},
        {"e1": 1, "e2": 2},
        ("accepted", "admitted", "journaled", "applied", "sent", "ended"),
    ),
    "deadline": Story(
        [
            _started(document("late", [effect("e1"), ASK], "$ask", timeout=3600), fake_time=True),
            {"await": "ended"},
        ],
        {"it": ("failed", None)},
        {"e1": 1},
        ("journaled", "applied", "fired", "ending", "ended"),
    ),
    "deadline with a child": Story(
        [
            {"deploy": {"document": WAITING_KID}},
            _started({**PARENT, "settings": {"timeout": 0.5}}),
            {"await": "ended"},
            {"find": {"workflow": "kid"}, "as": "kid"},
            {"await": "ended", "as": "kid"},
        ],
        {"it": ("failed", None), "kid": ("cancelled", None)},
        {"e1": 1, "k1": 1, "e2": 0},
        ("fired", "ending", "ended", "telling"),
    ),
    "wait too long": Story(
        [
            _started(
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
