"""The journal in PostgreSQL. The primary key of the fact table is the write-once rule; an exclusive lock per execution
makes the order of its facts the order of their commits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rune.adapters.postgres.accepting import ACCEPTED, Acceptor
from rune.adapters.postgres.database import Database, spelt
from rune.adapters.postgres.reading import ResultReader
from rune.adapters.postgres.recording import LANES, Recorder
from rune.adapters.postgres.sql import query
from rune.adapters.rowforms import letter_of
from rune.core.fact import End, Signal, TokenFact
from rune.core.lineage import Path
from rune.ports.journal import FORMAT, Accepted, DeadLetter, NewerFormat, Stored
from rune.wire.codec import decode_fact, encode_path

_END = msgspec.msgpack.Decoder(End)


class Running(msgspec.Struct, frozen=True):
    """An execution that has not ended, and when the journal says it has to be looked at; None: it waits for no time
    that the journal knows."""

    id: str
    due: int | None


class PostgresJournal:
    """Facts by execution, for any number of writers."""

    def __init__(self, database: Database, *, lanes: int = LANES) -> None:
        self._database = database
        self._recorder = Recorder(database, lanes=lanes)
        self._acceptor = Acceptor(database)
        self.record = self._recorder.record
        self.accept = self._acceptor.accept
        self.save_definition = self._acceptor.save
        self.results = ResultReader(database).results

    @property
    def saved(self) -> set[str]:
        """Definitions that somebody in this process may be about to name."""
        return set(self._acceptor.saved)

    async def definition(self, hash: str) -> bytes | None:
        row = await self._database.find(query("definition"), hash)
        return row["canonical"] if row is not None else None

    async def accepted(self, execution: str) -> Accepted | None:
        row = await self._database.find(query("accepted"), execution)
        if row is None:
            return None
        found = ACCEPTED.decode(row["accepted"])
        if found.format > FORMAT:
            raise NewerFormat(
                f"{execution} was written in format {found.format}, this Rune knows up to {FORMAT}"
            )
        return found

    async def facts(self, execution: str, after: int = 0) -> list[Stored]:
        rows = await self._database.look(query("facts"), execution, after)
        return [Stored(seq, decode_fact(body), late) for seq, body, late in rows]

    async def signal(self, execution: str, id: str) -> Signal | None:
        row = await self._database.find(query("signal"), execution, id.encode())
        fact = decode_fact(row["body"]) if row is not None else None
        return fact if isinstance(fact, Signal) else None

    async def children(self, parent: str) -> list[str]:
        return [row["id"] for row in await self._database.look(query("children"), parent)]

    async def untold(self, limit: int) -> list[str]:
        return [row["id"] for row in await self._database.fetch(query("untold"), limit)]

    async def told(self, execution: str) -> None:
        await self._database.fetch(query("told"), execution)

    async def dead_letters(self, limit: int, after: str | None = None) -> list[DeadLetter]:
        rows = await self._database.look(query("dead_letters"), after, limit)
        return [letter_of(*row) for row in rows]

    async def settle(self, letter: str, how: str) -> bool:
        return await self._database.once(query("settle"), letter, how) is not None

    async def of_token(self, execution: str, node: int, path: Path) -> list[TokenFact]:
        rows = await self._database.look(query("of_token"), execution, node, encode_path(path))
        return [decode_fact(row["body"]) for row in rows]  # type: ignore[misc]

    async def claimed(
        self, execution: str, node: int, path: Path, fence: tuple[int, int], at: int, *, durable: bool = False
    ) -> int:
        claim = (execution, node, encode_path(path), *fence, at)
        if not durable:
            self._recorder.claimed(claim)
            return 1
        row = await self._database.row(query("claim"), *claim)
        return 1 if row is None else int(row["before"]) + (not row["known"])

    async def end(self, execution: str) -> End | None:
        row = await self._database.find(query("ending"), execution)
        return _END.decode(row["ending"]) if row is not None and row["ending"] is not None else None

    async def ends(self, executions: Sequence[str]) -> dict[str, End]:
        named = [each for each in executions if spelt(each)]
        rows = await self._database.fetch(query("endings"), named)
        return {row["id"]: _END.decode(row["ending"]) for row in rows}

    async def running(self, after: str = "", limit: int = 1_000) -> list[Running]:
        """Executions that have not ended, by id, behind an id: what has to be armed again once the state was lost."""
        rows = await self._database.look(query("running"), after, limit)
        return [Running(row["id"], row["due"]) for row in rows]

    async def close(self) -> None:
        await self._acceptor.close()
        await self._recorder.close()
        await self._database.close()
