"""Handwritten models: graphs that once failed and that the generator seldom produces."""

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
    Merge,
    Model,
    Node,
    Output,
    Retry,
    SignalWait,
    Split,
    Trigger,
)

HANDWRITTEN_INTERVAL = 40
"""Every n-th seed runs a handwritten model."""


def _model(name: str, nodes: list[Node], *edges: str) -> Model:
    wires = []
    for i, text in enumerate(edges):
        src, dst = text.split(">")
        wires.append(Edge(f"e{i}", src, dst))
    return Model(name, (Node("start", Trigger()), *nodes), tuple(wires))


def shared_signal() -> Model:
    """Several nodes wait for the same signal, some with short timeouts."""
    waits = [
        Node("a", SignalWait("go"), error="ignore", timeout=1),
        Node("b", SignalWait("go"), error="ignore", timeout=3, retry=Retry(2, 1, 1)),
        Node("c", SignalWait("go")),
        Node("d", SignalWait("go"), error="ignore", timeout=2),
    ]
    return _model(
        "shared-signal",
        [*waits, Node("all", Merge()), Node("out", Output(ref("all", default=None)))],
        *(f"start>{each.id}" for each in waits),
        *(f"{each.id}>all" for each in waits),
        "all>out",
    )


def side_branch() -> Model:
    """An aggregator fed by the split itself, followed by an effect; a failing side branch is not collected."""
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
    """The losers of a race wait for signals, inside and outside of items, after the race was won."""
    return _model(
        "lost-race",
        [
            Node("each", Split(Ref("trigger", ("xs",)))),
            Node("inside", SignalWait("go")),
            Node("list", Aggregator()),
            Node("slow", SignalWait("go"), error="ignore", timeout=20),
            Node("quick", Effect("quick")),
            Node("call", Child("child-workflow", {}), error="ignore", timeout=30),
            Node("race", Merge(wait_mode="any", cancel_losers=True)),
            Node("own", SignalWait("own"), error="ignore", timeout=5),
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


def execution_timeout() -> Model:
    """A short execution timeout, from which pauses are excluded."""
    waits = [
        Node("a", SignalWait("go")),
        Node("b", SignalWait("go"), error="ignore", timeout=2),
        Node("c", Effect("c")),
    ]
    model = _model("execution-timeout", waits, "start>a", "start>b", "b>c")
    return replace(model, settings=(("timeout", 6), ("max_parallel", 1)))


def child_workflow() -> Model:
    """The child workflow of the other models."""
    nodes = [
        Node("do", Effect("do")),
        Node("wait", SignalWait("go")),
        Node("out", Output(ref("do", default=None))),
    ]
    return _model("child-workflow", nodes, "start>do", "do>wait", "wait>out")


MODELS = (shared_signal, side_branch, lost_race, shared_signal, lost_race, execution_timeout)


def handwritten_model(seed: int) -> tuple[Model, dict[str, Any]] | None:
    """The handwritten model and start payload of a seed, if it has one."""
    if seed % HANDWRITTEN_INTERVAL != HANDWRITTEN_INTERVAL - 1:
        return None
    return MODELS[seed // HANDWRITTEN_INTERVAL % len(MODELS)](), {"xs": [1, 2, 3]}
