"""Workflows of the telemetry tests."""

from __future__ import annotations

from typing import Any

FAST = {"max_attempts": 3, "initial_delay": 0.01, "jitter": False}

MIXED: dict[str, Any] = {
    "id": "mixed",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "a", "type": "tele.where"},
        {"id": "b", "type": "tele.flaky", "retry": FAST},
        {"id": "both", "type": "merge", "parameters": {"mode": "append"}},
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        {"id": "each", "type": "tele.where"},
        {"id": "all", "type": "aggregator"},
        {"id": "w", "type": "wait", "parameters": {"amount": 0.01}},
        {"id": "out", "type": "output", "parameters": {"value": "{{ $all }}"}},
    ],
    "edges": [
        {"src": "in", "dst": "a"},
        {"src": "in", "dst": "b"},
        {"src": "a", "dst": "both"},
        {"src": "b", "dst": "both"},
        {"src": "both", "dst": "s"},
        {"src": "s", "dst": "each"},
        {"src": "each", "dst": "all"},
        {"src": "all", "dst": "w"},
        {"src": "w", "dst": "out"},
    ],
}
FAILING: dict[str, Any] = {
    "id": "fails",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "no", "type": "tele.flaky", "parameters": {"times": 9}},
    ],
    "edges": [{"src": "in", "dst": "no"}],
}
LOGGING: dict[str, Any] = {
    "id": "talks",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        {"id": "t", "type": "tele.talks", "credentials": {"name": "shown"}},
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [{"src": "in", "dst": "s"}, {"src": "s", "dst": "t"}, {"src": "t", "dst": "all"}],
}
HTTP_CALL: dict[str, Any] = {
    "id": "calls",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "h", "type": "http", "parameters": {"url": "{{ $trigger.url }}"}},
    ],
    "edges": [{"src": "in", "dst": "h"}],
}
BLOCKING: dict[str, Any] = {
    "id": "holds",
    "nodes": [{"id": "in", "type": "input"}, {"id": "h", "type": "tele.holds"}],
    "edges": [{"src": "in", "dst": "h"}],
}
PARENT: dict[str, Any] = {
    "id": "parent",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "c", "type": "workflow", "parameters": {"workflow": "child"}},
    ],
    "edges": [{"src": "in", "dst": "c"}],
}
CHILD: dict[str, Any] = {
    "id": "child",
    "nodes": [{"id": "in", "type": "input"}, {"id": "n", "type": "tele.where"}],
    "edges": [{"src": "in", "dst": "n"}],
}
OTHER_QUEUE: dict[str, Any] = {
    "id": "elsewhere",
    "nodes": [{"id": "in", "type": "input"}, {"id": "g", "type": "tele.where", "queue": "gpu"}],
    "edges": [{"src": "in", "dst": "g"}],
}
