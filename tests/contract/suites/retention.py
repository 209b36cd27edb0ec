"""What every retention promises: it removes what the rules select, nothing that is needed, and the space with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from rune.codec.facts import Inline, Large
from rune.core.execution.fact import ExecutionEnded, NodeResult, PauseChanged
from rune.core.execution.outcome import Error
from rune.ports.blobs import BlobStore
from rune.ports.journal import (
    ExecutionRecord,
    ExecutionRemovedError,
    IdempotencyConflictError,
    IdempotencyKeyExpiredError,
    Journal,
    Parent,
)
from rune.ports.retention import KEY_LIFE_MS, InvalidRuleError, Retention, RetentionResult, Rule
from tests.contract.suites.scenario import scenario

NOW = 1_700_000_000_000
HOUR = 3_600_000
ALL = Rule(keep=0)

Status = Literal["completed", "failed", "halted", "cancelled"]


class Kept(NamedTuple):
    """What a collection works on."""

    journal: Journal
    blob: BlobStore
    retention: Retention

    async def begin(self, execution: str, workflow: str = "w", **given: Any) -> None:
        """An execution that runs."""
        fields = {"hash": f"hash of {workflow}", "at": NOW - 1000 * HOUR, "input": b"{}", **given}
        await self.journal.accept(ExecutionRecord(id=execution, workflow=workflow, **fields))

    async def end(self, execution: str, hours: float = 1, status: Status = "completed") -> None:
        """It did something and ended, so many hours ago."""
        at = NOW - int(hours * HOUR)
        error = Error("DEAD_LETTERED", "given up") if status == "failed" else None
        await self.journal.record(execution, [_result(1, at)])
        await self.journal.record(execution, [ExecutionEnded(at, status, error)])

    async def run(
        self,
        execution: str,
        workflow: str = "w",
        hours: float = 1,
        status: Status = "completed",
        **given: Any,
    ) -> None:
        """An execution from its start to its end."""
        await self.begin(execution, workflow, **given)
        await self.end(execution, hours, status)

    async def collect(self, *rules: Rule, now: int = NOW) -> RetentionResult:
        """Remove what the rules select."""
        return await self.retention.collect(rules, now)

    async def left(self, names: str) -> str:
        """Which of these are still there."""
        found = [each for each in names.split() if await self.journal.accepted(each) is not None]
        return " ".join(found)


def _result(node: int, at: int = NOW, value: Any = None) -> NodeResult:
    return NodeResult(node, (), at, "ok", value=value or Inline(b"1"))


class RetentionContract:
    """Subclass it and open journal, blobs and retention in a folder; opened again there, they hold what they held.
    `many`: of how many executions a collection is cancelled; fewer where each question goes over a wire."""

    many = 600

    def make_stores(self, folder: Path) -> AbstractAsyncContextManager[Kept]:
        raise NotImplementedError

    def crashed(self, folder: Path) -> Path:
        """A folder with what a crash at this instant would leave on disk; the stores stay open."""
        raise NotImplementedError

    @scenario
    async def test_what_ended_long_enough_ago_goes(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            for name, hours in (("a", 10), ("b", 5), ("c", 1)):
                await kept.run(name, hours=hours)
            done = await kept.collect(Rule(older_than=5 * HOUR))
            assert done.executions == 2
            assert await kept.left("a b c") == "c"

    @scenario
    async def test_the_newest_are_spared_by_when_they_ended_workflow_by_workflow(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            for name, workflow, hours in (
                ("a", "w", 1),
                ("b", "w", 3),
                ("c", "w", 2),
                ("d", "v", 9),
                ("e", "v", 8),
                ("f", "u", 7),
            ):
                await kept.run(name, workflow, hours)
            await kept.collect(Rule(keep=2))
            assert await kept.left("a b c d e f") == "a c d e f"
            await kept.collect(Rule(keep=1))
            assert await kept.left("a b c d e f") == "a e f"

    @scenario
    async def test_age_and_number_must_both_hold(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            for name, hours in (("a", 9), ("b", 8), ("c", 7), ("d", 1)):
                await kept.run(name, hours=hours)
            await kept.collect(Rule(older_than=5 * HOUR, keep=3))
            assert await kept.left("a b c d") == "b c d"
            await kept.collect(Rule(older_than=5 * HOUR, keep=0))
            assert await kept.left("a b c d") == "d"

    @scenario
    async def test_a_rule_counts_and_removes_only_its_statuses(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            ends: Sequence[Status] = ("completed", "failed", "halted", "failed", "cancelled", "failed")
            for name, hours, status in zip("abcdef", range(6, 0, -1), ends, strict=True):
                await kept.run(name, hours=hours, status=status)
            await kept.collect(Rule(status=("failed",), keep=1))
            assert await kept.left("a b c d e f") == "a c e f"
            await kept.collect(Rule(status=("halted", "cancelled"), keep=0))
            assert await kept.left("a b c d e f") == "a f"

    @scenario
    async def test_one_rule_is_enough_and_a_workflow_s_own_beat_the_general_ones(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            for name, workflow, hours in (("a", "w", 9), ("b", "w", 1), ("c", "v", 9), ("d", "v", 1)):
                await kept.run(name, workflow, hours)
            await kept.run("e", "v", 1, "failed")
            rules = (
                Rule(older_than=5 * HOUR),
                Rule(workflow="v", older_than=50 * HOUR),
                Rule(workflow="v", status=("failed",), keep=0),
            )
            await kept.collect(*rules)
            assert await kept.left("a b c d e") == "b c d"

    @scenario
    async def test_no_rules_remove_nothing(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a")
            assert (await kept.collect()).executions == 0
            assert (await kept.collect(Rule(workflow="other", keep=0))).executions == 0
            assert await kept.left("a") == "a"

    def test_a_rule_that_cannot_be_meant_is_refused(self) -> None:
        for given in ({}, {"keep": -1}, {"older_than": -1}, {"keep": 1, "status": ("running",)}):
            with pytest.raises(InvalidRuleError):
                Rule(**given)

    @scenario
    async def test_what_has_not_ended_stays(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.begin("running")
            await kept.begin("paused")
            await kept.journal.record("paused", [PauseChanged(NOW, 1, True)])
            assert (await kept.collect(ALL)).executions == 0
            assert await kept.left("running paused") == "running paused"

    @scenario
    async def test_nothing_of_it_is_left(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a", status="failed")
            await kept.run("b", hours=2)
            for name in "ab":
                await kept.blob.put(f"{name}/x@/", b"data")
            assert [each.execution for each in await kept.journal.dead_letters(10)] == ["a"]
            done = await kept.collect(Rule(status=("failed",), keep=0))
            assert (done.executions, done.facts, done.blobs) == (1, 2, 1)
            assert await kept.left("a b") == "b"
            assert await kept.journal.end("a") is None
            assert await kept.journal.dead_letters(10) == []
            assert await kept.blob.get("a/x@/") is None
            assert await kept.blob.get("b/x@/") == b"data"
            assert len(await kept.journal.facts("b")) == 2

    @scenario
    async def test_a_second_time_there_is_nothing_to_do(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            for name in "abc":
                await kept.run(name)
            assert (await kept.collect(ALL)).executions == 3
            again = await kept.collect(ALL, now=NOW + HOUR)
            assert (again.executions, again.facts, again.blobs) == (0, 0, 0)

    @scenario
    async def test_what_another_holds_by_reference_stays_as_long_as_that_one(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a", hours=9)
            await kept.blob.put("a/x@/", b"data")
            again = ExecutionRecord(id="b", workflow="w", hash="hash of w", at=NOW - HOUR, input=b"{}")
            await kept.journal.accept(again, [_result(2, value=Large("a/x@/", 4))])
            assert (await kept.collect(ALL)).executions == 0
            assert await kept.blob.get("a/x@/") == b"data"
            await kept.end("b", hours=0.1)
            assert (await kept.collect(Rule(older_than=HOUR))).executions == 0
            assert (await kept.collect(ALL)).executions == 2
            assert await kept.blob.get("a/x@/") is None

    @scenario
    async def test_nothing_begins_with_the_results_of_one_that_is_gone(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a")
            await kept.collect(ALL)
            again = ExecutionRecord(id="b", workflow="w", hash="hash of w", at=NOW, input=b"{}", key="k")
            with pytest.raises(ExecutionRemovedError, match="a was removed"):
                await kept.journal.accept(again, [_result(2, value=Large("a/x@/", 4))])
            assert await kept.left("a b") == ""
            assert (await kept.journal.accept(again)).id == "b"

    @scenario
    async def test_a_line_of_reruns_goes_in_one_collection_in_whatever_order_they_ended(
        self, folder: Path
    ) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a", hours=1)
            for before, name, hours in (("a", "b", 3), ("b", "c", 2), ("c", "d", 5)):
                accepted = ExecutionRecord(
                    id=name, workflow="w", hash="hash of w", at=NOW - HOUR, input=b"{}"
                )
                await kept.journal.accept(accepted, [_result(2, value=Large(f"{before}/x@/", 4))])
                await kept.end(name, hours)
            assert (await kept.collect(ALL)).executions == 4

    @scenario
    async def test_a_child_stays_while_its_parent_runs(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.begin("parent")
            await kept.run("child", "v", hours=9, parent=Parent("parent", 1, (), 1))
            assert (await kept.collect(ALL)).executions == 0
            await kept.end("parent", hours=8)
            assert (await kept.collect(ALL)).executions == 2

    @scenario
    async def test_a_key_is_spent_for_thirty_days_and_then_free(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a", key="k")
            await kept.collect(ALL)
            with pytest.raises(IdempotencyKeyExpiredError, match="a, which has ended") as refused:
                await kept.begin("b", key="k", at=NOW + KEY_LIFE_MS - 1)
            assert (refused.value.code, refused.value.execution) == ("KEY_SPENT", "a")
            with pytest.raises(IdempotencyConflictError):
                await kept.begin("b", key="k", input=b"[]")
            assert await kept.left("a b") == ""
            await kept.begin("b", key="k", at=NOW + KEY_LIFE_MS)
            assert await kept.left("a b") == "b"

    @scenario
    async def test_keys_are_dropped_when_their_time_is_over(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a", key="k")
            await kept.run("b", key="l")
            assert (await kept.collect(Rule(keep=1))).keys == 0
            assert (await kept.collect(Rule(keep=1), now=NOW + KEY_LIFE_MS - 1)).keys == 0
            assert (await kept.collect(Rule(keep=1), now=NOW + KEY_LIFE_MS)).keys == 1
            again = ExecutionRecord(id="c", workflow="w", hash="hash of w", at=NOW, input=b"{}", key="l")
            assert (await kept.journal.accept(again)).id == "b"

    @scenario
    async def test_a_definition_goes_with_the_last_execution_that_names_it(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            for hash in ("hash of w", "hash of v"):
                await kept.journal.save_definition(hash, b"{}")
            for name, workflow in (("a", "w"), ("b", "v"), ("c", "v")):
                await kept.run(name, workflow)
        async with self.make_stores(folder) as kept:
            assert (await kept.collect(Rule(keep=1))).definitions == 0
            assert (await kept.collect(Rule(workflow="v", keep=0))).definitions == 1
            assert await kept.journal.definition("hash of v") is None
            assert await kept.journal.definition("hash of w") == b"{}"

    @scenario
    async def test_a_definition_that_was_just_saved_waits_for_its_execution(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.journal.save_definition("hash of w", b"{}")
            assert (await kept.collect(ALL)).definitions == 0
            await kept.run("a")
            await kept.collect(ALL)
            await kept.begin("b")
            assert await kept.journal.definition("hash of w") == b"{}"

    @scenario
    async def test_an_id_may_be_used_again(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a", hours=0)
            await kept.blob.put("a/x@/", b"old")
            await kept.collect(ALL)
            await kept.begin("a")
            await kept.blob.put("a/x@/", b"new")
            await kept.collect(ALL, now=NOW + HOUR)
            assert await kept.left("a") == "a"
            assert await kept.blob.get("a/x@/") == b"new"
            assert await kept.journal.facts("a") == []

    @scenario
    async def test_a_large_one_goes_whole(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.begin("large")
            await kept.journal.record("large", [_result(node) for node in range(2, 7_000)])
            for number in range(150):
                await kept.blob.put(f"large/{number}@/", b"data" * 1000)
            await kept.end("large")
            await kept.run("small")
            done = await kept.collect(ALL)
            assert (done.executions, done.facts, done.blobs) == (2, 7_002, 150)
            assert await kept.left("large small") == ""

    @scenario
    async def test_what_is_written_late_for_one_that_is_gone_is_found_later(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.run("a", hours=0, status="cancelled")
            await kept.collect(ALL)
            await kept.blob.put("a/late@/", b"data")
            assert (await kept.collect(ALL, now=NOW + HOUR)).blobs == 1
            assert await kept.blob.get("a/late@/") is None

    @scenario
    async def test_cancelled_at_any_moment_each_is_whole_or_gone(self, folder: Path) -> None:
        names = " ".join(f"x{number}" for number in range(self.many))
        async with self.make_stores(folder) as kept:
            await asyncio.gather(*(kept.run(name) for name in names.split()))
            steps = 0
            while await kept.left(names):
                steps += 1
                collecting = asyncio.create_task(kept.collect(ALL))
                for _ in range(steps):
                    await asyncio.sleep(0)
                collecting.cancel()
                await asyncio.wait([collecting])
                await kept.begin(f"behind what was under way {steps}")
                for name in (await kept.left(names)).split():
                    assert len(await kept.journal.facts(name)) == 2
                if steps > 20:
                    await kept.collect(ALL)

    @scenario
    async def test_a_crash_leaves_each_whole_or_gone_and_the_next_goes_on(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await kept.begin("large")
            await kept.journal.record("large", [_result(node) for node in range(2, 7_000)])
            await kept.end("large", hours=2)
            await kept.run("other")
            left: list[Path] = []
            rest: list[int] = []

            def crash(so_far: RetentionResult) -> None:
                if so_far.executions and not left:
                    left.append(self.crashed(folder))
                    rest.append(7_000 - so_far.facts)

            await kept.retention.collect([Rule(keep=1)], NOW, progress=crash)
        async with self.make_stores(left[0]) as kept:
            assert await kept.left("large other") == "other"
            await kept.begin("next")
            assert await kept.journal.facts("next") == []
            done = await kept.collect()
            assert (done.executions, done.facts) == (0, rest[0])

    @scenario
    async def test_others_write_meanwhile(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await asyncio.gather(*(kept.run(f"x{number}") for number in range(300)))
            collecting = asyncio.create_task(kept.collect(Rule(workflow="w", keep=0)))
            for number in range(50):
                await kept.run(f"y{number}", "v")
            assert (await collecting).executions == 300
            for number in range(50):
                assert len(await kept.journal.facts(f"y{number}")) == 2

    @scenario
    async def test_space_is_given_back(self, folder: Path) -> None:
        async with self.make_stores(folder) as kept:
            await asyncio.gather(*(kept.run(f"x{number}") for number in range(200)))
            await asyncio.gather(*(kept.blob.put(f"x{number}/a@/", b"data" * 5_000) for number in range(200)))
            done = await kept.collect(Rule(keep=1))
            assert done.bytes_before > 4_000_000
            assert done.bytes_after < done.bytes_before * 0.08
            assert done.shrinks
