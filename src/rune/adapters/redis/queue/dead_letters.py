"""Dead letters of Redis Streams: entries that no worker could process, in one stream of bounded length per partition.

A malformed entry is acknowledged and moved to the dead letters in one step (`dead_letter.lua`), so that it neither
stays pending nor stops the entries that were read with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import KeySpace, decode_token
from rune.codec.decode import MalformedDataError, decode, decode_text
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
            start = "-"
            while page := await self._page(part, start, PAGE_SIZE):
                for id, letter, fields in page:
                    start = "(" + id.decode()
                    if chosen(letter):
                        if action is not None:
                            await action(letter.queue, fields)
                        await self._client.call("XDEL", self._keys.dead(part), id)
                        done += 1
        return done

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
        id=letter_id(stream, code, body),
        code=code or "UNKNOWN",
        reason=reason or "no reason given",
        queue=stream,
        execution=_execution(fields),
        body=body,
        at=int(id.partition(b"-")[0]),
    ), fields


def _execution(fields: Sequence[bytes]) -> str | None:
    """Return the execution of an entry that has one and a token."""
    values = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        execution = decode_text(values[b"x"])
        decode_token(values[b"t"])
    except (KeyError, MalformedDataError):
        return None
    return execution
