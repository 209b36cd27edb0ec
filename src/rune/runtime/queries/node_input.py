"""What a node was called with, and what an expression in its place evaluates to, computed from plan and journal.

An expression is evaluated with the limits of the engine: in a thread with a limit on its CPU time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from rune.codec.facts import encode_value
from rune.core.definition import problems as codes
from rune.core.definition.problems import Problem
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    ExecutionStarted,
    Fact,
    NodeResult,
    NodeSuspended,
    RaceWinner,
    TokenFact,
)
from rune.core.execution.fold import fold
from rune.core.execution.joins import Lookup, joined_payload
from rune.core.execution.outcome import Error
from rune.core.execution.routing import routes
from rune.core.execution.scope import ExpressionScope, failure_value
from rune.core.execution.state import State
from rune.core.execution.token import START, Arrived, Path, Ref, Token, parse_path, token_name
from rune.core.expr import (
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionSyntaxErrors,
    Meter,
    Template,
    compile_expression,
    compile_template,
)
from rune.core.expr.budget import METER
from rune.core.expr.names import ROOTS, Names
from rune.core.limits import LIMITS
from rune.core.plan.compiler import names_of
from rune.core.plan.model import NO_PARAMETERS, Element, Parameters, Plan, Rules, compile_parameters
from rune.errors import LimitExceededError, RuneError
from rune.nodes.base import check_json
from rune.nodes.redaction import NAMES_ONLY
from rune.off_loop import off_loop
from rune.ports.journal import ExecutionRecord, StoredFact
from rune.runtime.execution_data import ExecutionData
from rune.runtime.queries.history import reference_document
from rune.runtime.stored_values import input_size
from rune.runtime.value_reader import ValueReader
from rune.runtime.value_refs import ValueNotLoaded
from rune.runtime.worker.evaluator import Evaluator, NeedsThread

T = TypeVar("T")

_NEVER = 2**53

MAX_PREVIEW_BYTES = 10 * 1024

MAX_SHOWN_INPUT = msgspec.structs.replace(LIMITS, output_bytes=1024 * 1024)
"""A larger payload is shown by reference, and larger parameters are not shown."""

MAX_DECODED_BYTES = 16 * 1024 * 1024
"""Of the stored values that are read in order to show parameters or evaluate an expression."""
Mode = Literal["expression", "template"]
_KINDS = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}


class Replayed(Protocol):
    """Returns what a function makes of the facts of an execution or, if there are many, another one of its state."""

    def __call__(
        self, of_facts: Callable[[Sequence[StoredFact]], T], of_state: Callable[[State], T]
    ) -> Awaitable[T]: ...


class NodeInput(msgspec.Struct, frozen=True):
    """The payload of a node run and its parameters, both redacted; a large payload is a reference. `error`: why the
    parameters are not shown."""

    attempt: int
    payload: Any
    parameters: dict[str, Any] | None
    error: Error | None = None


async def read_input(
    data: ExecutionData,
    own: Sequence[TokenFact],
    replayed: Replayed,
    node: int,
    path: Path,
    evaluator: Evaluator,
) -> NodeInput | None:
    """Return the input of a node in one lineage; None if the node did not run there. `now()` is the time at which the
    run began. `own` are the facts of the run, `replayed` reads those of the whole execution in commit order, or its
    state: what entered a run follows from the results before it if it has ended, or if it joins nothing, so that its
    input costs the same among 100,000 items as in one."""
    found = await _entered(data, own, node, path)
    if found is None:
        found = await replayed(
            lambda stored: _token_of(
                data.plan, data.accepted, [each.fact for each in stored if not each.late], node, path
            ),
            lambda state: _live_token(data.accepted, own, state, node, path),
        )
    if found is None:
        return None
    token, began = found
    if node in data.plan.triggers:
        parameters = data.plan.definition.nodes[node].parameters
        large = input_size(data.accepted) > MAX_SHOWN_INPUT.output_bytes
        payload = _start_reference(data) if large else await data.load_start()
        return await off_loop(partial(_redacted, token, payload, parameters))
    return await _resolve(data, token, began, evaluator)


async def _entered(
    data: ExecutionData, own: Sequence[TokenFact], node: int, path: Path
) -> tuple[Token, int] | None:
    """Return the token of a node run that has ended, or has failed or waited before, and when it began, from its facts
    and the results before it. What entered a join is known only when it has ended."""
    if not own or node in data.plan.triggers:
        return None
    planned, last = data.plan.nodes[node], own[-1]
    if isinstance(last, NodeResult):
        if last.status not in ("ok", "failed"):
            return None
    elif isinstance(last, RaceWinner) or planned.is_join or planned.joins_items:
        return None
    attempt = last.attempt + isinstance(last, AttemptFailed)
    reader = data.reader()
    try:
        while True:
            try:
                token = entering_token(data.plan, node, path, reader.result)
            except ValueNotLoaded as missing:
                await data.load(missing.what, reader)
            else:
                return replace(token, attempt=attempt), last.began or last.at
    finally:
        reader.close()


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


def _live_token(
    accepted: ExecutionRecord, own: Sequence[TokenFact], state: State, node: int, path: Path
) -> tuple[Token, int] | None:
    """Return the open token of a node run and when it began; None if it is not called now."""
    scope = state.scopes.get(path)
    live = None if scope is None else scope.live.get(node)
    if live is None:
        return None
    last = own[-1] if own else None
    began = (last.began or last.at) if isinstance(last, AttemptFailed | NodeSuspended) else live.token.at
    return live.token, began or accepted.at


def _start_reference(data: ExecutionData) -> dict[str, Any]:
    return reference_document(data.accepted.id, data.plan, START, input_size(data.accepted))


_Resolved = tuple[Any, dict[str, Any] | None, Error | None]
"""The payload, the parameters, and why they cannot be resolved."""


async def _resolve(data: ExecutionData, token: Token, began: int, evaluator: Evaluator) -> NodeInput:
    reader = data.reader()
    node = data.plan.nodes[token.node]
    name = token_name(token.node, token.path, data.plan.ids)
    parameters = _parameters_of(data.plan, token.node)

    def work(meter: Meter) -> _Resolved:
        scope = reader.scope(token, began / 1000, name)
        scope[METER] = meter
        payload: Any = None
        try:
            origin, size = reader.written(token.payload, token)
            if size > MAX_SHOWN_INPUT.output_bytes:
                payload = reference_document(data.accepted.id, data.plan, origin, size)
            else:
                payload = scope["$json"]
            resolved = parameters.resolve(scope)
            for each, compiled in parameters.elements.items():
                written = node.node.parameters[each]
                resolved[each] = _element(compiled, written, scope)
            shown = {each: resolved[each] for each in node.node.parameters}
            check_json(shown, MAX_SHOWN_INPUT, what="parameters that are shown")
        except RuneError as error:
            return payload, None, Error(error.code, error.message)
        return payload, shown, None

    in_thread = False
    try:
        while True:
            try:
                found = await evaluator.in_thread(work) if in_thread else work(evaluator.inline())
                break
            except ValueNotLoaded as missing:
                await data.load(missing.what, reader)
            except NeedsThread:
                in_thread = True
    finally:
        reader.close()
    # Redaction looks at every text of the payload.
    return await off_loop(partial(_redacted, token, *found))


def _parameters_of(plan: Plan, index: int) -> Parameters:
    """Return the compiled parameters of a node. A plan for reading has none for a type that this process lacks: they
    are compiled as templates, or are shown as they are written if they are none."""
    node = plan.nodes[index]
    if node.parameters is not NO_PARAMETERS:
        return node.parameters
    try:
        return compile_parameters(node.type, node.node.parameters, names_of(plan.definition))
    except RuneError:
        return Parameters(dict(node.node.parameters), (), {}, (), pure=False)


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


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The value of an expression as JSON text, cut at `MAX_PREVIEW_BYTES`; `size` is that of the whole text."""

    text: str | None = None
    kind: str | None = None
    size: int = 0
    problems: tuple[Problem, ...] = ()


class DraftPlace(msgspec.Struct, frozen=True):
    """A node as a draft has it: the nodes before it, and the nodes that are mentioned, both by their ids in the draft.
    `names` has the ids that mentioned nodes have in the execution."""

    after: tuple[str, ...] = ()
    names: Mapping[str, str] = {}

    def index(self, plan: Plan) -> dict[str, int]:
        """Return the nodes of the execution by their ids in the draft, and by their own."""
        renamed = {new: plan.index[old] for new, old in self.names.items() if old in plan.index}
        return {**plan.index, **renamed}


class PreviewPlace(msgspec.Struct, frozen=True):
    """Where an expression stands: at a node of the execution, or at one of a draft, in one lineage."""

    node: int
    path: Path
    draft: DraftPlace | None = None


class ItemNotFoundError(RuneError):
    """An execution has no such item, or the node does not run for it."""

    code = "BAD_ITEM"


def preview_place(plan: Plan, node: str, lineage: str, draft: DraftPlace | None) -> PreviewPlace | None:
    """Return the place of a node in a lineage; None if the execution has no such node and no draft tells where it is.
    A node that has the same place in the draft and in the execution is that of the execution."""
    index = plan.index if draft is None else draft.index(plan)
    path = parse_path(lineage, index) if lineage.strip("/") else ()
    if path is None or not _is_lineage(plan, path):
        raise ItemNotFoundError(f"the execution has no item `{lineage}`")
    found = index.get(node)
    if draft is None:
        if found is not None and plan.scopes.enclosing(found) != path[::2]:
            raise ItemNotFoundError(f"`{lineage}` is no lineage of `{node}`")
        return None if found is None else PreviewPlace(found, path)
    if found is not None and plan.scopes.enclosing(found) == path[::2]:
        sources = {plan.src[edge] for edge in plan.nodes[found].in_edges}
        if sources == {index.get(each) for each in draft.after}:
            return PreviewPlace(found, path, DraftPlace(names=draft.names))
    return PreviewPlace(-1, path, draft)


def _is_lineage(plan: Plan, path: Path) -> bool:
    """Return whether a path names items of splits that enclose each other."""
    splits = path[::2]
    if not splits:
        return True
    last = splits[-1]
    return plan.nodes[last].fans_out and (*plan.scopes.enclosing(last), last) == splits


async def preview(
    data: ExecutionData, evaluator: Evaluator, text: str, mode: Mode, place: PreviewPlace, now: int
) -> Preview:
    """Evaluate a text as a parameter of a node in one lineage."""
    try:
        names = _names(data.plan, place.draft)
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
                    partial(_evaluate, compiled, data.plan, reader, place, now / 1000)
                )
            except ValueNotLoaded as missing:
                await data.load(missing.what, reader)
    except (ExpressionError, LimitExceededError) as error:
        return Preview(problems=(Problem("text", error.code, error.message),))
    finally:
        reader.close()


def _syntax(error: ExpressionSyntaxError) -> Problem:
    return Problem("text", codes.BAD_EXPRESSION, error.problem, error.hint, line=1, column=error.offset + 1)


def _names(plan: Plan, draft: DraftPlace | None) -> Names:
    known = names_of(plan.definition)
    if draft is None:
        return known
    titles = {title: id for title, id in known.titles.items() if title not in draft.names}
    return Names(known.nodes | draft.names.keys(), titles)


def _evaluate(
    compiled: Any, plan: Plan, reader: ValueReader, place: PreviewPlace, now: float, meter: Meter
) -> Preview:
    _check_items(plan, place.path, reader.result)
    scope = _scope(plan, reader, place, now)
    scope[METER] = meter
    value = compiled.evaluate(scope) if hasattr(compiled, "evaluate") else compiled.resolve(scope)
    check_json(value, what="value")
    encoded = encode_value(value)
    shown = encoded[:MAX_PREVIEW_BYTES].decode("utf-8", "ignore")
    return Preview(text=shown, kind=_KINDS.get(type(value), "null"), size=len(encoded))


def _check_items(plan: Plan, path: Path, results: Lookup) -> None:
    for end in range(2, len(path) + 1, 2):
        split, item = path[end - 2 : end]
        result = results(split, path[: end - 2])
        if result is None or item >= (result.items or 0):
            raise ItemNotFoundError(f"the execution has no item {item} of `{plan.ids[split]}`")


def _scope(plan: Plan, reader: ValueReader, place: PreviewPlace, now: float) -> ExpressionScope:
    if place.draft is None:
        return reader.scope(entering_token(plan, place.node, place.path, reader.result), now, "preview")
    if place.node < 0:
        return _DraftScope(reader, plan, Token(-1, place.path), now, place.draft)
    token = entering_token(plan, place.node, place.path, reader.result)
    return _RenamedScope(reader, plan, token, now, place.draft)


class _RenamedScope(ExpressionScope):
    """The scope of a node whose draft has other ids for some nodes."""

    __slots__ = ("_draft",)

    def __init__(self, values: ValueReader, plan: Plan, token: Token, now: float, draft: DraftPlace) -> None:
        super().__init__(values, plan, token, now, "preview")
        self._draft = draft

    def _find(self, root: str) -> Any:
        id = root.removeprefix("$")
        return super()._find(root if id in ROOTS else f"${self._draft.names.get(id, id)}")


class _DraftScope(_RenamedScope):
    """The scope of a node that the execution does not have, or has elsewhere. It sees every node that ran in the
    lineage or around it, and `$json` and `$error` are what the nodes before it returned."""

    __slots__ = ()

    def _is_visible(self, root: str) -> bool:
        return True

    def _find(self, root: str) -> Any:
        if root not in ("$json", "$error"):
            return super()._find(root)
        index = self._draft.index(self._plan)
        before = {each: index[each] for each in self._draft.after if each in index}
        if root == "$error":
            return self._error(before.values())
        left = {
            each: _left(self._plan, at, self._token.path, self._values.result) for each, at in before.items()
        }
        found = {each: self._values.value(ref) for each, ref in left.items() if ref is not None}
        if not found:
            raise KeyError(root)
        return next(iter(found.values())) if len(found) == 1 else found

    def _error(self, before: Iterable[int]) -> Any:
        for node in before:
            result = self._values.result(node, self._token.path[: 2 * self._plan.nodes[node].depth])
            if result is not None and result.status == "failed":
                return failure_value(result)["error"]
        raise KeyError("$error")


def _left(plan: Plan, node: int, path: Path, results: Lookup) -> Ref | None:
    """Return what left a node towards a lineage; None if nothing did."""
    source = plan.nodes[node]
    around = path[: 2 * source.depth]
    if node in plan.triggers:
        return START
    if source.fans_out:
        into = path[: 2 * source.depth + 2]
        return Ref("item", node, into) if into[2 * source.depth :][:1] == (node,) else None
    result = results(node, around)
    return None if result is None or result.status not in ("ok", "failed") else routes(source, result).payload


def entering_token(plan: Plan, index: int, path: Path, results: Lookup) -> Token:
    """Return the token that entered a node, as far as the results before it tell."""
    node = plan.nodes[index]
    if node.joins_items:
        split = entering_token(plan, node.split_of, path, results)
        return Token(index, path, split.payload, split.error)
    errors: dict[int, Ref | None] = {}
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
                errors[edge] = found.error
    if not node.in_edges:
        return Token(index, path)
    if not node.is_join:
        payload = arrived[0].payload if arrived else Ref("entered", index, path)
        return Token(index, path, payload, next(iter(errors.values()), None))
    known = results(index, path)
    opened = tuple(arrived) if known is None or not known.arrived else known.arrived
    # Of a race, what the losers sent is not seen, and neither are their errors.
    error = next((ref for each in opened if (ref := errors.get(each.edge)) is not None), None)
    return Token(index, path, joined_payload(plan, node, path, opened), error, opened)
