"""Batched reads of the journal, and how batched writes treat errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from rune.adapters.postgres.database import Database, OutOfLocksError, query
from rune.codec.facts import decode_fact, encode_path
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Path
from rune.ports.batcher import Batcher
from rune.ports.journal import StoreUnavailableError

READ_LANES = 2
MAX_REQUESTS = 128
MAX_KEYS = 2_000


K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
A = TypeVar("A")


def splitting(
    write: Callable[[Sequence[R]], Awaitable[Sequence[A | BaseException]]],
) -> Callable[[Sequence[R]], Awaitable[list[A | BaseException]]]:
    """Return a write that splits a batch in halves if it fails and writes them again, so that one invalid request does
    not fail the others. An unavailable store fails all."""

    async def write_or_split(requests: Sequence[R]) -> list[A | BaseException]:
        try:
            return list(await write(requests))
        except Exception as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, OutOfLocksError):
                return [StoreUnavailableError(error.message, code=error.code) for _ in requests]
            if len(requests) == 1:
                return [error]
        middle = len(requests) // 2
        return [*await write_or_split(requests[:middle]), *await write_or_split(requests[middle:])]

    return write_or_split


class Lookup(Generic[K, V]):
    """Looks up many keys in one query. `fetch` returns one value per key, in the order of the keys."""

    def __init__(
        self,
        database: Database,
        fetch: Callable[[Sequence[K]], Awaitable[Sequence[V]]],
        most: int = MAX_REQUESTS,
    ) -> None:
        self._database = database
        self._fetch = fetch
        self._batches: Batcher[K, V] = Batcher(splitting(fetch), max_requests=most, lanes=READ_LANES + 1)

    async def of(self, key: K) -> V:
        # A snapshot belongs to one task: its reads cannot be batched with those of others.
        if self._database.in_snapshot:
            return (await self._fetch([key]))[0]
        return await self._batches.call(key)


ResultRequest = tuple[str, Sequence[tuple[int, Path]]]
"""An execution and some of its tokens."""


def result_batch() -> Callable[[ResultRequest], bool]:
    """Return the admission rule of a batch: at most MAX_KEYS results."""
    count = 0

    def admits(request: ResultRequest) -> bool:
        nonlocal count
        size = len(request[1])
        if count and count + size > MAX_KEYS:
            return False
        count += size
        return True

    return admits


class ResultReader:
    """Reads results of tokens in batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batches: Batcher[ResultRequest, list[NodeResult | None]] = Batcher(
            splitting(self._fetch_batch),
            max_requests=MAX_REQUESTS,
            lanes=READ_LANES,
            new_batch=result_batch,
        )
        self._statement = query("results")

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[NodeResult | None]:
        """Return the results of these tokens in the order of the keys."""
        return await self._batches.submit((execution, keys))

    async def _fetch_batch(self, group: Sequence[ResultRequest]) -> list[list[NodeResult | None]]:
        ids = [execution for execution, keys in group for _ in keys]
        nodes = [node for _, keys in group for node, _ in keys]
        paths = [encode_path(path) for _, keys in group for _, path in keys]
        bodies: list[NodeResult | None] = [None] * len(ids)
        for place, body in await self._database.fetch(self._statement, ids, nodes, paths):
            fact = decode_fact(body)
            bodies[place - 1] = fact if isinstance(fact, NodeResult) else None
        results: list[list[NodeResult | None]] = []
        start = 0
        for _, keys in group:
            results.append(bodies[start : start + len(keys)])
            start += len(keys)
        return results
