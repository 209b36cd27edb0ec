"""Converts a model to the JSON document of the workflow language."""

from __future__ import annotations

from typing import Any

from tests.simulation.oracle.model import (
    Aggregator,
    Child,
    Conditional,
    Edge,
    Edit,
    Effect,
    Fail,
    Log,
    Merge,
    Model,
    Node,
    Output,
    Params,
    SignalWait,
    Split,
    Switch,
    Wait,
)

TYPES = {"trigger": "input", "effect": "test.effect", "signal_wait": "wait", "child": "workflow"}


def to_document(model: Model) -> dict[str, Any]:
    error_edges = {edge.src: edge.id for edge in model.edges if edge.is_error}
    document: dict[str, Any] = {"id": model.id}
    if model.settings:
        document["settings"] = dict(model.settings)
    document["nodes"] = [_node(node, error_edges) for node in model.nodes]
    document["edges"] = [_edge(edge) for edge in model.edges]
    return document


def _node(node: Node, error_edges: dict[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": node.id, "type": TYPES.get(node.kind, node.kind)}
    parameters = _parameters(node.params)
    if parameters:
        entry["parameters"] = parameters
    if node.error == "branch":
        entry["error"] = {"type": "branch", "error_edge": error_edges[node.id]}
    elif node.error:
        entry["error"] = {"type": node.error}
    if node.retry:
        entry["retry"] = {
            "max_attempts": node.retry.max_attempts,
            "initial_delay": node.retry.initial_delay,
            "backoff": node.retry.backoff,
            "jitter": False,
        }
        if node.retry.on:
            entry["retry"]["on"] = list(node.retry.on)
    if node.join != "all":
        entry["join"] = node.join
    if node.timeout is not None:
        entry["timeout"] = node.timeout
    if node.at_most_once:
        entry["at_most_once"] = True
    return entry


def _edge(edge: Edge) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": edge.id, "src": edge.src, "dst": edge.dst}
    if edge.outlet is not None:
        entry["label"] = edge.outlet
    if edge.is_error:
        entry["is_error"] = True
    return entry


def _parameters(params: Params) -> dict[str, Any]:
    match params:
        case Edit(assignments):
            listed = [{"name": name, "value": value.to_text()} for name, value in assignments]
            return {"mode": "keep_only", "assignments": listed}
        case Effect(key, fail_attempts, fail_items, code):
            return {"key": key, "fail_attempts": fail_attempts, "fail_items": list(fail_items), "code": code}
        case Log(message):
            return {"message": message.to_text()}
        case Fail(code, message):
            return {"code": code, "message": message}
        case SignalWait(name):
            return {"resume": "signal", "name": name}
        case Wait(seconds):
            return {"resume": "time_interval", "amount": seconds.to_text(), "unit": "seconds"}
        case Child(workflow, payload):
            return {"workflow": workflow, "input": payload}
        case Output(value):
            return {"value": value.to_text()}
    return _control_parameters(params)


def _control_parameters(params: Params) -> dict[str, Any]:
    match params:
        case Conditional(expression):
            return {"expression": expression.source()}
        case Switch(rules):
            return {
                "rules": [
                    {"value": r.value.to_text(), "operator": r.operator, "compare": r.compare.to_text()}
                    for r in rules
                ]
            }
        case Split(array, window, batch):
            return _without_none(input_array=array.to_text(), max_in_flight=window, batch_size=batch)
        case Aggregator(tolerate, timeout):
            return _without_none(tolerate=tolerate, timeout=timeout)
        case Merge():
            return _merge(params)
    return {}


def _merge(params: Merge) -> dict[str, Any]:
    wait: Any = f"wait_for_{params.wait_mode}"
    if params.wait_mode == "at_least":
        wait = {"at_least": params.at_least}
    entry = _without_none(mode=params.mode, wait_mode=wait, timeout=params.timeout)
    if params.cancel_losers:
        entry["cancel_losers"] = True
    return entry


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
