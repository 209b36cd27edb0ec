"""Crowds: what several tokens of one execution ask for while one of them is being served is asked for in one act."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from rune.adapters.redis.known import Known

MOST = 32  # in one act: a script must not keep others waiting for milliseconds

W = TypeVar("W")
A = TypeVar("A")
Waiting = list[tuple[W, "asyncio.Future[A]"]]


class Crowds(Generic[W, A]):
    """Whoever is alone is served at once, and by whoever asks. `together` serves several and answers one
    answer each, or None where they have to be served one by one."""

    def __init__(
        self,
        alone: Callable[[Known, W], Awaitable[A]],
        together: Callable[[Known, Sequence[W]], Awaitable[Sequence[A] | None]],
    ) -> None:
        self._alone = alone
        self._together = together
        self._crowds: dict[str, Waiting[W, A]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def serve(self, known: Known, wish: W) -> A:
        """The answer to one wish."""
        execution = known.accepted.id
        crowd = self._crowds.get(execution)
        if crowd is not None:
            future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
            crowd.append((wish, future))
            return await future
        self._crowds[execution] = []
        try:
            return await self._alone(known, wish)
        finally:
            self._next(known)

    def _next(self, known: Known) -> None:
        """Who has come meanwhile is served together, and who comes meanwhile is served next."""
        execution = known.accepted.id
        waiting = self._crowds.pop(execution)
        if waiting:
            self._crowds[execution] = []
            serving = asyncio.create_task(self._serve_all(known, waiting))
            self._under_way.add(serving)
            serving.add_done_callback(self._under_way.discard)

    async def _serve_all(self, known: Known, waiting: Waiting[W, A]) -> None:
        try:
            pieces = (waiting[start : start + MOST] for start in range(0, len(waiting), MOST))
            await asyncio.gather(*(self._serve_some(known, piece) for piece in pieces))
        finally:
            self._next(known)

    async def _serve_some(self, known: Known, waiting: Waiting[W, A]) -> None:
        try:
            answers = None
            if len(waiting) > 1:
                answers = await self._together(known, [wish for wish, _ in waiting])
            if answers is None:
                answers = [await self._alone(known, wish) for wish, _ in waiting]
        except BaseException as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(waiting, answers, strict=True):
            if not future.done():
                future.set_result(answer)
