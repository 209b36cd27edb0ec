"""Reading: what concurrent tokens ask for is fetched together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from rune.adapters.postgres.database import Database
from rune.adapters.postgres.grouping import Groups
from rune.adapters.postgres.sql import query
from rune.core.fact import Result
from rune.core.lineage import Path
from rune.wire.codec import decode_fact, encode_path

LANES = 2
MOST_QUESTIONS = 128
MOST_KEYS = 2_000

K = TypeVar("K")
V = TypeVar("V")


class Wish(Generic[K]):
    """Something to be looked up."""

    __slots__ = ("future", "key")

    def __init__(self, key: K) -> None:
        self.key = key
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return ()


class Lookup(Generic[K, V]):
    """Looks up many keys in one question. `ask` answers one value each, in the order asked."""

    def __init__(
        self,
        database: Database,
        ask: Callable[[Sequence[K]], Awaitable[Sequence[V]]],
        most: int = MOST_QUESTIONS,
    ) -> None:
        self._database = database
        self._ask = ask
        self._asking = False
        self._groups: Groups[Wish[K]] = Groups(self._asked, lambda: lambda _: True, lanes=LANES, most=most)

    async def of(self, key: K) -> V:
        if self._database.is_still:  # a moment of one's own is not shared with others
            return (await self._ask([key]))[0]
        if not self._asking:  # nobody to share with
            self._asking = True
            try:
                return (await self._ask([key]))[0]
            finally:
                self._asking = False
        found: V = await self._groups.submit(Wish(key))
        return found

    async def _asked(self, group: Sequence[Wish[K]]) -> Sequence[V]:
        return await self._ask([each.key for each in group])


class Question:
    """The results of some tokens of one execution."""

    __slots__ = ("execution", "future", "keys")

    def __init__(self, execution: str, keys: Sequence[tuple[int, Path]]) -> None:
        self.execution = execution
        self.keys = keys
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def names(self) -> Iterable[object]:
        return ()


def gathering() -> Callable[[Question], bool]:
    """A group: not too much at once."""
    count = 0

    def admits(question: Question) -> bool:
        nonlocal count
        if count and count + len(question.keys) > MOST_KEYS:
            return False
        count += len(question.keys)
        return True

    return admits


class ResultReader:
    """Answers questions in groups."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._groups: Groups[Question] = Groups(self._ask, gathering, lanes=LANES, most=MOST_QUESTIONS)
        self._statement = query("results")

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[Result | None]:
        """The results of these tokens, in the order asked."""
        found: list[Result | None] = await self._groups.submit(Question(execution, keys))
        return found

    async def _ask(self, group: Sequence[Question]) -> list[list[Result | None]]:
        ids = [each.execution for each in group for _ in each.keys]
        nodes = [node for each in group for node, _ in each.keys]
        paths = [encode_path(path) for each in group for _, path in each.keys]
        bodies: list[Result | None] = [None] * len(ids)
        for place, body in await self._database.fetch(self._statement, ids, nodes, paths):
            fact = decode_fact(body)
            bodies[place - 1] = fact if isinstance(fact, Result) else None
        answers: list[list[Result | None]] = []
        start = 0
        for each in group:
            answers.append(bodies[start : start + len(each.keys)])
            start += len(each.keys)
        return answers
