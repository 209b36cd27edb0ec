"""Two concurrent operations, repeated with random delays, have one consistent outcome."""

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
from tests.acceptance.conformance.actor import ExecutionView
from tests.acceptance.conformance.command import command
from tests.integration.embedded.operation_scenarios import CALL, WAIT, document

pytestmark = pytest.mark.long

ROUNDS = int(os.environ.get("RUNE_ROUNDS", "60"))
DEADLINE = 120.0
SEED = int(os.environ.get("RUNE_SEED", "11"))
TERMINAL = ("completed", "failed", "halted", "cancelled")


def _work(name: str) -> dict[str, Any]:
    return {"id": name, "type": "noop", "parameters": {"effectful": True}}


def _set(name: str, value: str) -> dict[str, Any]:
    assignments = [{"name": "v", "value": value}]
    return {"id": name, "type": "edit", "parameters": {"mode": "keep_only", "assignments": assignments}}


class RaceEngine:
    """An engine with random delays."""

    def __init__(self, engine: Engine, view: ExecutionView) -> None:
        self.engine = engine
        self.services: Services = engine.services
        self.view = view
        self.random = random.Random(SEED)

    async def start(self, source: dict[str, Any], payload: Any = None) -> str:
        definition = canonical(compiled(source).definition)
        return (
            await self.services.executions.start_definition(definition, json.dumps(payload or {}).encode())
        ).id

    async def end(self, execution: str) -> dict[str, Any]:
        """Wait for the end of an execution, assert that there is one, and return the document."""
        await asyncio.wait_for(await self.engine.wait_for(execution), DEADLINE)
        events = Counter(await self.view.events(execution))
        assert sum(events[f"execution.{each}"] for each in TERMINAL) == 1, events
        return await self.view.document(execution)

    async def yield_randomly(self, most: int) -> None:
        """Yield to the event loop a random number of times."""
        loop = asyncio.get_running_loop()
        for _ in range(self.random.randrange(most)):
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn

    async def sleep_about(self, seconds: float) -> None:
        never = asyncio.get_running_loop().create_future()
        await asyncio.wait([never], timeout=seconds * self.random.uniform(0.5, 1.2))
        await self.yield_randomly(50)

    async def wait_until_waiting(self, execution: str, node: str) -> None:
        while not any(each["node"] == node for each in await self.view.waiting(execution)):
            await self.yield_randomly(20)


@asynccontextmanager
async def _race_engine(home: pathlib.Path) -> AsyncIterator[RaceEngine]:
    settings = Settings(home=str(home), durability="relaxed", grace=1)
    async with running_engine(settings) as engine, open_reader(settings) as opened:
        yield RaceEngine(engine, ExecutionView(opened))


async def _result_or_code(call: Awaitable[Any]) -> Any:
    """The result of a call, or the code of its error."""
    try:
        return await call
    except RuneError as error:
        return error.code


Round = Callable[[RaceEngine], Awaitable[object]]


async def _signal_against_timeout(race: RaceEngine) -> str:
    limited = {**WAIT, "timeout": 0.03, "error": "ignore"}
    execution = await race.start(
        document("limited", [limited, _work("e")], "{{ get($ask, 'error.code', $ask) }}")
    )
    await race.wait_until_waiting(execution, "ask")
    await race.sleep_about(0.03)

    sent = await _result_or_code(race.services.executions.signal(execution, "ask", b'{"said": 1}'))

    ended = await race.end(execution)
    resumed = sent not in ("ENDED", "UNKNOWN_SIGNAL") and sent.resumed
    assert ended["status"] == "completed"
    assert ended["output"] == ({"said": 1} if resumed else "TIMEOUT"), sent
    return "resumed" if resumed else "late"


async def _cancel_against_completion(race: RaceEngine) -> str:
    execution = await race.start(document("quick", [_work("a"), _work("b")], 1))
    await race.yield_randomly(150)

    answer = await _result_or_code(race.services.executions.cancel(execution))

    ended = await race.end(execution)
    assert ended["status"] == ("completed" if answer == "ENDED" else answer)
    assert (ended["output"] == 1) is (ended["status"] == "completed")
    return str(ended["status"])


async def _pause_against_the_last_token(race: RaceEngine) -> str:
    execution = await race.start(document("quick", [_work("a"), _work("b")], 1))
    await race.yield_randomly(150)

    paused = await _result_or_code(race.services.executions.pause(execution))
    await race.yield_randomly(30)
    resumed = await _result_or_code(race.services.executions.resume(execution))

    ended = await race.end(execution)
    assert (ended["status"], ended["output"]) == ("completed", 1)
    assert paused in (True, "ENDED")
    assert resumed is True or resumed == "ENDED"
    return str(paused)


async def _child_end_against_parent_cancel(race: RaceEngine) -> str:
    await race.services.workflows.deploy(canonical(compiled(document("kid", [_work("k")], 1)).definition))
    execution = await race.start(document("parent", [CALL, _work("e")], "$call"))
    await race.yield_randomly(300)

    answer = await _result_or_code(race.services.executions.cancel(execution))

    ended = await race.end(execution)
    assert ended["status"] == ("completed" if answer == "ENDED" else answer)
    kids = [each for each in await race.view.executions("kid") if await _is_child_of(race, each, execution)]
    assert len(kids) <= 1
    for kid in kids:
        how = (await race.end(kid))["status"]
        assert how == "completed" or ended["status"] == "cancelled"
        return f"{ended['status']}, child {how}"
    assert ended["status"] == "cancelled"
    return "cancelled, no child"


async def _is_child_of(race: RaceEngine, child: str, parent: str) -> bool:
    return (await race.view.document(child)).get("parent_id") == parent


async def _two_signals_for_two_waits(race: RaceEngine) -> str:
    first = {**WAIT, "id": "a", "parameters": {"resume": "signal", "name": "go"}}
    execution = await race.start(document("both", [first, {**first, "id": "b"}], "{{ [$a, $b] }}"))

    async def send(value: int) -> Any:
        await race.yield_randomly(200)
        return await _result_or_code(
            race.services.executions.signal(execution, "go", str(value).encode(), key=f"k{value}")
        )

    await asyncio.gather(send(1), send(2), send(1))

    ended = await race.end(execution)
    assert sorted(ended["output"]) == [1, 2]
    return str(ended["output"])


async def _pause_against_signal(race: RaceEngine) -> str:
    execution = await race.start(document("waits", [WAIT, _work("e")], "$ask"))

    async def hold() -> str:
        await race.yield_randomly(100)
        paused = await race.services.executions.pause(execution)
        await race.yield_randomly(100)
        return f"{paused} {await race.services.executions.resume(execution)}"

    async def send() -> None:
        await race.yield_randomly(200)
        await race.services.executions.signal(execution, "ask", b"5", key="k")

    held, _ = await asyncio.gather(_result_or_code(hold()), send())

    ended = await race.end(execution)
    assert (ended["status"], ended["output"]) == ("completed", 5)
    assert held in ("True True", "ENDED")
    return str(held)


GONE_CODES = {"GONE", "UNKNOWN_EXECUTION"}
LARGE = document("large", [_set("big", "{{ range(9000) }}"), _work("e")], "{{ len($big.v) }}")
DEAD_LETTER = document("dead-letter", [_set("once", "{{ uuid() }}"), WAIT], "$once.v")


async def _reuse_against_collect(
    race: RaceEngine, reuse: Callable[[str], Awaitable[Any]], fails: bool
) -> str:
    """Either the execution is collected before it is reused, or the values that the new one needs are kept."""
    execution = await race.start(DEAD_LETTER if fails else LARGE)
    value: Any = 9000
    if fails:
        await race.wait_until_waiting(execution, "ask")
        value = (await race.view.document(execution))["context"]["$once"]["v"]
        dead = FinishExecution("failed", Error("WORKER_CRASH", "died", {"node": "ask@/"}, True))
        await race.engine.finisher.finish(execution, dead, race.engine.backend.clock.now())
    await race.end(execution)

    async def collect() -> None:
        await race.yield_randomly(60)
        await race.services.executions.delete_ended((Rule(keep=0),))

    async def use() -> Any:
        await race.yield_randomly(60)
        return await _result_or_code(reuse(execution))

    answer, _ = await asyncio.gather(use(), collect())

    if isinstance(answer, str):
        assert answer in GONE_CODES
        return "gone"
    if fails:
        await race.services.executions.signal(answer.id, "ask")
    if race.random.random() < 0.5:
        await race.services.executions.delete_ended((Rule(keep=0),))
    ended = await _result_or_code(_end_or_collected(race, answer.id))
    assert ended in (("completed", value), "UNKNOWN_EXECUTION")
    return "kept"


async def _end_or_collected(race: RaceEngine, execution: str) -> tuple[str, Any]:
    async with asyncio.timeout(DEADLINE):
        while (found := await race.view.document(execution))["status"] not in TERMINAL:
            await race.yield_randomly(20)
    return found["status"], found["output"]


async def _rerun_against_collect(race: RaceEngine) -> str:
    return await _reuse_against_collect(
        race, lambda each: race.services.executions.rerun(each, "e"), fails=False
    )


async def _requeue_against_collect(race: RaceEngine) -> str:
    return await _reuse_against_collect(race, race.services.dead_letters.requeue, fails=True)


async def _two_retries_under_one_key(race: RaceEngine) -> str:
    execution = await race.start(document("waits", [WAIT, _work("e")], "$ask"))
    await race.services.executions.cancel(execution)

    async def again() -> str:
        await race.yield_randomly(40)
        return (await race.services.executions.retry(execution, key=f"again:{execution}")).id

    first, second = await asyncio.gather(again(), again())

    assert first == second
    await race.services.executions.signal(first, "ask", b"1")
    assert (await race.end(first))["output"] == 1
    return "one"


async def _cancel_against_cancel(race: RaceEngine) -> str:
    execution = await race.start(document("waits", [WAIT], "$ask"))

    async def stop(reason: str) -> Any:
        await race.yield_randomly(60)
        return await _result_or_code(race.services.executions.cancel(execution, reason))

    answers = await asyncio.gather(stop("one"), stop("two"))

    ended = await race.end(execution)
    assert set(answers) <= {"cancelled", "ENDED"}
    assert ended["error"]["message"] in ("one", "two")
    return str(ended["error"]["message"])


RACES: dict[str, Round] = {
    "signal against timeout": _signal_against_timeout,
    "cancel against completion": _cancel_against_completion,
    "pause against the last token": _pause_against_the_last_token,
    "child end against parent cancel": _child_end_against_parent_cancel,
    "two signals for two waits": _two_signals_for_two_waits,
    "pause against signal": _pause_against_signal,
    "rerun against collect": _rerun_against_collect,
    "requeue against collect": _requeue_against_collect,
    "two retries under one key": _two_retries_under_one_key,
    "cancel against cancel": _cancel_against_cancel,
}


@pytest.mark.parametrize("name", RACES)
def test_race_has_one_consistent_outcome(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def go() -> None:
        async with _race_engine(tmp_path) as race:
            for _ in range(ROUNDS):
                await RACES[name](race)

    # Each round asserts its own outcome. Which of the valid ones occur depends on the speed of the machine.
    asyncio.run(go())

    monkeypatch.setenv("RUNE_HOME", str(tmp_path))
    report = json.loads(command(["verify", "--all", "--json"], capsys).stdout)
    assert report["violations"] == 0, report


def test_cancel_of_ended_execution_raises_with_its_end(tmp_path: pathlib.Path) -> None:
    async def go() -> None:
        async with _race_engine(tmp_path) as race:
            execution = await race.start(document("quick", [_work("a")], 1))
            await race.end(execution)
            with pytest.raises(ExecutionEndedError) as error:
                await race.services.executions.cancel(execution)
            assert error.value.end.status == "completed"

    asyncio.run(go())
