"""Reads a JSON document into a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.simulation.oracle.expr import Arith, Coalesce, Compare, Exists, Expr, Lit, Logic, Ref, Text
from tests.simulation.oracle.model import (
    Aggregator,
    Conditional,
    Edge,
    Edit,
    Effect,
    Fail,
    Log,
    Merge,
    Model,
    Node,
    Noop,
    Output,
    Params,
    Retry,
    Rule,
    Split,
    Switch,
    Trigger,
    Wait,
)

_REFERENCE = re.compile(r"\$\w+(?:\.\w+|\[\d+\])*")
_LEXEME = re.compile(
    r"""\s*(?:(?P<ref>\$\w+(?:\.\w+|\[\d+\])*)|(?P<number>\d+(?:\.\d+)?)|"(?P<text>[^"]*)"
    |(?P<word>\w+)|(?P<empty>\[\])|(?P<op>\?\?|[<>=!]=|[-+*%<>()]))""",
    re.VERBOSE,
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("or",),
    ("and",),
    ("==", "!=", "<", ">", "<=", ">="),
    ("??",),
    ("+", "-"),
    ("*", "%"),
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}


def parse(source: str) -> Expr:
    """Parse the source of an expression."""
    lexemes = [(m.lastgroup or "", m.group(m.lastgroup or 0)) for m in _LEXEME.finditer(source)]
    expr = _level(lexemes, 0)
    if lexemes:
        raise ValueError(f"cannot read {source!r} from {lexemes[0][1]!r} on")
    return expr


def parameter(value: Any) -> Expr:
    """Parse a parameter: a literal, an expression, or text with expressions."""
    if not isinstance(value, str):
        return Lit(value)
    if _REFERENCE.fullmatch(value):
        return _reference(value)
    pieces = re.split(r"\{\{(.*?)\}\}", value)
    if len(pieces) == 1:
        return Lit(value)
    parts = tuple(parse(piece) if i % 2 else piece for i, piece in enumerate(pieces) if piece)
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Expr) else Text(parts)


def _reference(source: str) -> Ref:
    name, *steps = re.findall(r"\w+", source.replace("$node.", "$"))
    return Ref(name, tuple(int(step) if step.isdigit() else step for step in steps))


def _level(lexemes: list[tuple[str, str]], level: int) -> Expr:
    if level == len(_LEVELS):
        return _atom(lexemes)
    left = _level(lexemes, level + 1)
    while lexemes and lexemes[0][0] in ("op", "word") and lexemes[0][1] in _LEVELS[level]:
        op = lexemes.pop(0)[1]
        right = _level(lexemes, level + 1)
        left = _infix(left, op, right)
    return left


def _infix(left: Expr, op: str, right: Expr) -> Expr:
    if op in ("and", "or"):
        return Logic(op, (left, right))
    if op == "??":
        return Coalesce((*left.parts, right) if isinstance(left, Coalesce) else (left, right))
    return Arith(left, op, right) if op in "+-*%" else Compare(left, op, right)


def _atom(lexemes: list[tuple[str, str]]) -> Expr:
    kind, text = lexemes.pop(0)
    if kind == "ref":
        return _reference(text)
    if kind == "number":
        return Lit(float(text) if "." in text else int(text))
    if kind in ("text", "empty"):
        return Lit(text if kind == "text" else [])
    if text in _CONSTANTS:
        return Lit(_CONSTANTS[text])
    call = text == "exists" and lexemes.pop(0)
    inner = _level(lexemes, 0)
    lexemes.pop(0)
    return Exists(inner) if call and isinstance(inner, Ref) else inner


def read_document(document: dict[str, Any], name: str) -> Model:
    """The model of a document; raises ValueError for a node type that the oracle does not support."""
    error_edges: set[str | None] = set()
    outlets: dict[str | None, str] = {}
    for entry in document["nodes"]:
        parameters = entry.get("parameters", {})
        error_edges.add(entry.get("error", {}).get("error_edge"))
        outlets |= {parameters.get(f"{arm}_edge_id"): arm for arm in ("true", "false")}
        routes = parameters.get("routes", [])
        outlets |= {edge: f"case_{i}" for i, edge in enumerate(routes[:-1])}
        outlets |= dict.fromkeys(routes[-1:], "fallback")
    edges = []
    for i, entry in enumerate(document["edges"]):
        key = entry.get("id", f"e{i}")
        is_error = bool(entry.get("is_error")) or key in error_edges
        edges.append(Edge(key, entry["src"], entry["dst"], entry.get("label", outlets.get(key)), is_error))
    nodes = [
        Node(
            entry["id"],
            _params(entry["type"], entry.get("parameters", {})),
            entry.get("error", {}).get("type"),
            _retry(entry.get("retry")),
            entry.get("join", "all"),
        )
        for entry in document["nodes"]
    ]
    return Model(name, tuple(nodes), tuple(edges))


def _retry(policy: dict[str, Any] | None) -> Retry | None:
    if policy is None:
        return None
    on = tuple(policy.get("on", ()))
    return Retry(policy["max_attempts"], policy["initial_delay"], policy["backoff"], on)


def _params(kind: str, parameters: dict[str, Any]) -> Params:
    if kind not in _READERS:
        raise ValueError(f"unknown node type {kind}")
    return _READERS[kind](parameters)


def _edit(parameters: dict[str, Any]) -> Edit:
    return Edit(tuple((each["name"], parameter(each["value"])) for each in parameters["assignments"]))


def _effect(parameters: dict[str, Any]) -> Effect:
    return Effect(
        parameters["key"], parameters["fail_attempts"], tuple(parameters["fail_items"]), parameters["code"]
    )


def _conditional(parameters: dict[str, Any]) -> Conditional:
    return Conditional(_condition(parameters["expression"], parameters.get("operator", "and")))


def _switch(parameters: dict[str, Any]) -> Switch:
    rules = [(parameter(r["value"]), r["operator"], parameter(r["compare"])) for r in parameters["rules"]]
    return Switch(tuple(Rule(*rule) for rule in rules))


def _split(parameters: dict[str, Any]) -> Split:
    return Split(
        parameter(parameters["input_array"]), parameters.get("max_in_flight"), parameters.get("batch_size")
    )


def _condition(expression: Any, operator: str) -> Expr:
    if isinstance(expression, str):
        return parse(expression)
    rules = (Compare(parameter(r["op1"]), r["operator"], parameter(r["op2"])) for r in expression)
    return Logic(operator, tuple(rules))


def _seconds(parameters: dict[str, Any]) -> Expr:
    if "date_time" in parameters:
        return Lit(0)
    return Arith(
        parameter(parameters.get("amount", 1)), "*", Lit(_SECONDS[parameters.get("unit", "seconds")])
    )


def _merge(parameters: dict[str, Any]) -> Merge:
    wait = parameters.get("wait_mode", "wait_for_all")
    at_least = wait["at_least"] if isinstance(wait, dict) else 0
    name = "at_least" if at_least else wait.removeprefix("wait_for_")
    return Merge(parameters.get("mode", "append"), name, at_least, parameters.get("timeout"))


_READERS: dict[str, Callable[[dict[str, Any]], Params]] = {
    "input": lambda _: Trigger(),
    "edit": _edit,
    "test.effect": _effect,
    "log": lambda parameters: Log(parameter(parameters["message"])),
    "fail": lambda parameters: Fail(parameters["code"], parameters["message"]),
    "conditional": _conditional,
    "if": _conditional,
    "switch": _switch,
    "split": _split,
    "aggregator": lambda parameters: Aggregator(parameters.get("tolerate"), parameters.get("timeout")),
    "merge": _merge,
    "wait": lambda parameters: Wait(_seconds(parameters)),
    "output": lambda parameters: Output(parameter(parameters["value"])),
    "noop": lambda _: Noop(),
}
