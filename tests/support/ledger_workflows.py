"""Small workflows of different shapes whose nodes record their effects in the ledger."""

from __future__ import annotations

from typing import Any, NamedTuple


class Shape(NamedTuple):
    """A document, its output, and the number of effects of each node."""

    document: dict[str, Any]
    output: Any
    effects: dict[str, int]
    fake_time: bool = False


def _effect(name: str, **parameters: Any) -> dict[str, Any]:
    return {"id": name, "type": "ledger.effect", "parameters": {"did": name, **parameters}}


def _set(name: str, value: str) -> dict[str, Any]:
    return {
        "id": name,
        "type": "edit",
        "parameters": {"mode": "keep_only", "assignments": [{"name": "v", "value": value}]},
    }


def _wait(name: str) -> dict[str, Any]:
    return {"id": name, "type": "wait", "parameters": {"amount": 1, "unit": "hours"}}


def _document(name: str, nodes: list[dict[str, Any]], value: str, *edges: str) -> dict[str, Any]:
    listed = [
        {"id": "in", "type": "input"},
        *nodes,
        {"id": "out", "type": "output", "parameters": {"value": value}},
    ]
    pairs = [each.split(">") for each in edges]
    return {"id": name, "nodes": listed, "edges": [{"src": a, "dst": b} for a, b in pairs]}


SHAPES: dict[str, Shape] = {
    "pure chain": Shape(
        _document(
            "pure",
            [_set("a", "{{ $trigger.n + 1 }}"), _set("b", "{{ $a.v * 2 }}"), _set("c", "{{ $b.v + 3 }}")],
            "{{ $c.v }}",
            "in>a",
            "a>b",
            "b>c",
            "c>out",
        ),
        7,
        {},
    ),
    "effects": Shape(
        _document(
            "effects",
            [_effect("e1"), _effect("e2"), _effect("e3")],
            "{{ [$e1.did, $e2.did, $e3.did] }}",
            "in>e1",
            "e1>e2",
            "e2>e3",
            "e3>out",
        ),
        ["e1", "e2", "e3"],
        {"e1": 1, "e2": 1, "e3": 1},
    ),
    "diamond": Shape(
        _document(
            "diamond",
            [_effect("e1"), _effect("e2"), {"id": "m", "type": "merge"}, _set("b", "{{ $m }}")],
            "{{ [x.did for x in $m] }}",
            "in>e1",
            "in>e2",
            "e1>m",
            "e2>m",
            "m>b",
            "b>out",
        ),
        ["e1", "e2"],
        {"e1": 1, "e2": 1},
    ),
    "split": Shape(
        _document(
            "split",
            [
                {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.items"}},
                _effect("e"),
                _set("i", "{{ $item * 10 }}"),
                {"id": "g", "type": "aggregator"},
            ],
            "{{ [x.v for x in $g] }}",
            "in>s",
            "s>e",
            "e>i",
            "i>g",
            "g>out",
        ),
        [0, 10, 20],
        {"e": 3},
    ),
    "pure split": Shape(
        _document(
            "chunk",
            [
                {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.items"}},
                _set("i", "{{ $item * 10 }}"),
                _set("j", "{{ $i.v + 1 }}"),
                {"id": "g", "type": "aggregator"},
                _effect("e"),
            ],
            "{{ [x.v for x in $g] }}",
            "in>s",
            "s>i",
            "i>j",
            "j>g",
            "g>e",
            "e>out",
        ),
        [1, 11, 21],
        {"e": 1},
    ),
    "wait": Shape(
        _document(
            "wait",
            [_effect("e1"), _wait("w"), _effect("e2")],
            "{{ [$e1.did, $e2.did] }}",
            "in>e1",
            "e1>w",
            "w>e2",
            "e2>out",
        ),
        ["e1", "e2"],
        {"e1": 1, "e2": 1},
        fake_time=True,
    ),
    "retry": Shape(
        _document(
            "retry",
            [
                {**_effect("e1", fail_attempts=2), "retry": {"max_attempts": 3, "initial_delay": 60}},
                _effect("e2"),
            ],
            "{{ [$e1.did, $e2.did] }}",
            "in>e1",
            "e1>e2",
            "e2>out",
        ),
        ["e1", "e2"],
        {"e1": 3, "e2": 1},
        fake_time=True,
    ),
    "race": Shape(
        _document(
            "race",
            [
                _effect("e1"),
                _wait("w"),
                _effect("e2"),
                {
                    "id": "m",
                    "type": "merge",
                    "parameters": {"wait_mode": "wait_for_any", "cancel_losers": True},
                },
                _effect("e3"),
            ],
            "{{ [$m.did, $e3.did] }}",
            "in>e1",
            "in>w",
            "w>e2",
            "e1>m",
            "e2>m",
            "m>e3",
            "e3>out",
        ),
        ["e1", "e3"],
        {"e1": 1, "e2": 0, "e3": 1},
        fake_time=True,
    ),
}
PAYLOAD = {"n": 1, "items": [0, 1, 2]}
