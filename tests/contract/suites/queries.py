"""Contract of query stores: lists, pages and events that agree with the journal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from rune.adapters import execution_list
from rune.ports.queries import ExecutionCount, ExecutionFilter, Store
from rune.runtime.lifecycle.launcher import StartOptions
from rune.runtime.services.principal import as_principal
from rune.testing.harness import Harness, VirtualClock
from tests.support.async_test import async_test

FAN: dict[str, Any] = {
    "id": "fan",
    "nodes": [
        {"id": "start", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.xs"}},
        {"id": "c", "type": "conditional", "parameters": {"expression": "$item > 1"}},
        {"id": "big", "type": "noop"},
        {"id": "g", "type": "aggregator"},
    ],
    "edges": [
        {"src": "start", "dst": "s"},
        {"src": "s", "dst": "c"},
        {"src": "c", "dst": "big", "label": "true"},
        {"src": "big", "dst": "g"},
    ],
}
FAILING: dict[str, Any] = {
    "id": "failing",
    "nodes": [{"id": "f", "type": "fail", "parameters": {"code": "NO"}}],
}

PARTLY: dict[str, Any] = {
    "id": "partly",
    "nodes": [
        {"id": "start", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.xs"}},
        {"id": "n", "type": "log", "parameters": {"message": "{{ 1 / $item }}"}},
        {"id": "g", "type": "aggregator"},
    ],
    "edges": [{"src": "start", "dst": "s"}, {"src": "s", "dst": "n"}, {"src": "n", "dst": "g"}],
}


class QuerySetup(NamedTuple):
    """An engine to run executions and the store that reads them."""

    harness: Harness
    store: Store


class QueryContract:
    """Subclasses open a setup in a folder."""

    def make_setup(self, folder: Path) -> AbstractAsyncContextManager[QuerySetup]:
        raise NotImplementedError

    @async_test
    async def test_executions_are_paged_newest_first(self, tmp_path: Path) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            ids = [(await harness.run(FAN, {"xs": [n]}))["execution_id"] for n in range(3)]
            first = await store.executions(limit=2)
            rest = await store.executions(limit=2, after=first[-1].id)
            assert [each.id for each in [*first, *rest]] == ids[::-1]

    @async_test
    async def test_executions_filter_by_status_and_workflow(self, tmp_path: Path) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            fan = (await harness.run(FAN, {"xs": []}))["execution_id"]
            failing = (await harness.run(FAILING))["execution_id"]
            halted = ExecutionFilter(statuses=("halted",))
            assert [each.id for each in await store.executions(halted)] == [failing]
            assert [each.id for each in await store.executions(ExecutionFilter(workflow="fan"))] == [fan]
            assert await store.executions(ExecutionFilter(statuses=("halted",), workflow="fan")) == []
            assert await store.executions(ExecutionFilter(workflow="unknown")) == []

    @async_test
    async def test_filtered_executions_are_paged_newest_first(self, tmp_path: Path) -> None:
        mixed = {
            "id": "mixed",
            "nodes": [
                {"id": "ask", "type": "conditional", "parameters": {"expression": "$trigger.stop"}},
                {"id": "stop", "type": "fail"},
            ],
            "edges": [{"src": "ask", "dst": "stop", "label": "true"}],
        }
        async with self.make_setup(tmp_path) as (harness, store):
            await harness.run(FAILING)
            ids = [(await harness.run(mixed, {"stop": n % 2 == 1}))["execution_id"] for n in range(6)]
            await harness.run(FAILING)
            cases: list[tuple[tuple[str, ...], list[str]]] = [
                ((), ids),
                (("completed",), ids[::2]),
                (("halted",), ids[1::2]),
                (("failed",), ids[1::2]),
                (("running", "failed"), ids[1::2]),
                (("completed", "halted"), ids),
                (("running", "halted"), ids[1::2]),
            ]
            for statuses, expected in cases:
                wanted = ExecutionFilter(workflow="mixed", statuses=statuses)
                first = await store.executions(wanted, limit=2)
                rest = await store.executions(wanted, limit=9, after=first[-1].id)
                assert [each.id for each in [*first, *rest]] == expected[::-1]

    @async_test
    async def test_executions_of_several_statuses_of_all_workflows_are_newest_first(
        self, tmp_path: Path
    ) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            ids = [(await harness.run(each, {"xs": []}))["execution_id"] for each in (FAN, FAILING, FAN)]
            found = await store.executions(ExecutionFilter(statuses=("halted", "completed")))
            assert [each.id for each in found] == ids[::-1]
            found = await store.executions(ExecutionFilter(statuses=("failed", "halted")), limit=1)
            assert [each.id for each in found] == [ids[1]]

    @async_test
    async def test_executions_filter_by_failed_items_and_definition(self, tmp_path: Path) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            runs = [await harness.run(PARTLY, {"xs": xs}) for xs in ([1, 1], [1, 0, 0], [0])]
            misleading = {
                **FAILING,
                "nodes": [{**FAILING["nodes"][0], "parameters": {"message": "failed_items"}}],
            }
            await harness.run(misleading)
            found = await store.executions(ExecutionFilter(failed_items=True), limit=10)
            assert [(each.id, each.failed_items) for each in found] == [
                (runs[2]["execution_id"], 1),
                (runs[1]["execution_id"], 2),
            ]
            found = await store.executions(ExecutionFilter(failed_items=True), limit=1)
            assert [each.id for each in found] == [runs[2]["execution_id"]]
            other = await store.execution(runs[0]["execution_id"])
            assert other is not None
            assert other.failed_items == 0
            found = await store.executions(ExecutionFilter(hash=other.hash, workflow="partly"))
            assert [each.id for each in found] == [each["execution_id"] for each in runs[::-1]]

    @async_test
    async def test_search_matches_every_filter(self, tmp_path: Path) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            first = await _ended(harness, FAN, labels={"customer": "7", "tier": "gold"})
            halted = await _ended(harness, FAILING, labels={"customer": "7"})
            again = (await harness.engine.services.executions.retry(halted, key="again")).id
            await harness.settle()
            labels = {"customer": "8", "note": "x" * 900 + "é\n"}
            with as_principal("key:k1"):
                services = harness.engine.services.executions
                record = await services.start_definition(
                    msgspec.json.encode(FAN), b'{"xs": []}', StartOptions(labels=labels)
                )
            await harness.settle()
            other = record.id
            partly = await _ended(harness, PARTLY, {"xs": [0, 1]})
            cases: list[tuple[ExecutionFilter, list[str]]] = [
                (ExecutionFilter(), [partly, other, again, halted, first]),
                (ExecutionFilter(labels={"customer": "7"}), [again, halted, first]),
                (ExecutionFilter(labels={"customer": "7", "tier": "gold"}), [first]),
                (ExecutionFilter(labels={"note": "x" * 900 + "é\n"}), [other]),
                (ExecutionFilter(labels={"customer": "9"}), []),
                (ExecutionFilter(labels={"customer": "7"}, statuses=("halted",)), [again, halted]),
                (ExecutionFilter(code="NO"), [again, halted]),
                (ExecutionFilter(code="NO", workflow="fan"), []),
                (ExecutionFilter(code="N"), []),
                (ExecutionFilter(retry_of=halted), [again]),
                (ExecutionFilter(principal="key:k1"), [other]),
                (ExecutionFilter(principal="local"), [partly, again, halted, first]),
                (ExecutionFilter(failed_items=True), [partly]),
                (ExecutionFilter(scopes=("fa*",)), [other, again, halted, first]),
                (ExecutionFilter(scopes=("f_n", "part*")), [partly]),
                (ExecutionFilter(workflow="fan", scopes=("fan",)), [other, first]),
                (ExecutionFilter(parent="nothing"), []),
            ]
            for wanted, expected in cases:
                found = await store.search(wanted)
                assert [each.id for each in found.executions] == expected, wanted
                assert found.next is None
                assert await store.count(wanted) == ExecutionCount(len(expected), True), wanted
                assert [each.id for each in await store.executions(wanted, limit=2)] == expected[:2], wanted

    @async_test
    async def test_search_finds_children_of_execution(self, tmp_path: Path) -> None:
        waiting = {"id": "nap", "nodes": [{"id": "n", "type": "wait", "parameters": {"amount": 9}}]}
        parent = {
            "id": "outer",
            "nodes": [{"id": "c", "type": "workflow", "parameters": {"workflow": "nap"}}],
        }
        async with self.make_setup(tmp_path) as (harness, store):
            await harness.engine.services.workflows.deploy(msgspec.json.encode(waiting))
            outer = await harness.start(parent)
            await harness.settle()
            (child,) = (await store.search(ExecutionFilter(parent=outer.accepted.id))).executions
            assert child.workflow == "nap"
            assert child.id != outer.accepted.id
            await outer.end()

    @async_test
    async def test_search_by_time_selects_period(self, tmp_path: Path) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            clock = harness.clock
            assert isinstance(clock, VirtualClock)
            ids, times = [], []
            for _ in range(5):
                times.append(clock.now())
                ids.append(await _ended(harness, FAILING))
                clock.advance(3_600_000)
            for low in range(5):
                for high in range(low, 5):
                    wanted = ExecutionFilter(since=times[low], until=times[high])
                    found = await store.search(wanted)
                    assert [each.id for each in found.executions] == ids[low:high][::-1]
            late = await store.search(ExecutionFilter(since=clock.now()))
            assert late.executions == []

    @async_test
    async def test_search_pages_are_limited_in_work_and_complete(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(execution_list, "MAX_SCANNED", 4)
        async with self.make_setup(tmp_path) as (harness, store):
            ids = []
            for number in range(20):
                id = await _ended(harness, FAN if number % 7 else FAILING, labels={"all": "1"})
                ids += [] if number % 7 else [id]
            wanted = ExecutionFilter(labels={"all": "1"}, scopes=("failing",))
            found: list[str] = []
            after, pages = None, 0
            while True:
                page = await store.search(wanted, after=after, limit=2)
                found += [each.id for each in page.executions]
                after, pages = page.next, pages + 1
                if after is None:
                    break
            assert found == ids[::-1]
            assert pages > 3
            assert [each.id for each in await store.executions(wanted)] == ids[::-1]

    @async_test
    async def test_count_of_many_executions_is_estimated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(execution_list, "MAX_COUNTED", 5)
        async with self.make_setup(tmp_path) as (harness, store):
            for _ in range(20):
                await _ended(harness, FAILING)
            found = await store.count(ExecutionFilter())
            assert not found.exact
            assert 15 <= found.count <= 25

    @async_test
    async def test_execution_summary_contains_end_and_error(self, tmp_path: Path) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            summary = await store.execution((await harness.run(FAILING))["execution_id"])
            assert summary is not None
            assert (summary.status, summary.workflow) == ("halted", "failing")
            assert summary.error is not None
            assert summary.error.code == "NO"
            assert summary.ended_at is not None
            assert await store.execution("unknown") is None

    @async_test
    async def test_node_runs_are_paged_including_skipped(self, tmp_path: Path) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            execution = (await harness.run(FAN, {"xs": [1, 2, 3]}))["execution_id"]
            whole = await store.node_runs(execution)
            pages = [
                each for at in range(0, 20, 3) for each in await store.node_runs(execution, after=at, limit=3)
            ]
            assert pages == whole
            seen = [(each.node_id, tuple(frame.item_index for frame in each.lineage)) for each in whole]
            assert len(seen) == len(set(seen))
            skipped = [each for each in whole if each.status == "skipped"]
            assert [(each.node_id, each.lineage[0].item_index) for each in skipped] == [("big", 0)]
            assert {each.lineage[0].total_items for each in whole if each.lineage} == {3}

    @async_test
    async def test_events_are_numbered_without_gaps(self, tmp_path: Path) -> None:
        async with self.make_setup(tmp_path) as (harness, store):
            execution = (await harness.run(FAN, {"xs": [1, 2, 3]}))["execution_id"]
            whole = await store.events(execution)
            assert [each.number for each in whole] == list(range(1, len(whole) + 1))
            assert whole[0].kind == "execution.accepted"
            assert whole[-1].kind == "execution.completed"
            for after in (0, 1, len(whole) - 1, len(whole)):
                assert await store.events(execution, after=after) == whole[after:]
            assert await store.events(execution, after=2, limit=2) == whole[2:4]

    @async_test
    async def test_running_execution_shows_events_so_far(self, tmp_path: Path) -> None:
        waiting = {
            "id": "waiting",
            "nodes": [
                {"id": "a", "type": "noop"},
                {"id": "nap", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}},
            ],
            "edges": [{"src": "a", "dst": "nap"}],
        }
        async with self.make_setup(tmp_path) as (harness, store):
            run = await harness.start(waiting)
            await harness.settle()
            summary = await store.execution(run.accepted.id)
            assert summary is not None
            assert summary.status == "running"
            assert _kinds(await store.events(run.accepted.id))[-1] == "node.waiting"
            await run.end()
            assert _kinds(await store.events(run.accepted.id))[-1] == "execution.completed"


async def _ended(harness: Harness, document: dict[str, Any], input: Any = None, **options: Any) -> str:
    """Run a definition to its end and return the id of the execution."""
    run = await harness.start(document, {"xs": []} if input is None else input, **options)
    await run.end()
    return run.accepted.id


def _kinds(events: Sequence[Any]) -> list[str]:
    return [each.kind for each in events]
