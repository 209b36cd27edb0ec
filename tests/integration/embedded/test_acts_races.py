"""Two things at once, many times, at every distance from each other: exactly one of the outcomes, and both sides know
which."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rune.bootstrap import open_reader, running_engine
from rune.core.definition.model import canonical
from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.errors import RuneError
from rune.ports.journal import ExecutionEndedError
from rune.ports.retention import Rule
from rune.runtime.components import Services
from rune.runtime.engine import Engine
from rune.settings import Settings
from rune.testing.harness import compiled
from tests.acceptance.conformance.actor import Look
from tests.acceptance.conformance.command import command
from tests.integration.embedded.act_shapes import ASK, CALL, document

ROUNDS = int(os.environ.get("RUNE_ROUNDS", "60"))
DEADLINE = 120.0
SEED = int(os.environ.get("RUNE_SEED", "11"))
TERMINAL = ("completed", "failed", "halted", "cancelled")


def _work(name: str) -> dict[str, Any]:
    return {"id": name, "type": "noop", "parameters": {"effectful": True}}


def _set(name: str, value: str) -> dict[str, Any]:
    assignments = [{"name": "v", "value": value}]
    return {"id": name, "type": "edit", "parameters": {"mode": "keep_only", "assignments": assignments}}


class Arena:
    """An engine and what a race does with it."""

    def __init__(self, engine: Engine, look: Look) -> None:
        self.engine = engine
        self.services: Services = engine.services
        self.look = look
        self.chance = random.Random(SEED)

    async def start(self, source: dict[str, Any], payload: Any = None) -> str:
        definition = canonical(compiled(source).definition)
        return (
            await self.services.executions.start_definition(definition, json.dumps(payload or {}).encode())
        ).id

    async def end(self, execution: str) -> dict[str, Any]:
        """How an execution ended, and that it did so once."""
        await asyncio.wait_for(await self.engine.wait_for(execution), DEADLINE)
        events = Counter(await self.look.events(execution))
        assert sum(events[f"execution.{each}"] for each in TERMINAL) == 1, events
        return await self.look.document(execution)

    async def later(self, most: int) -> None:
        """After a few turns of the loop, never the same number."""
        loop = asyncio.get_running_loop()
        for _ in range(self.chance.randrange(most)):
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn

    async def about(self, seconds: float) -> None:
        """After about so long, sooner or later."""
        never = asyncio.get_running_loop().create_future()
        await asyncio.wait([never], timeout=seconds * self.chance.uniform(0.5, 1.2))
        await self.later(50)

    async def waiting(self, execution: str, node: str) -> None:
        while not any(each["node"] == node for each in await self.look.waiting(execution)):
            await self.later(20)


@asynccontextmanager
async def _arena(home: pathlib.Path) -> AsyncIterator[Arena]:
    settings = Settings(home=str(home), durability="relaxed", grace=1)
    async with running_engine(settings) as engine, open_reader(settings) as opened:
        yield Arena(engine, Look(opened))


async def _tried(act: Awaitable[Any]) -> Any:
    """What an act answers, or the code by which it was refused."""
    try:
        return await act
    except RuneError as refused:
        return refused.code


Round = Callable[[Arena], Awaitable[str]]


async def _signal_against_timeout(arena: Arena) -> str:
    limited = {**ASK, "timeout": 0.03, "error": "ignore"}
    execution = await arena.start(
        document("limited", [limited, _work("e")], "{{ get($ask, 'error.code', $ask) }}")
    )
    await arena.waiting(execution, "ask")
    await arena.about(0.03)

    heard = await _tried(arena.services.executions.signal(execution, "ask", b'{"said": 1}'))

    ended = await arena.end(execution)
    resumed = heard != "ENDED" and heard.resumed
    assert ended["status"] == "completed"
    assert ended["output"] == ({"said": 1} if resumed else "TIMEOUT"), heard
    return "heard" if resumed else "late"


async def _cancel_against_completion(arena: Arena) -> str:
    execution = await arena.start(document("quick", [_work("a"), _work("b")], 1))
    await arena.later(150)

    answer = await _tried(arena.services.executions.cancel(execution))

    ended = await arena.end(execution)
    assert ended["status"] == ("completed" if answer == "ENDED" else answer)
    assert (ended["output"] == 1) is (ended["status"] == "completed")
    return str(ended["status"])


async def _pause_against_the_last_token(arena: Arena) -> str:
    execution = await arena.start(document("quick", [_work("a"), _work("b")], 1))
    await arena.later(150)

    paused = await _tried(arena.services.executions.pause(execution))
    await arena.later(30)
    resumed = await _tried(arena.services.executions.resume(execution))

    ended = await arena.end(execution)
    assert (ended["status"], ended["output"]) == ("completed", 1)
    assert paused in (True, "ENDED")
    assert resumed is True or resumed == "ENDED"
    return str(paused)


async def _child_end_against_parent_cancel(arena: Arena) -> str:
    await arena.services.workflows.deploy(canonical(compiled(document("kid", [_work("k")], 1)).definition))
    execution = await arena.start(document("parent", [CALL, _work("e")], "$call"))
    await arena.later(300)

    answer = await _tried(arena.services.executions.cancel(execution))

    ended = await arena.end(execution)
    assert ended["status"] == ("completed" if answer == "ENDED" else answer)
    kids = [each for each in await arena.look.executions("kid") if await _is_of(arena, each, execution)]
    assert len(kids) <= 1
    for kid in kids:
        how = (await arena.end(kid))["status"]
        assert how == "completed" or ended["status"] == "cancelled"
        return f"{ended['status']}, child {how}"
    assert ended["status"] == "cancelled"
    return "cancelled, no child"


async def _is_of(arena: Arena, child: str, parent: str) -> bool:
    return (await arena.look.document(child)).get("parent_id") == parent


async def _two_signals_for_two_waits(arena: Arena) -> str:
    first = {**ASK, "id": "a", "parameters": {"resume": "signal", "name": "go"}}
    execution = await arena.start(document("both", [first, {**first, "id": "b"}], "{{ [$a, $b] }}"))

    async def say(value: int) -> Any:
        await arena.later(200)
        return await _tried(
            arena.services.executions.signal(execution, "go", str(value).encode(), key=f"k{value}")
        )

    await asyncio.gather(say(1), say(2), say(1))

    ended = await arena.end(execution)
    assert sorted(ended["output"]) == [1, 2]
    return str(ended["output"])


async def _pause_against_signal(arena: Arena) -> str:
    execution = await arena.start(document("asks", [ASK, _work("e")], "$ask"))

    async def hold() -> str:
        await arena.later(100)
        paused = await arena.services.executions.pause(execution)
        await arena.later(100)
        return f"{paused} {await arena.services.executions.resume(execution)}"

    async def say() -> None:
        await arena.later(200)
        await arena.services.executions.signal(execution, "ask", b"5", key="k")

    held, _ = await asyncio.gather(_tried(hold()), say())

    ended = await arena.end(execution)
    assert (ended["status"], ended["output"]) == ("completed", 5)
    assert held in ("True True", "ENDED")
    return str(held)


GONE = {"GONE", "UNKNOWN_EXECUTION"}
LARGE = document("large", [_set("big", "{{ range(9000) }}"), _work("e")], "{{ len($big.v) }}")
LETTER = document("letter", [_set("once", "{{ uuid() }}"), ASK], "$once.v")


async def _again_against_collect(arena: Arena, again: Callable[[str], Awaitable[Any]], fails: bool) -> str:
    """Either it is gone before it can be used again, or what it leaves to the new one is kept."""
    execution = await arena.start(LETTER if fails else LARGE)
    kept: Any = 9000
    if fails:
        await arena.waiting(execution, "ask")
        kept = (await arena.look.document(execution))["context"]["$once"]["v"]
        dead = FinishExecution("failed", Error("WORKER_CRASH", "died", {"node": "ask@/"}, True))
        await arena.engine.finisher.finish(execution, dead, arena.engine.backend.clock.now())
    await arena.end(execution)

    async def collect() -> None:
        await arena.later(60)
        await arena.services.executions.delete_ended((Rule(keep=0),))

    async def use() -> Any:
        await arena.later(60)
        return await _tried(again(execution))

    answer, _ = await asyncio.gather(use(), collect())

    if isinstance(answer, str):
        assert answer in GONE
        return "gone"
    if fails:
        await arena.services.executions.signal(answer.id, "ask")
    if arena.chance.random() < 0.5:
        await arena.services.executions.delete_ended((Rule(keep=0),))
    ended = await _tried(_collected_or_ended(arena, answer.id))
    assert ended in (("completed", kept), "UNKNOWN_EXECUTION")
    return "kept"


async def _collected_or_ended(arena: Arena, execution: str) -> tuple[str, Any]:
    async with asyncio.timeout(DEADLINE):
        while (found := await arena.look.document(execution))["status"] not in TERMINAL:
            await arena.later(20)
    return found["status"], found["output"]


async def _rerun_against_collect(arena: Arena) -> str:
    return await _again_against_collect(
        arena, lambda each: arena.services.executions.rerun(each, "e"), fails=False
    )


async def _requeue_against_collect(arena: Arena) -> str:
    return await _again_against_collect(arena, arena.services.dead_letters.requeue, fails=True)


async def _two_retries_under_one_key(arena: Arena) -> str:
    execution = await arena.start(document("asks", [ASK, _work("e")], "$ask"))
    await arena.services.executions.cancel(execution)

    async def again() -> str:
        await arena.later(40)
        return (await arena.services.executions.retry(execution, key=f"again:{execution}")).id

    first, second = await asyncio.gather(again(), again())

    assert first == second
    await arena.services.executions.signal(first, "ask", b"1")
    assert (await arena.end(first))["output"] == 1
    return "one"


async def _cancel_against_cancel(arena: Arena) -> str:
    execution = await arena.start(document("asks", [ASK], "$ask"))

    async def stop(reason: str) -> Any:
        await arena.later(60)
        return await _tried(arena.services.executions.cancel(execution, reason))

    answers = await asyncio.gather(stop("one"), stop("two"))

    ended = await arena.end(execution)
    assert set(answers) <= {"cancelled", "ENDED"}
    assert ended["error"]["message"] in ("one", "two")
    return str(ended["error"]["message"])


RACES: dict[str, tuple[Round, int]] = {
    "signal against timeout": (_signal_against_timeout, 2),
    "cancel against completion": (_cancel_against_completion, 2),
    "pause against the last token": (_pause_against_the_last_token, 1),
    "child end against parent cancel": (_child_end_against_parent_cancel, 2),
    "two signals for two waits": (_two_signals_for_two_waits, 2),
    "pause against signal": (_pause_against_signal, 1),
    "rerun against collect": (_rerun_against_collect, 1),
    "requeue against collect": (_requeue_against_collect, 1),
    "two retries under one key": (_two_retries_under_one_key, 1),
    "cancel against cancel": (_cancel_against_cancel, 2),
}


@pytest.mark.parametrize("name", RACES)
def test_a_race_has_one_outcome(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    race, least = RACES[name]

    async def go() -> Counter[str]:
        async with _arena(tmp_path) as arena:
            return Counter([await race(arena) for _ in range(ROUNDS)])

    outcomes = asyncio.run(go())

    assert len(outcomes) >= least, f"always the same one, so it was no race: {outcomes}"
    monkeypatch.setenv("RUNE_HOME", str(tmp_path))
    report = json.loads(command(["audit", "--all", "--json"], capsys).stdout)
    assert report["violations"] == 0, report


def test_a_refusal_says_how_it_ended(tmp_path: pathlib.Path) -> None:
    async def go() -> None:
        async with _arena(tmp_path) as arena:
            execution = await arena.start(document("quick", [_work("a")], 1))
            await arena.end(execution)
            with pytest.raises(ExecutionEndedError) as refused:
                await arena.services.executions.cancel(execution)
            assert refused.value.end.status == "completed"

    asyncio.run(go())
