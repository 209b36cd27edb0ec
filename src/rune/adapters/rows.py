"""Conversion between database rows and the types of the ports, shared by the SQL adapters."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from rune.codec.records import decode_record, listed_fields, without_input
from rune.core.execution.fact import CHILD_SIGNAL, ExecutionEnded, Fact, NodeResult, NodeSuspended
from rune.core.execution.stored_value import Large, Paged
from rune.core.json_decoder import JsonDecoder
from rune.core.permissions import DEFAULT_GRANTS, LOCAL
from rune.ports.access import ApiKey, AuditEntry
from rune.ports.journal import (
    DeadLetter,
    ExecutionRecord,
    FailedHook,
    HandlerDefaults,
    HookRow,
    Missing,
    NewerFormatError,
)
from rune.ports.queries import ExecutionFilter, Summary
from rune.ports.workflows import Alias

WAITING = "waiting"
"""The term of executions in which a node has waited for a signal."""

FAILED_ITEMS = "failed_items"
"""The term of executions in which an item failed."""

MAX_TERM_CHARS = 300

LATE = 10 * 60_000
"""How long after the end of an execution a worker may still write for it, in ms."""


class _DefinitionName(msgspec.Struct):
    """The part of a definition that lists show."""

    name: str = ""


_SCOPES_DECODER = JsonDecoder(tuple[str, ...])
_GRANTS_DECODER = JsonDecoder(frozenset[str])
_DETAILS_DECODER = JsonDecoder(dict[str, str])
_DEFINITION_DECODER = JsonDecoder(_DefinitionName)
_MISSING_DECODER = msgspec.msgpack.Decoder(Missing)
_ENCODER = msgspec.msgpack.Encoder()
_DEFAULTS_DECODER = JsonDecoder(HandlerDefaults)
_WEIGHTS_DECODER = JsonDecoder(dict[int, float])
_END_DECODER = msgspec.msgpack.Decoder(ExecutionEnded)


def handler_defaults(body: str | None) -> HandlerDefaults:
    return HandlerDefaults() if body is None else _DEFAULTS_DECODER.decode(body)


def encode_missing(missing: Missing) -> bytes:
    return _ENCODER.encode(missing)


def hook_row(row: Sequence[Any]) -> HookRow:
    number, execution, kind, at, tries, body = row
    return HookRow(
        number, execution, kind, at, tries, None if body is None else _MISSING_DECODER.decode(body)
    )


def failed_hook(row: Sequence[Any]) -> FailedHook:
    execution, kind, at, tries, error, given_up, body = row
    return FailedHook(
        execution=execution,
        kind=kind,
        at=at,
        tries=tries,
        error=error,
        given_up=given_up,
        workflow=None if body is None else _MISSING_DECODER.decode(body).workflow,
    )


def completion_of(rows: Iterable[tuple[int, int, bytes]]) -> int | None:
    """Return when the first of these executions ended that is one of a deployed version in real time."""
    for ended_at, _, accepted in rows:
        listed = listed_fields(accepted)
        if listed.version is not None and not listed.fake_time:
            return ended_at
    return None


def key_row(key: ApiKey) -> tuple[object, ...]:
    row = msgspec.structs.astuple(key)
    return (*row[:3], msgspec.json.encode(key.scopes).decode(), *row[4:])


def key_of(row: Sequence[Any]) -> ApiKey:
    names = ApiKey.__struct_fields__
    values = dict(zip(names, row, strict=True))
    return ApiKey(
        **{**values, "scopes": _SCOPES_DECODER.decode(values["scopes"]), "digest": bytes(values["digest"])}
    )


def scopes_of(text: str | None) -> tuple[str, ...]:
    return () if text is None else _SCOPES_DECODER.decode(text)


def scopes_text(scopes: tuple[str, ...]) -> str:
    return msgspec.json.encode(sorted(set(scopes))).decode()


def grants_of(text: str | None) -> frozenset[str]:
    return DEFAULT_GRANTS if text is None else _GRANTS_DECODER.decode(text)


def grants_text(grants: frozenset[str]) -> str:
    return msgspec.json.encode(sorted(grants)).decode()


def changed_grants(text: str | None, add: Iterable[str], remove: Iterable[str]) -> frozenset[str]:
    """Return the stored grants after a change."""
    return (grants_of(text) | set(add)) - set(remove)


def entry_row(entry: AuditEntry) -> tuple[object, ...]:
    details = msgspec.json.encode(entry.details).decode()
    origin = (entry.address, entry.request)
    return entry.id, entry.at, entry.actor, entry.action, entry.target, details, entry.outcome, *origin


def entry_of(row: Sequence[Any]) -> AuditEntry:
    number, id, at, actor, action, target, details, outcome, address, request = row
    return AuditEntry(
        number=number,
        id=id,
        at=at,
        actor=actor,
        action=action,
        target=target,
        details=_DETAILS_DECODER.decode(details),
        outcome=outcome,
        address=address,
        request=request,
    )


async def list_page(
    fetch: Callable[[str | None, int], Awaitable[list[Summary]]],
    wanted: ExecutionFilter,
    after: str | None,
    limit: int,
) -> list[Summary]:
    """Return a page of executions. A store selects failed items by the name of the field in the encoded end, which may
    also occur in an error: such rows are dropped here and replaced by further ones."""
    found: list[Summary] = []
    while len(found) < limit:
        page = await fetch(after, limit - len(found))
        found += [each for each in page if each.failed_items or not wanted.failed_items]
        if len(page) < limit or not wanted.failed_items:
            break
        after = page[-1].id
    return found


def missing_part(row: Sequence[Any]) -> tuple[bytes, int] | None:
    """Return the record in a row of a list without its input, and where the bytes of it begin that have to be read;
    None if what lists show is in the row."""
    head, size = row[6:8]
    if len(head) == size:
        return None
    known, start = without_input(head)
    return (known, start) if start < size else None


def summary_of(row: Sequence[Any], accepted: bytes | None = None) -> Summary:
    """Return an execution in a list. `accepted` is its record without its input, if the row has only a part of it."""
    id, workflow, hash, status, at, ended_at, head, size, ending = row
    if accepted is None:
        accepted = head if len(head) == size else without_input(head)[0]
    end = _END_DECODER.decode(ending) if isinstance(ending, bytes) else None
    listed = listed_fields(accepted)
    return Summary(
        id=str(id),
        workflow=str(workflow),
        hash=str(hash),
        status=str(status),
        started_at=int(str(at)),
        ended_at=ended_at if isinstance(ended_at, int) else None,
        error=None if end is None else end.error,
        labels=listed.labels,
        failed_items=None if end is None else end.failed_items,
        version=listed.version,
        alias=listed.alias,
    )


def start_terms(execution: ExecutionRecord) -> list[str]:
    """Return the search terms of a started execution, besides workflow, status and time."""
    found = [label_term(name, value) for name, value in execution.labels.items()]
    if execution.principal != LOCAL:
        found.append(search_term("principal", execution.principal))
    if execution.retry_of is not None:
        found.append(search_term("retry_of", execution.retry_of))
    return found


def run_terms(facts: Sequence[Fact]) -> list[str]:
    """Return the search terms that these facts add, besides the end: that a node waits for a signal."""
    for fact in facts:
        if type(fact) is NodeSuspended and fact.signal is not None:
            return [] if fact.signal.startswith(CHILD_SIGNAL) else [WAITING]
    return []


def end_terms(end: ExecutionEnded) -> list[str]:
    """Return the search terms of an ended execution."""
    found = [] if end.error is None else [search_term("code", end.error.code)]
    return [*found, FAILED_ITEMS] if end.failed_items else found


def stored_terms(accepted: bytes, ending: bytes | None) -> list[str]:
    """Return the search terms of a stored execution; none if its row is damaged, which must not stop a migration."""
    try:
        found = start_terms(decode_record(accepted))
        return found if ending is None else [*found, *end_terms(_END_DECODER.decode(ending))]
    except (msgspec.DecodeError, ValueError, NewerFormatError):
        return []


def label_term(name: str, value: str) -> str:
    return search_term("label", f"{name}={value}")


def search_term(kind: str, value: str) -> str:
    """Return the term for a value. Long values, and those that a database may reject, are replaced by their digest."""
    if len(value) <= MAX_TERM_CHARS and value.isprintable():
        return f"{kind}:{value}"
    return f"{kind}#{hashlib.sha256(value.encode(errors='surrogatepass')).hexdigest()}"


def letter_of(execution: str, code: str, at: int, workflow: str, end: bytes) -> DeadLetter:
    error = _END_DECODER.decode(end).error
    details = error.details if error is not None else {}
    return DeadLetter(
        id=execution,
        execution=execution,
        workflow=workflow,
        node=str(details.get("node", "")),
        code=code,
        message=error.message if error is not None else "",
        at=at,
    )


def name_in(definition: bytes) -> str:
    """Return the display name in a definition."""
    return _DEFINITION_DECODER.decode(definition).name


def alias_of(row: Iterable[Any]) -> Alias:
    name, number, revision, weights = row
    return Alias(name, number, revision, weights_in(weights))


def weights_in(text: str) -> dict[int, float]:
    return _WEIGHTS_DECODER.decode(text)


def references(execution: ExecutionRecord, kept: Sequence[Fact]) -> set[str]:
    """Return the other executions whose blobs this one refers to."""
    found = set(execution.needs)
    for value in (
        execution.input,
        *(fact.value for fact in kept if isinstance(fact, NodeResult)),
    ):
        if isinstance(value, Large | Paged):
            found.add(value.key.partition("/")[0])
    return found - {execution.id}
