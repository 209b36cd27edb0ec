"""The workflows that the measures run."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.definition.parser import parse_document
from rune.core.node_type import Catalogue
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan

Nodes = list[dict[str, Any]]


def compiled(nodes: Nodes, links: list[tuple[str, str]], catalogue: Catalogue) -> Plan:
    """Compile nodes and edges into a plan."""
    document = {"id": "bench", "nodes": nodes, "edges": [{"src": src, "dst": dst} for src, dst in links]}
    parsed = parse_document(msgspec.json.encode(document))
    assert not parsed.problems, parsed.problems
    assert parsed.definition is not None
    return compile_definition(parsed.definition, catalogue)


def chain(length: int, catalogue: Catalogue, *, effectful: bool) -> Plan:
    """A chain of nodes."""
    names = [f"n{i}" for i in range(length)]
    nodes: Nodes = [{"id": "start", "type": "input"}]
    nodes += [{"id": name, "type": "noop", "parameters": {"effectful": effectful}} for name in names]
    return compiled(nodes, list(zip(["start", *names], names, strict=False)), catalogue)


def fan(items: int, catalogue: Catalogue, *, effectful: bool = False) -> Plan:
    """A split with one node per item and an aggregator; an effectful node goes through the queue."""
    each: dict[str, Any] = {"id": "x", "type": "edit", "parameters": _build_object("v", "$item")}
    if effectful:
        each = {"id": "x", "type": "noop", "parameters": {"effectful": True}}
    nodes: Nodes = [
        {"id": "start", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.xs"}},
        each,
        {"id": "g", "type": "aggregator"},
        {"id": "n", "type": "output", "parameters": {"value": "{{ len($g) }}"}},
    ]
    return compiled(nodes, [("start", "s"), ("s", "x"), ("x", "g"), ("g", "n")], catalogue)


def calls(url: str, at_once: int, catalogue: Catalogue) -> Plan:
    """A split with one HTTP request per item and limited concurrency."""
    nodes: Nodes = [
        {"id": "start", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.xs", "max_in_flight": at_once}},
        {"id": "c", "type": "http", "parameters": {"url": url, "raise_on_status": "4xx,5xx", "timeout": 120}},
        {"id": "g", "type": "aggregator"},
        {"id": "n", "type": "output", "parameters": {"value": "{{ len($g) }}"}},
    ]
    links = [("start", "s"), ("s", "c"), ("c", "g"), ("g", "n")]
    return compiled(nodes, links, catalogue)


def nested(catalogue: Catalogue) -> Plan:
    """A split inside a split."""
    nodes: Nodes = [
        {"id": "start", "type": "input"},
        {"id": "so", "type": "split", "parameters": {"input_array": "$trigger.rows"}},
        {"id": "si", "type": "split", "parameters": {"input_array": "$item"}},
        {"id": "x", "type": "edit", "parameters": _build_object("v", "$item")},
        {"id": "gi", "type": "aggregator"},
        {"id": "go", "type": "aggregator"},
        {"id": "n", "type": "output", "parameters": {"value": "{{ sum([len(row) for row in $go]) }}"}},
    ]
    links = [("start", "so"), ("so", "si"), ("si", "x"), ("x", "gi"), ("gi", "go"), ("go", "n")]
    return compiled(nodes, links, catalogue)


def sharing(catalogue: Catalogue) -> Plan:
    """A split whose items each read one field of one upstream value."""
    nodes: Nodes = [
        {"id": "start", "type": "input"},
        {
            "id": "big",
            "type": "edit",
            "parameters": _build_object("blob", "$trigger.blob", "field", "$trigger.field"),
        },
        {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.xs"}},
        {"id": "x", "type": "edit", "parameters": _build_object("v", "$big.field")},
        {"id": "g", "type": "aggregator"},
        {"id": "n", "type": "output", "parameters": {"value": "{{ len($g) }}"}},
    ]
    links = [("start", "big"), ("big", "s"), ("s", "x"), ("x", "g"), ("g", "n")]
    return compiled(nodes, links, catalogue)


def waiting(catalogue: Catalogue) -> Plan:
    """A wait until a given date."""
    nodes: Nodes = [
        {"id": "start", "type": "input"},
        {"id": "nap", "type": "wait", "parameters": {"resume": "date_time", "date_time": "$trigger.when"}},
        {"id": "end", "type": "noop"},
    ]
    return compiled(nodes, [("start", "nap"), ("nap", "end")], catalogue)


def _build_object(*pairs: str) -> dict[str, Any]:
    assignments = [{"name": pairs[i], "value": pairs[i + 1]} for i in range(0, len(pairs), 2)]
    return {"mode": "keep_only", "assignments": assignments}
