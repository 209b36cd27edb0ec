"""Definitions made by hand: shapes in which something once went wrong, and which chance seldom makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.oracle.expr import Ref, ref
from tests.simulation.oracle.model import (
    Aggregator,
    Child,
    Edge,
    Edit,
    Effect,
    Hear,
    Merge,
    Model,
    Node,
    Output,
    Retry,
    Split,
    Trigger,
)

EVERY = 40
"""One seed in so many runs one of these."""


def _model(name: str, nodes: list[Node], *edges: str) -> Model:
    wires = []
    for i, text in enumerate(edges):
        src, dst = text.split(">")
        wires.append(Edge(f"e{i}", src, dst))
    return Model(name, (Node("start", Trigger()), *nodes), tuple(wires))


def one_name() -> Model:
    """Several wait for the same signal, some not for long."""
    waits = [
        Node("a", Hear("go"), error="ignore", timeout=1),
        Node("b", Hear("go"), error="ignore", timeout=3, retry=Retry(2, 1, 1)),
        Node("c", Hear("go")),
        Node("d", Hear("go"), error="ignore", timeout=2),
    ]
    return _model(
        "one-name",
        [*waits, Node("all", Merge()), Node("out", Output(ref("all", default=None)))],
        *(f"start>{each.id}" for each in waits),
        *(f"{each.id}>all" for each in waits),
        "all>out",
    )


def side_branch() -> Model:
    """A list that stands on nothing in its items, and an effect behind it; what fails is beside it."""
    return _model(
        "side-branch",
        [
            Node("each", Split(Ref("trigger", ("xs",)), max_in_flight=1)),
            Node("beside", Effect("beside", fail_items=(0, 1, 2))),
            Node("behind", Edit((("i", Ref("index")),))),
            Node("list", Aggregator()),
            Node("then", Effect("then")),
        ],
        "start>each",
        "each>beside",
        "beside>behind",
        "each>list",
        "list>then",
    )


def lost_race() -> Model:
    """Whoever loses waits for a signal, in items and beside them, when nobody needs it any more."""
    return _model(
        "lost-race",
        [
            Node("each", Split(Ref("trigger", ("xs",)))),
            Node("inside", Hear("go")),
            Node("list", Aggregator()),
            Node("slow", Hear("go"), error="ignore", timeout=20),
            Node("quick", Effect("quick")),
            Node("call", Child("small", {}), error="ignore", timeout=30),
            Node("race", Merge(wait_mode="any", cancel_losers=True)),
            Node("own", Hear("own"), error="ignore", timeout=5),
            Node("out", Output(ref("race", default=None))),
        ],
        "start>each",
        "each>inside",
        "inside>list",
        "list>race",
        "start>slow",
        "slow>race",
        "start>call",
        "call>race",
        "start>quick",
        "quick>race",
        "race>out",
        "start>own",
    )


def in_time() -> Model:
    """The whole may not take long, pauses not counted."""
    waits = [Node("a", Hear("go")), Node("b", Hear("go"), error="ignore", timeout=2), Node("c", Effect("c"))]
    model = _model("in-time", waits, "start>a", "start>b", "b>c")
    return replace(model, settings=(("timeout", 6), ("max_parallel", 1)))


def small() -> Model:
    """What the others start."""
    nodes = [Node("do", Effect("do")), Node("hear", Hear("go")), Node("out", Output(ref("do", default=None)))]
    return _model("small", nodes, "start>do", "do>hear", "hear>out")


SHAPES = (one_name, side_branch, lost_race, one_name, lost_race, in_time)


def known_model(seed: int) -> tuple[Model, dict[str, Any]] | None:
    """The definition of a seed that runs one made by hand."""
    if seed % EVERY != EVERY - 1:
        return None
    return SHAPES[seed // EVERY % len(SHAPES)](), {"xs": [1, 2, 3]}
