"""Pure items of a fan-out run in chunks: many items per delivery and per commit, each with its own facts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from rune.core.execution.fact import Fact, NodeResult
from rune.core.execution.stored_value import Inline
from rune.core.limits import LIMITS
from rune.ports.journal import StoreUnavailableError
from rune.runtime.worker import item_chunks
from rune.testing.harness import Harness, Run
from tests.support.backends import Backend, backends
from tests.support.waiting import until
from tests.support.workflows import Fields, edit, fail, of_type, split, workflow

ITEMS = 300
AGGREGATOR = of_type("aggregator")
everywhere = backends("embedded", "redis")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the chunks of a slow machine be as large as those of a fast one."""
    monkeypatch.setattr(item_chunks, "MAX_COMMIT_S", 60.0)


def _document(**more: Any) -> Fields:
    return workflow(
        "start>s s>a a>b b>g g>out",
        more.pop("settings", None),
        s=split(),
        a=edit(v="{{ $item * 2 }}"),
        b=edit(v="{{ $a.v + 1 }}"),
        g=AGGREGATOR,
        out=of_type("output", value="{{ [x.v for x in $g] }}"),
    )


def _expected(count: int = ITEMS) -> list[int]:
    return [item * 2 + 1 for item in range(count)]


def _payload(count: int = ITEMS) -> Fields:
    return {"items": list(range(count))}


class Writes:
    """Counts the commits of chunks, and the runs in each."""

    def __init__(self, engine: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        journal = engine.engine.backend.journal
        original = journal.record_all

        async def record_all(execution: str, runs: Sequence[Sequence[Fact]]) -> Any:
            self.sizes.append(len(runs))
            return await original(execution, runs)

        monkeypatch.setattr(engine.engine._worker._executor.chunks._journal, "record_all", record_all)


async def _facts_by_node(run: Run) -> Counter[str]:
    facts = [row.fact for row in await run.facts()]
    return Counter(run.plan.ids[each.node] for each in facts if isinstance(each, NodeResult))


@everywhere
def test_items_are_committed_together_with_a_fact_each(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> tuple[Any, Counter[str], list[int], Counter[str]]:
        async with backend.open() as engine:
            writes = Writes(engine, monkeypatch)
            run = await engine.start(_document(), _payload())
            await run.end()
            counted = engine.engine.instrumentation.counters.deliveries
            return (await run.document())["output"], await _facts_by_node(run), writes.sizes, Counter(counted)

    output, facts, sizes, deliveries = asyncio.run(go())
    assert output == _expected()
    assert (facts["a"], facts["b"], facts["g"]) == (ITEMS, ITEMS, 1)
    assert sum(sizes) > ITEMS // 2
    assert len(sizes) < sum(sizes) // 4
    # Metrics count deliveries, not chunks.
    assert deliveries["run"] >= ITEMS


@everywhere
def test_items_are_committed_alone_if_chunk_is_one(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> tuple[Any, list[int]]:
        async with backend.open(chunk=1) as engine:
            writes = Writes(engine, monkeypatch)
            run = await engine.start(_document(), _payload(50))
            await run.end()
            return (await run.document())["output"], writes.sizes

    assert asyncio.run(go()) == (_expected(50), [])


@everywhere
def test_failing_items_of_a_chunk_are_listed_as_errors(backend: Backend) -> None:
    document = workflow(
        "start>s s>c c>a:true c>f:false a>g f>g",
        s=split(),
        c=of_type("conditional", expression="$item % 10 > 0"),
        a=edit(v="{{ $item }}"),
        f={**fail("ODD"), "retry": {"max_attempts": 2, "initial_delay": 0, "on": ["ODD"]}},
        g=AGGREGATOR,
    )
    result = backend.run(document, _payload(100))
    found = next(each for each in result["nodes"] if each["node_id"] == "g")["output"]
    failed = [number for number, each in enumerate(found) if "error" in each]
    assert failed == list(range(0, 100, 10))
    assert [each["v"] for each in found if "v" in each] == [each for each in range(100) if each % 10]
    attempts = [each["attempts"] for each in result["nodes"] if each["node_id"] == "f" and each["attempts"]]
    assert attempts == [2] * 10
    assert result["failed_items"] == 10


@everywhere
def test_halting_item_of_a_chunk_halts_the_execution(backend: Backend) -> None:
    document = workflow(
        "start>s s>a a>g",
        s=split(),
        a={**edit(v="{{ 1 / ($item - 7) }}"), "error": {"type": "halt"}},
        g=AGGREGATOR,
    )
    assert backend.run(document, _payload(20))["status"] == "halted"


@everywhere
def test_result_that_another_worker_recorded_is_kept(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two workers that run an item the first one counts, also if the other one runs it in a chunk."""

    async def go() -> tuple[Any, Counter[str], int]:
        async with backend.open() as engine:
            journal = engine.engine.backend.journal
            original = journal.record_all
            taken: list[int] = []

            async def record_all(execution: str, runs: Sequence[Sequence[Fact]]) -> Any:
                if len(runs) > 2 and not taken:
                    own = runs[1][0]
                    assert isinstance(own, NodeResult)
                    taken.append(own.path[-1])
                    other = NodeResult(own.node, own.path, own.at, "ok", value=Inline(b'{"v": -100}'))
                    await journal.record(execution, [other])
                return await original(execution, runs)

            monkeypatch.setattr(journal, "record_all", record_all)
            run = await engine.start(_document(), _payload(100))
            await run.end()
            output = (await run.document())["output"]
            return output, await _facts_by_node(run), taken[0]

    output, facts, item = asyncio.run(go())
    expected = _expected(100)
    expected[item] = -99
    assert output == expected
    assert (facts["a"], facts["b"], facts["g"]) == (100, 100, 1)


@everywhere
def test_items_are_acknowledged_after_they_are_recorded_and_applied(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []
        async with backend.open() as engine:
            stores = engine.engine.backend
            chunks = engine.engine._worker._executor.chunks
            record, apply, ack = stores.journal.record_all, stores.state.apply_all, stores.queue.ack

            async def record_all(execution: str, runs: Sequence[Sequence[NodeResult]]) -> Any:
                answers = await record(execution, runs)
                seen.extend(("recorded", run[0].path[-1]) for run in runs)
                return answers

            async def apply_all(execution: str, runs: Any) -> Any:
                applied = await apply(execution, runs)
                seen.extend(("applied", run[0].path[-1]) for run in runs)
                return applied

            async def acknowledge(delivery: Any) -> None:
                if delivery.token.path:
                    seen.append(("acknowledged", delivery.token.path[-1]))
                await ack(delivery)

            monkeypatch.setattr(chunks._journal, "record_all", record_all)
            monkeypatch.setattr(chunks._state, "apply_all", apply_all)
            monkeypatch.setattr(stores.queue, "ack", acknowledge)
            await (await engine.start(_document(), _payload(100))).end()
        return seen

    seen = asyncio.run(go())
    chunked = {item for what, item in seen if what == "recorded"}
    assert len(chunked) > 20
    for item in chunked:
        assert [what for what, each in seen if each == item] == ["recorded", "applied", "acknowledged"]


@everywhere
def test_items_of_a_chunk_that_cannot_be_recorded_are_run_again(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> tuple[Any, Counter[str], int]:
        async with backend.open() as engine:
            journal = engine.engine.backend.journal
            original = journal.record_all
            failures: list[int] = []

            async def record_all(execution: str, runs: Sequence[Sequence[Fact]]) -> Any:
                if len(failures) < 2:
                    failures.append(len(runs))
                    raise StoreUnavailableError("the disk is full")
                return await original(execution, runs)

            monkeypatch.setattr(journal, "record_all", record_all)
            run = await engine.start(_document(), _payload(150))
            await run.end()
            return (await run.document())["output"], await _facts_by_node(run), len(failures)

    output, facts, failures = asyncio.run(go())
    assert (output, failures) == (_expected(150), 2)
    assert (facts["a"], facts["b"], facts["g"]) == (150, 150, 1)


@everywhere
def test_limit_of_parallel_nodes_is_kept(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> tuple[Any, list[int]]:
        async with backend.open() as engine:
            writes = Writes(engine, monkeypatch)
            run = await engine.start(_document(settings={"max_parallel": 3}), _payload(30))
            await run.end()
            return (await run.document())["output"], writes.sizes

    assert asyncio.run(go()) == (_expected(30), [])


@backends("embedded")
def test_commit_ends_after_its_time(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow items do not keep the event loop: each of them is a commit of its own."""
    monkeypatch.setattr(item_chunks, "MAX_COMMIT_S", 0.0)

    async def go() -> list[int]:
        async with backend.open() as engine:
            writes = Writes(engine, monkeypatch)
            await (await engine.start(_document(), _payload(50))).end()
            return writes.sizes

    sizes = asyncio.run(go())
    assert set(sizes) == {1}
    assert len(sizes) > 20


@backends("embedded")
def test_chunks_are_small_while_other_executions_are_active(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> list[int]:
        async with backend.open() as engine:
            writes = Writes(engine, monkeypatch)
            engine.engine._worker._share._others_until = float("inf")
            await (await engine.start(_document(), _payload(200))).end()
            return writes.sizes

    assert max(asyncio.run(go())) == item_chunks.MAX_SHARED


@backends("embedded")
def test_items_are_not_run_after_the_execution_was_cancelled(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> tuple[str, int]:
        async with backend.open() as engine:
            writes = Writes(engine, monkeypatch)
            journal, original = engine.engine.backend.journal, engine.engine.backend.journal.record_all

            async def cancel_first(execution: str, runs: Any) -> Any:
                if len(writes.sizes) == 1:
                    await engine.engine.services.executions.cancel(execution)
                return await original(execution, runs)

            monkeypatch.setattr(journal, "record_all", cancel_first)
            run = await engine.start(_document(), _payload(5_000))
            end = await run.end()
            await until(lambda: engine.engine.busy == 0, "the worker is idle")
            return end.status, (await _facts_by_node(run))["a"]

    status, ran = asyncio.run(go())
    assert status == "cancelled"
    assert ran <= LIMITS.window
