"""What a node was called with: its payload and its resolved parameters, computed anew from the plan and the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    ExecutionStarted,
    Fact,
    NodeResult,
    NodeSuspended,
)
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.core.execution.token import Path, Token, token_name
from rune.core.expr import ExpressionError, Meter, Template
from rune.core.expr.budget import METER
from rune.core.plan.model import Plan
from rune.core.plan.parameters import Element, Rules
from rune.errors import RuneError
from rune.nodes.redaction import NAMES_ONLY
from rune.ports.journal import ExecutionRecord
from rune.runtime.values import ExecutionData, ValueNotLoaded
from rune.runtime.worker.evaluator import Evaluator, NeedsThread

MAX_INLINE_FACTS = 2_000  # more of them are replayed in a thread
_NEVER = 2**53


class NodeInput(msgspec.Struct, frozen=True):
    """The payload of a node run and its parameters, both redacted. `error`: why the parameters cannot be resolved."""

    attempt: int
    payload: Any
    parameters: dict[str, Any] | None
    error: Error | None = None


async def read_input(
    data: ExecutionData, facts: Sequence[Fact], node: int, path: Path, evaluator: Evaluator
) -> NodeInput | None:
    """Return the input of a node in one lineage, given the facts of its execution in commit order; None if the node did
    not run there. `now()` is the time at which the run began."""
    if len(facts) > MAX_INLINE_FACTS:
        found = await asyncio.to_thread(_token_of, data.plan, data.accepted, facts, node, path)
    else:
        found = _token_of(data.plan, data.accepted, facts, node, path)
    if found is None:
        return None
    token, began = found
    if node in data.plan.triggers:
        return _redacted(token, data.start, data.plan.definition.nodes[node].parameters)
    return await _resolve(data, token, began, evaluator)


def _token_of(
    plan: Plan, accepted: ExecutionRecord, facts: Sequence[Fact], node: int, path: Path
) -> tuple[Token, int] | None:
    """Return the token of a node run and when it began, by replaying the facts before its result."""
    if node in plan.triggers and not path:
        return Token(node), accepted.at
    kept: list[Fact] = [ExecutionStarted(accepted.at)]
    began = 0
    for fact in facts:
        if isinstance(fact, ExecutionEnded):
            break
        if isinstance(fact, NodeResult | AttemptFailed | NodeSuspended) and (fact.node, fact.path) == (
            node,
            path,
        ):
            began = fact.began or fact.at
            if isinstance(fact, NodeResult):
                if fact.status == "skipped":
                    return None
                # In place of its result: the token is open then, also that of an item that has no other fact.
                kept.append(NodeSuspended(node, path, fact.at, fact.attempt, _NEVER))
                break
        kept.append(fact)
    state, _ = fold(plan, kept, max(each.at for each in kept))
    scope = state.scopes.get(path)
    live = None if scope is None else scope.live.get(node)
    return None if live is None else (live.token, began or live.token.at or accepted.at)


async def _resolve(data: ExecutionData, token: Token, began: int, evaluator: Evaluator) -> NodeInput:
    reader = data.reader()
    node = data.plan.nodes[token.node]
    name = token_name(token.node, token.path, data.plan.ids)

    def work(meter: Meter) -> NodeInput:
        scope = reader.scope(token, began / 1000, name)
        scope[METER] = meter
        payload = scope["$json"]
        try:
            resolved = node.parameters.resolve(scope)
        except RuneError as error:
            return _redacted(token, payload, None, Error(error.code, error.message))
        for each, compiled in node.parameters.elements.items():
            written = node.node.parameters[each]
            resolved[each] = _element(compiled, written, scope)
        return _redacted(token, payload, {each: resolved[each] for each in node.node.parameters})

    in_thread = False
    try:
        while True:
            try:
                return await evaluator.in_thread(work) if in_thread else work(evaluator.inline())
            except ValueNotLoaded as missing:
                await data.load(missing.what, reader)
            except NeedsThread:
                in_thread = True
    finally:
        reader.close()


def _element(compiled: Element, written: Any, scope: Mapping[str, Any]) -> Any:
    """Return a parameter that the node evaluates itself. A bare expression, and what cannot be evaluated here because
    it is evaluated for each element, are shown as they are written."""
    if isinstance(compiled, Template):
        with suppress(ExpressionError):
            return compiled.resolve(scope)
    if not isinstance(compiled, Rules):
        return written
    shown = [dict(each) for each in written]
    for index, fields in enumerate(compiled.fields):
        for field in fields:
            with suppress(ExpressionError):
                shown[index][field] = compiled.value(index, field, scope)
    return shown


def _redacted(
    token: Token, payload: Any, parameters: dict[str, Any] | None, error: Error | None = None
) -> NodeInput:
    shown = NAMES_ONLY.details({"payload": payload, "parameters": parameters})
    return NodeInput(
        token.attempt,
        shown["payload"],
        shown["parameters"],
        None if error is None else NAMES_ONLY.error(error),
    )
