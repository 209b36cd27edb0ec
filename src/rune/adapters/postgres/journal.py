"""Journal, blobs, execution index and transactional outbox in PostgreSQL.

The primary key of the fact table makes every fact write-once. An exclusive lock per execution makes the order of its
facts the order of their commits. The outbox lists the work that an accepted or ended execution still needs: a `start`
row requests activation in case the accepting process did not activate it; an `end` row requests the completion to be
sent and the state to be dropped. Rows are written in the transaction that causes them, and several relays may take rows
concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.adapters.execution_list import Dialect, ExecutionSearch, ExecutionStatistics, is_listed
from rune.adapters.postgres.database import Database, Lookup, ResultReader, is_storable, query, splitting
from rune.adapters.postgres.journal_writes import LANES, FactWriter, StartWriter
from rune.adapters.rows import letter_of, list_page, missing_part, summary_of
from rune.batcher import Batcher
from rune.codec.facts import decode_fact, decode_path, encode_path
from rune.codec.records import HEAD_BYTES, decode_record
from rune.core.execution.fact import ExecutionEnded, SignalReceived, TokenFact
from rune.core.execution.token import Path
from rune.ports.inspection import Backlog
from rune.ports.journal import (
    DeadLetter,
    ExecutionRecord,
    Kind,
    OutboxRow,
    StoredFact,
)
from rune.ports.queries import ALL_EXECUTIONS, STATUSES, ExecutionFilter, ExecutionsFound, Summary

MAX_HISTORIES = 64
_END = msgspec.msgpack.Decoder(ExecutionEnded)
_COLUMNS = (
    "x.id, x.workflow, x.hash, x.status, x.at, x.ended_at,"
    f" substring(x.accepted FROM 1 FOR {HEAD_BYTES}) AS head, octet_length(x.accepted) AS size, x.ending"
)

FactsWanted = tuple[str, int, int | None]
"""Execution, number after which facts are read, maximum number of facts."""

MAX_ROWS = 256
LINGER_S = 0.1
"""How long finished work may wait to be marked done in a batch; relays wait far longer before they take a row."""

HOLD_MS = 30_000
"""How long a relay has for a row before another relay may take it."""

DoneRequest = tuple[str, Kind]
"""Execution and kind of a row whose work was done by the process that wrote it."""


class RunningExecution(msgspec.Struct, frozen=True):
    """An execution that has not ended and the time of its next timer, None if the journal records none."""

    id: str
    due: int | None


class PostgresJournal:
    """Facts by execution, written by any number of processes."""

    def __init__(self, database: Database, *, lanes: int = LANES) -> None:
        self._database = database
        self._fact_writer = FactWriter(database, lanes=lanes)
        self._start_writer = StartWriter(database)
        self.record = self._fact_writer.record
        self.record_all = self._fact_writer.record_all
        self.accept = self._start_writer.accept
        self.save_definition = self._start_writer.save
        self.results = ResultReader(database).results
        self._starts: Lookup[str, bytes | None] = Lookup(database, self._fetch_records)
        self._ends: Lookup[str, ExecutionEnded | None] = Lookup(database, self._fetch_ends)
        self._facts: Lookup[FactsWanted, list[StoredFact]] = Lookup(
            database, self._fetch_facts, most=MAX_HISTORIES
        )

    async def check_writable(self) -> None:
        """Raise StoreUnavailableError with the reason if writes fail."""
        await self._database.check_writable()

    @property
    def saved(self) -> set[str]:
        """Hashes of definitions that this process saved and may still start executions of."""
        return set(self._start_writer.saved)

    async def definition(self, hash: str) -> bytes | None:
        row = await self._database.find(query("definition"), hash)
        return row["canonical"] if row is not None else None

    async def keyed(self, key: str) -> str | None:
        row = await self._database.find(query("keyed"), key) if is_storable(key) else None
        return None if row is None else str(row["execution"])

    async def accepted(self, execution: str) -> ExecutionRecord | None:
        stored = await self._starts.of(execution) if is_storable(execution) else None
        return None if stored is None else decode_record(stored)

    async def _fetch_records(self, executions: Sequence[str]) -> list[bytes | None]:
        """Return the encoded records: one of a newer format must not make the others of a batch unreadable."""
        rows = await self._database.fetch(query("accepted"), list(set(executions)))
        stored = {row["id"]: row["accepted"] for row in rows}
        return [stored.get(each) for each in executions]

    async def facts(self, execution: str, after: int = 0, limit: int | None = None) -> list[StoredFact]:
        return await self._facts.of((execution, after, limit)) if is_storable(execution) else []

    async def _fetch_facts(self, requests: Sequence[FactsWanted]) -> list[list[StoredFact]]:
        histories: list[list[StoredFact]] = [[] for _ in requests]
        columns = [list(column) for column in zip(*requests, strict=True)]
        for place, seq, body, late in await self._database.fetch(query("facts"), *columns):
            histories[place - 1].append(StoredFact(seq, decode_fact(body), late))
        return histories

    async def signal(self, execution: str, id: str) -> SignalReceived | None:
        row = await self._database.find(query("signal"), execution, id.encode())
        fact = decode_fact(row["body"]) if row is not None else None
        return fact if isinstance(fact, SignalReceived) else None

    async def children(self, parent: str) -> list[str]:
        return [row["id"] for row in await self._database.find_all(query("children"), parent)]

    async def unreported_children(self, limit: int) -> list[str]:
        return [row["id"] for row in await self._database.fetch(query("unreported_children"), limit)]

    async def mark_reported(self, execution: str) -> None:
        await self._database.fetch(query("mark_reported"), execution)

    async def dead_letters(self, limit: int, after: str | None = None) -> list[DeadLetter]:
        rows = await self._database.find_all(query("dead_letters"), after, limit)
        return [letter_of(*row) for row in rows]

    async def resolve_dead_letter(self, letter: str, how: str) -> bool:
        return await self._database.once(query("resolve_dead_letter"), letter, how) is not None

    async def facts_of_token(self, execution: str, node: int, path: Path) -> list[TokenFact]:
        rows = await self._database.find_all(query("facts_of_token"), execution, node, encode_path(path))
        return [decode_fact(row["body"]) for row in rows]  # type: ignore[misc]

    async def count_claim(
        self, execution: str, node: int, path: Path, fence: tuple[int, int], at: int, *, durable: bool = False
    ) -> int:
        claim = (execution, node, encode_path(path), *fence, at)
        if not durable:
            self._fact_writer.count_claim(claim)
            return 1
        row = await self._database.row(query("count_claim"), *claim)
        return 1 if row is None else int(row["before"]) + (not row["known"])

    async def open_claims(self, execution: str) -> dict[tuple[int, Path], int]:
        rows = await self._database.find_all(query("open_claims"), execution)
        return {(node, decode_path(path)): at for node, path, at in rows}

    async def claims_of(self, execution: str, node: int, path: Path) -> int:
        ((count,),) = await self._database.find_all(query("claims_of"), execution, node, encode_path(path))
        return int(count)

    async def last_claims(self, execution: str) -> dict[tuple[int, Path], int]:
        rows = await self._database.find_all(query("last_claims"), execution)
        return {(node, decode_path(path)): at for node, path, at in rows}

    async def end(self, execution: str) -> ExecutionEnded | None:
        end = self._fact_writer.ended.pop(execution, None)
        if end is not None or not is_storable(execution):
            return end
        return await self._ends.of(execution)

    async def _fetch_ends(self, executions: Sequence[str]) -> list[ExecutionEnded | None]:
        ends = await self.ends_of(list(set(executions)))
        return [ends.get(each) for each in executions]

    async def ends_of(self, executions: Sequence[str]) -> dict[str, ExecutionEnded]:
        storable = [each for each in executions if is_storable(each)]
        rows = await self._database.fetch(query("ends_of"), storable)
        return {row["id"]: _END.decode(row["ending"]) for row in rows}

    def forget(self, executions: Sequence[str]) -> None:
        """Drop cached ends of executions that were removed."""
        for execution in executions:
            self._fact_writer.ended.pop(execution, None)

    async def running(self, after: str = "", limit: int = 1_000) -> list[RunningExecution]:
        """Return executions that have not ended, ordered by id, after an id. Used to restore timers after the state
        store was lost."""
        rows = await self._database.find_all(query("running"), after, limit)
        return [RunningExecution(row["id"], row["due"]) for row in rows]

    async def close(self) -> None:
        await self._start_writer.close()
        await self._fact_writer.close()
        await self._database.close()


def _like(scope: str) -> tuple[str, str]:
    return "LIKE {}", scope.replace("_", r"\_").replace("*", "%")


DIALECT = Dialect(_like, by_leading_column=True)


class PostgresBlobs:
    """Blobs by key; the part of a key before the first slash is the execution."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: dict[str, asyncio.Task[bytes | None]] = {}

    async def put(self, key: str, data: bytes) -> None:
        await self._database.fetch(query("blob_put"), key.partition("/")[0], key, data)

    async def get(self, key: str) -> bytes | None:
        """Return the blob of a key. Concurrent reads of one key share a query: hundreds of fan-out items read the same
        page of their list at once."""
        if self._database.in_snapshot:
            return await self._get(key)
        read = self._reads.get(key)
        if read is None:
            read = self._reads[key] = asyncio.create_task(self._get(key))
            read.add_done_callback(lambda _: self._reads.pop(key, None))
        return await asyncio.shield(read)

    async def _get(self, key: str) -> bytes | None:
        row = await self._database.find(query("blob_get"), key.partition("/")[0], key)
        return row["data"] if row is not None else None

    async def delete(self, execution: str) -> int:
        row = await self._database.once(query("blob_delete"), execution)
        return int(row["count"]) if row is not None else 0


class PostgresIndex:
    """Lists executions and their claims; reads only."""

    def __init__(self, database: Database) -> None:
        self._database = database
        search = ExecutionSearch(self._fetch, self._list, _COLUMNS, DIALECT)
        self._search = search
        self.count = search.count
        self.statistics = ExecutionStatistics(self._fetch, DIALECT)

    async def search(
        self, wanted: ExecutionFilter, *, after: str | None = None, limit: int = 50
    ) -> ExecutionsFound:
        if not all(is_storable(text or "") for text in (wanted.workflow, wanted.hash, wanted.parent, after)):
            return ExecutionsFound([], None)
        return await self._search.find(wanted, after=after, limit=limit)

    async def _fetch(self, statement: str, values: list[Any]) -> list[Any]:
        text = statement
        for number, value in enumerate(values, 1):
            kind = "text[]" if isinstance(value, list) else "text" if isinstance(value, str) else "bigint"
            text = text.replace("{}", f"${number}::{kind}", 1)
        return list(await self._database.fetch_planned(text, *values))

    async def _list(self, statement: str, values: list[Any]) -> list[Summary]:
        return await self._summaries(await self._fetch(statement, values))

    async def _summaries(self, rows: Sequence[Any]) -> list[Summary]:
        """Return the executions of rows, after reading what is missing of their records."""
        missing = {place: part for place, row in enumerate(rows) if (part := missing_part(row)) is not None}
        records: dict[int, bytes] = {}
        if missing:
            ids = [rows[place][0] for place in missing]
            starts = [start + 1 for _, start in missing.values()]
            places = list(missing)
            for number, part in await self._database.fetch(query("record_parts"), ids, starts):
                place = places[number - 1]
                records[place] = missing[place][0] + part
        # One that was removed meanwhile is not listed.
        return [
            summary_of(row, records.get(place))
            for place, row in enumerate(rows)
            if place not in missing or place in records
        ]

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        """Return executions, newest first, after a given id."""
        if not is_listed(wanted):
            return await self._search.all(wanted, after=after, limit=limit)
        return await list_page(lambda start, most: self._page(wanted, start, most), wanted, after, limit)

    async def _page(self, wanted: ExecutionFilter, after: str | None, limit: int) -> list[Summary]:
        name = "executions"
        values: list[Any] = [after, limit, wanted.hash, wanted.failed_items]
        if wanted.workflow is not None:
            name = "executions_of_workflow"
            values += [wanted.workflow, wanted.statuses or STATUSES]
        elif wanted.statuses:
            name = "executions_of_status"
            values.append(wanted.statuses)
        rows = await self._database.find_all(query(name), *values)
        return await self._summaries(rows)

    async def execution(self, execution: str) -> Summary | None:
        row = await self._database.find(query("execution"), execution)
        return next(iter(await self._summaries([] if row is None else [row])), None)

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Return up to `limit` ids with this prefix."""
        rows = await self._database.find_all(query("matching"), prefix, prefix + "\U0010ffff", limit)
        return [row["id"] for row in rows]

    async def last_progress(self, execution: str) -> int | None:
        """Return the time of the newest row of an execution."""
        row = await self._database.find(query("last_fact"), execution)
        return None if row is None else decode_fact(row["body"]).at

    async def claims(self, execution: str) -> dict[tuple[int, Path], int]:
        """Return how often each token was claimed."""
        rows = await self._database.find_all(query("claims"), execution)
        return {(node, decode_path(path)): count for node, path, count in rows}


class PostgresOutbox:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._done: Batcher[DoneRequest, None] = Batcher(
            splitting(self._delete_rows), max_requests=MAX_ROWS, linger=LINGER_S
        )

    async def take(self, limit: int, held: int = HOLD_MS) -> list[OutboxRow]:
        """Take up to `limit` rows, oldest first, that no relay holds. They are held for `held` ms by the database's
        clock."""
        rows = await self._database.fetch(query("outbox_take"), limit, held)
        return [OutboxRow(*row) for row in sorted(rows)]

    async def keep(self, number: int, body: bytes) -> bytes:
        """Store the message of a row so that every send repeats it. Return the message that was stored first."""
        row = await self._database.row(query("outbox_keep"), number, body)
        return row["body"] if row is not None else body

    async def done(self, numbers: Sequence[int]) -> None:
        """Delete rows whose work is done. Idempotent; if it is lost, the work is only repeated."""
        await self._database.fetch(query("outbox_done"), list(numbers))

    async def mark_done(self, execution: str, kind: Kind) -> None:
        """Delete the row of this execution and kind; concurrent calls share one statement."""
        await self._done.submit((execution, kind))

    async def backlog(self) -> Backlog:
        """Return the number of rows and for how long the oldest has been free for a relay to take."""
        ((rows, late),) = await self._database.fetch(query("outbox_backlog"))
        return Backlog(rows=rows, lag=(late or 0) / 1000)

    async def close(self) -> None:
        """Write pending requests."""
        await self._done.close()

    async def _delete_rows(self, group: Sequence[DoneRequest]) -> list[None]:
        executions, kinds = [execution for execution, _ in group], [kind for _, kind in group]
        await self._database.fetch(query("outbox_mark_done"), executions, kinds)
        return [None] * len(group)
