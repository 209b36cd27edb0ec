"""From a JSON document back to a model, for documents written by hand."""

from __future__ import annotations

import re
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
    """An expression from its source."""
    lexemes = [(m.lastgroup or "", m.group(m.lastgroup or 0)) for m in _LEXEME.finditer(source)]
    expr = _level(lexemes, 0)
    if lexemes:
        raise ValueError(f"cannot read {source!r} from {lexemes[0][1]!r} on")
    return expr


def parameter(value: Any) -> Expr:
    """A parameter: a literal, one expression, or text with expressions inside."""
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
        left = _joined(left, op, right)
    return left


def _joined(left: Expr, op: str, right: Expr) -> Expr:
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
    """The model of a document whose node types the oracle knows."""
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


def _retry(given: dict[str, Any] | None) -> Retry | None:
    if given is None:
        return None
    on = tuple(given.get("on", ()))
    return Retry(given["max_attempts"], given["initial_delay"], given["backoff"], on)


def _params(kind: str, given: dict[str, Any]) -> Params:
    match kind:
        case "input":
            return Trigger()
        case "edit":
            return Edit(tuple((a["name"], parameter(a["value"])) for a in given["assignments"]))
        case "test.effect":
            items = tuple(given["fail_items"])
            return Effect(given["key"], given["fail_attempts"], items, given["code"])
        case "log":
            return Log(parameter(given["message"]))
        case "fail":
            return Fail(given["code"], given["message"])
        case "conditional" | "if":
            return Conditional(_condition(given["expression"], given.get("operator", "and")))
        case "switch":
            rules = [(parameter(r["value"]), r["operator"], parameter(r["compare"])) for r in given["rules"]]
            return Switch(tuple(Rule(*rule) for rule in rules))
        case "split":
            return Split(parameter(given["input_array"]), given.get("max_in_flight"), given.get("batch_size"))
        case "aggregator":
            return Aggregator(given.get("tolerate"), given.get("timeout"))
        case "merge":
            return _merge(given)
        case "wait":
            return Wait(_seconds(given))
        case "output":
            return Output(parameter(given["value"]))
        case "noop":
            return Noop()
    raise ValueError(f"unknown node type {kind}")


def _condition(expression: Any, operator: str) -> Expr:
    if isinstance(expression, str):
        return parse(expression)
    rules = (Compare(parameter(r["op1"]), r["operator"], parameter(r["op2"])) for r in expression)
    return Logic(operator, tuple(rules))


def _seconds(given: dict[str, Any]) -> Expr:
    if "date_time" in given:
        return Lit(0)
    return Arith(parameter(given.get("amount", 1)), "*", Lit(_SECONDS[given.get("unit", "seconds")]))


def _merge(given: dict[str, Any]) -> Merge:
    wait = given.get("wait_mode", "wait_for_all")
    at_least = wait["at_least"] if isinstance(wait, dict) else 0
    name = "at_least" if at_least else wait.removeprefix("wait_for_")
    return Merge(given.get("mode", "append"), name, at_least, given.get("timeout"))
