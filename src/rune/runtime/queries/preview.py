"""Evaluates an expression against the values of an execution, as a node of it would.

The evaluation has the limits of the engine: it runs in a thread with a limit on its CPU time.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import msgspec

from rune.codec.facts import encode_value
from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem
from rune.core.execution.joins import Lookup, joined_payload
from rune.core.execution.routing import routes
from rune.core.execution.token import START, Arrived, Path, Ref, Token
from rune.core.expr import (
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionSyntaxErrors,
    Meter,
    compile_expression,
    compile_template,
)
from rune.core.expr.budget import METER
from rune.core.plan.compiler import names_of
from rune.core.plan.model import Plan
from rune.runtime.values import ExecutionData, ValueNotLoaded, ValueReader
from rune.runtime.worker.evaluator import Evaluator

MAX_PREVIEW_BYTES = 10 * 1024
Mode = Literal["expression", "template"]
_KINDS = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The value of an expression as JSON text, cut at `MAX_PREVIEW_BYTES`; `size` is that of the whole text."""

    text: str | None = None
    kind: str | None = None
    size: int = 0
    problems: tuple[Problem, ...] = ()


async def preview(
    data: ExecutionData, evaluator: Evaluator, text: str, mode: Mode, node: int, path: Path, now: int
) -> Preview:
    """Evaluate a text as a parameter of a node in one lineage."""
    try:
        names = names_of(data.plan.definition)
        compiled: Any = (
            compile_expression(text, names) if mode == "expression" else compile_template(text, names)
        )
    except ExpressionSyntaxErrors as several:
        return Preview(problems=tuple(_syntax(each) for each in several.errors))
    except ExpressionSyntaxError as error:
        return Preview(problems=(_syntax(error),))
    reader = data.reader()
    try:
        while True:
            try:
                return await evaluator.in_thread(
                    partial(_evaluate, compiled, data.plan, reader, node, path, now / 1000)
                )
            except ValueNotLoaded as missing:
                await data.load(missing.what, reader)
    except ExpressionError as error:
        return Preview(problems=(Problem("text", error.code, error.message),))
    finally:
        reader.close()


def _syntax(error: ExpressionSyntaxError) -> Problem:
    return Problem("text", codes.BAD_EXPRESSION, error.problem, error.hint, line=1, column=error.offset + 1)


def _evaluate(
    compiled: Any, plan: Plan, reader: ValueReader, node: int, path: Path, now: float, meter: Meter
) -> Preview:
    scope = reader.scope(entering_token(plan, node, path, reader.result), now, "preview")
    scope[METER] = meter
    value = compiled.evaluate(scope) if hasattr(compiled, "evaluate") else compiled.resolve(scope)
    encoded = encode_value(value)
    shown = encoded[:MAX_PREVIEW_BYTES].decode("utf-8", "ignore")
    return Preview(text=shown, kind=_KINDS.get(type(value), "null"), size=len(encoded))


def entering_token(plan: Plan, index: int, path: Path, results: Lookup) -> Token:
    """Return the token that entered a node, as far as the results before it tell."""
    node = plan.nodes[index]
    if node.joins_items:
        split = entering_token(plan, node.split_of, path, results)
        return Token(index, path, split.payload, split.error)
    error: Ref | None = None
    arrived: list[Arrived] = []
    for edge in node.in_edges:
        source = plan.nodes[plan.src[edge]]
        if source.index in plan.triggers:
            arrived.append(Arrived(edge, START))
        elif source.fans_out and edge in source.success:
            arrived.append(Arrived(edge, Ref("item", source.index, path)))
        else:
            result = results(source.index, path[: 2 * source.depth])
            found = None if result is None else routes(source, result)
            if found is not None and edge in found.alive:
                arrived.append(Arrived(edge, found.payload))
                error = error or found.error
    if not node.in_edges:
        return Token(index, path)
    if not node.is_join:
        payload = arrived[0].payload if arrived else Ref("entered", index, path)
        return Token(index, path, payload, error)
    known = results(index, path)
    opened = tuple(arrived) if known is None or not known.arrived else known.arrived
    return Token(index, path, joined_payload(plan, node, path, opened), error, opened)
