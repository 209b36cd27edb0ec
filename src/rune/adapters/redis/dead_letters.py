"""The dead letters of the queue on Redis Streams.

Entries that no worker could process are dead letters, in one stream of bounded length per partition. A malformed entry
is acknowledged and moved there in one step (`dead_letter.lua`), so that it neither stays pending nor stops the entries
that were read with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import KeySpace
from rune.codec.decode import MalformedDataError, decode, decode_text
from rune.codec.messages import ID
from rune.ports.queue import QueueDeadLetter, letter_id

MAX_LETTERS = 1_000
"""Dead letters of one partition; beyond that the oldest are deleted."""

MAX_REASON_CHARACTERS = 1_000
PAGE_SIZE = 200

_PACK = msgspec.msgpack.Encoder().encode
_FIELDS = msgspec.msgpack.Decoder(list[bytes])


def letter_fields(stream: str, fields: Sequence[bytes], code: str, reason: str) -> tuple[str | bytes, ...]:
    """Return the fields of a dead letter: the reason, and the fields and values of the entry unchanged."""
    text = reason[:MAX_REASON_CHARACTERS].encode(errors="replace")
    return "code", code, "reason", text, "stream", stream, "entry", _PACK(list(fields))


_Row = tuple[bytes, QueueDeadLetter, Sequence[bytes]]
"""Id of a dead letter in its stream, the letter, and the fields and values of the entry that it was."""


class RedisDeadLetters:
    """Implements the port over the dead letter streams of all partitions."""

    def __init__(self, client: Client, keys: KeySpace) -> None:
        self._client = client
        self._keys = keys

    async def list(self, limit: int = 100) -> list[QueueDeadLetter]:
        pages = await asyncio.gather(*(self._page(part, "-", limit) for part in range(self._keys.partitions)))
        found = [letter for page in pages for _, letter, _ in page]
        return sorted(found, key=lambda each: each.at or 0)[:limit]

    async def find(self, letter: str) -> QueueDeadLetter | None:
        for part in range(self._keys.partitions):
            async for _, each, _ in self._rows(part):
                if each.id == letter:
                    return each
        return None

    async def count(self) -> int:
        calls = (self._client.call("XLEN", self._keys.dead(part)) for part in range(self._keys.partitions))
        return sum(await asyncio.gather(*calls))

    async def requeue(self, letter: str) -> int:
        async def send(stream: str, fields: Sequence[bytes]) -> None:
            await self._client.call("XADD", stream, "*", *fields)

        return await self._each(lambda each: each.id == letter, send)

    async def discard(self, letter: str) -> int:
        return await self._each(lambda each: each.id == letter, None)

    async def _each(self, chosen: Callable[[QueueDeadLetter], bool], action: Any) -> int:
        done = 0
        for part in range(self._keys.partitions):
            async for id, letter, fields in self._rows(part):
                if chosen(letter):
                    if action is not None:
                        await action(letter.queue, fields)
                    await self._client.call("XDEL", self._keys.dead(part), id)
                    done += 1
        return done

    async def _rows(self, part: int) -> AsyncIterator[_Row]:
        """Yield the letters of a partition, oldest first."""
        start = "-"
        while page := await self._page(part, start, PAGE_SIZE):
            for row in page:
                yield row
            start = "(" + page[-1][0].decode()

    async def _page(self, part: int, start: str, limit: int) -> Sequence[_Row]:
        rows = await self._client.call("XRANGE", self._keys.dead(part), start, "+", "COUNT", limit)
        return [(id, *_read(id, dict(zip(flat[::2], flat[1::2], strict=True)))) for id, flat in rows]


def _read(id: bytes, letter: dict[bytes, bytes]) -> tuple[QueueDeadLetter, list[bytes]]:
    """Return a dead letter, and the fields and values of the entry that it was."""
    code, reason, stream = (
        letter.get(name, b"").decode(errors="replace") for name in (b"code", b"reason", b"stream")
    )
    try:
        fields = decode(_FIELDS, letter.get(b"entry", b""))
    except MalformedDataError:
        fields = []
    body = b" ".join(name + b"=" + value for name, value in zip(fields[::2], fields[1::2], strict=False))
    return QueueDeadLetter(
        id=letter_id(stream, code, body, id.decode()),
        code=code or "UNKNOWN",
        reason=reason or "no reason given",
        queue=stream,
        execution=execution_of(fields),
        body=body,
        at=int(id.partition(b"-")[0]),
    ), fields


def execution_of(fields: Sequence[bytes]) -> str | None:
    """Return the execution that an entry names."""
    values = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        named = decode_text(values[b"x"])
    except (KeyError, MalformedDataError):
        return None
    return named if ID.fullmatch(named) else None
