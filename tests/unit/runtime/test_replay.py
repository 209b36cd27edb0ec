"""A replay of many facts does not block the event loop, and one of a few costs no thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from rune.runtime.queries.history import MAX_INLINE_FACTS, replay


def test_many_facts_are_replayed_while_the_loop_turns() -> None:
    async def go() -> str:
        turned = threading.Event()

        def work() -> str:
            # Waits for the event loop, which a replay in its own thread would block.
            assert turned.wait(30), "the event loop is blocked"
            return "state"

        asyncio.get_running_loop().call_soon(turned.set)
        return await replay(MAX_INLINE_FACTS + 1, work)

    assert asyncio.run(go()) == "state"


def test_few_facts_are_replayed_in_the_thread_of_the_caller() -> None:
    async def go() -> int:
        return await replay(MAX_INLINE_FACTS, threading.get_ident)

    assert asyncio.run(go()) == threading.get_ident()


def test_error_of_replay_reaches_the_caller() -> None:
    def work() -> Any:
        raise KeyError("node")

    async def go(facts: int) -> str:
        try:
            await replay(facts, work)
        except KeyError as error:
            return str(error)
        return "no error"

    assert [asyncio.run(go(facts)) for facts in (1, MAX_INLINE_FACTS + 1)] == ["'node'", "'node'"]
