"""Contract of retention: removes what the rules select and frees the space."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from rune.core.execution.fact import ExecutionEnded, NodeResult, PauseChanged
from rune.core.execution.outcome import Error
from rune.core.execution.stored_value import Inline, Large
from rune.ports.journal import (
    BlobStore,
    ExecutionRecord,
    ExecutionRemovedError,
    IdempotencyConflictError,
    IdempotencyKeyExpiredError,
    Journal,
    Parent,
)
from rune.ports.retention import KEY_LIFE_MS, InvalidRuleError, Retention, RetentionResult, Rule
from tests.support.async_test import async_test

NOW = 1_700_000_000_000
HOUR = 3_600_000
ALL = Rule(keep=0)

Status = Literal["completed", "failed", "halted", "cancelled"]


class RetentionStores(NamedTuple):
    """The stores under test, with shortcuts."""

    journal: Journal
    blob: BlobStore
    retention: Retention

    async def begin(self, execution: str, workflow: str = "w", **given: Any) -> None:
        """Start an execution."""
        fields = {"hash": f"hash of {workflow}", "at": NOW - 1000 * HOUR, "input": Inline(b"{}"), **given}
        await self.journal.accept(ExecutionRecord(id=execution, workflow=workflow, **fields))

    async def end(self, execution: str, hours: float = 1, status: Status = "completed") -> None:
        """Record a result and the end, the given hours ago."""
        at = NOW - int(hours * HOUR)
        error = Error("DEAD_LETTERED", "dead-lettered") if status == "failed" else None
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
        """Start and end an execution."""
        await self.begin(execution, workflow, **given)
        await self.end(execution, hours, status)

    async def collect(self, *rules: Rule, now: int = NOW) -> RetentionResult:
        """Run the retention with these rules."""
        return await self.retention.collect(rules, now)

    async def existing(self, names: str) -> str:
        """Return the given ids that still exist."""
        found = [each for each in names.split() if await self.journal.accepted(each) is not None]
        return " ".join(found)


def _result(node: int, at: int = NOW, value: Any = None) -> NodeResult:
    return NodeResult(node, (), at, "ok", value=value or Inline(b"1"))


class RetentionContract:
    """Subclasses open journal, blobs and retention in a folder; opened again there, they have the same content.
    `many`: number of executions of the cancelled collection; fewer where each call goes over a network."""

    many = 600

    def make_stores(self, folder: Path) -> AbstractAsyncContextManager[RetentionStores]:
        raise NotImplementedError

    def make_crash_copy(self, folder: Path) -> Path:
        """Copy what a crash at this moment would leave on disk to a new folder; the stores stay open."""
        raise NotImplementedError

    @async_test
    async def test_executions_older_than_rule_are_removed(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            for name, hours in (("a", 10), ("b", 5), ("c", 1)):
                await stores.run(name, hours=hours)
            done = await stores.collect(Rule(older_than=5 * HOUR))
            assert done.executions == 2
            assert await stores.existing("a b c") == "c"

    @async_test
    async def test_keep_retains_newest_ended_per_workflow(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            for name, workflow, hours in (
                ("a", "w", 1),
                ("b", "w", 3),
                ("c", "w", 2),
                ("d", "v", 9),
                ("e", "v", 8),
                ("f", "u", 7),
            ):
                await stores.run(name, workflow, hours)
            await stores.collect(Rule(keep=2))
            assert await stores.existing("a b c d e f") == "a c d e f"
            await stores.collect(Rule(keep=1))
            assert await stores.existing("a b c d e f") == "a e f"

    @async_test
    async def test_age_and_count_must_both_match(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            for name, hours in (("a", 9), ("b", 8), ("c", 7), ("d", 1)):
                await stores.run(name, hours=hours)
            await stores.collect(Rule(older_than=5 * HOUR, keep=3))
            assert await stores.existing("a b c d") == "b c d"
            await stores.collect(Rule(older_than=5 * HOUR, keep=0))
            assert await stores.existing("a b c d") == "d"

    @async_test
    async def test_rule_applies_only_to_its_statuses(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            ends: Sequence[Status] = ("completed", "failed", "halted", "failed", "cancelled", "failed")
            for name, hours, status in zip("abcdef", range(6, 0, -1), ends, strict=True):
                await stores.run(name, hours=hours, status=status)
            await stores.collect(Rule(status=("halted", "cancelled"), keep=1))
            assert await stores.existing("a b c d e f") == "a b d e f"
            await stores.collect(Rule(status=("cancelled",), keep=0))
            assert await stores.existing("a b c d e f") == "a b d f"

    @async_test
    async def test_rule_for_failed_executions_selects_halted_ones_too(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            ends: Sequence[Status] = ("completed", "failed", "halted", "failed", "cancelled", "halted")
            for name, hours, status in zip("abcdef", range(6, 0, -1), ends, strict=True):
                await stores.run(name, hours=hours, status=status)
            await stores.collect(Rule(status=("failed",), keep=2))
            assert await stores.existing("a b c d e f") == "a d e f"
            await stores.collect(Rule(status=("halted",), keep=0))
            assert await stores.existing("a b c d e f") == "a d e"
            await stores.collect(Rule(status=("failed",), older_than=0))
            assert await stores.existing("a b c d e f") == "a e"

    @async_test
    async def test_workflow_rules_override_general_rules(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            for name, workflow, hours in (("a", "w", 9), ("b", "w", 1), ("c", "v", 9), ("d", "v", 1)):
                await stores.run(name, workflow, hours)
            await stores.run("e", "v", 1, "failed")
            rules = (
                Rule(older_than=5 * HOUR),
                Rule(workflow="v", older_than=50 * HOUR),
                Rule(workflow="v", status=("failed",), keep=0),
            )
            await stores.collect(*rules)
            assert await stores.existing("a b c d e") == "b c d"

    @async_test
    async def test_no_rules_remove_nothing(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a")
            assert (await stores.collect()).executions == 0
            assert (await stores.collect(Rule(workflow="other", keep=0))).executions == 0
            assert await stores.existing("a") == "a"

    def test_invalid_rule_is_rejected(self) -> None:
        for given in ({}, {"keep": -1}, {"older_than": -1}, {"keep": 1, "status": ("running",)}):
            with pytest.raises(InvalidRuleError):
                Rule(**given)

    @async_test
    async def test_running_executions_are_kept(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.begin("running")
            await stores.begin("paused")
            await stores.journal.record("paused", [PauseChanged(NOW, 1, True)])
            assert (await stores.collect(ALL)).executions == 0
            assert await stores.existing("running paused") == "running paused"

    @async_test
    async def test_collect_removes_facts_blobs_and_dead_letters(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a", status="failed")
            await stores.run("b", hours=2)
            for name in "ab":
                await stores.blob.put(f"{name}/x@/", b"data")
            assert [each.execution for each in await stores.journal.dead_letters(10)] == ["a"]
            done = await stores.collect(Rule(status=("failed",), keep=0))
            assert (done.executions, done.facts, done.blobs) == (1, 2, 1)
            assert await stores.existing("a b") == "b"
            assert await stores.journal.end("a") is None
            assert await stores.journal.dead_letters(10) == []
            assert await stores.blob.get("a/x@/") is None
            assert await stores.blob.get("b/x@/") == b"data"
            assert len(await stores.journal.facts("b")) == 2

    @async_test
    async def test_second_collect_removes_nothing(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            for name in "abc":
                await stores.run(name)
            assert (await stores.collect(ALL)).executions == 3
            again = await stores.collect(ALL, now=NOW + HOUR)
            assert (again.executions, again.facts, again.blobs) == (0, 0, 0)

    @async_test
    async def test_execution_referenced_by_rerun_is_kept(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a", hours=9)
            await stores.blob.put("a/x@/", b"data")
            again = ExecutionRecord(
                id="b", workflow="w", hash="hash of w", at=NOW - HOUR, input=Inline(b"{}")
            )
            await stores.journal.accept(again, [_result(2, value=Large("a/x@/", 4))])
            assert (await stores.collect(ALL)).executions == 0
            assert await stores.blob.get("a/x@/") == b"data"
            await stores.end("b", hours=0.1)
            assert (await stores.collect(Rule(older_than=HOUR))).executions == 0
            assert (await stores.collect(ALL)).executions == 2
            assert await stores.blob.get("a/x@/") is None

    @async_test
    async def test_start_with_results_of_removed_execution_is_rejected(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a")
            await stores.collect(ALL)
            again = ExecutionRecord(
                id="b", workflow="w", hash="hash of w", at=NOW, input=Inline(b"{}"), key="k"
            )
            with pytest.raises(ExecutionRemovedError, match="a was removed"):
                await stores.journal.accept(again, [_result(2, value=Large("a/x@/", 4))])
            assert await stores.existing("a b") == ""
            assert (await stores.journal.accept(again)).id == "b"

    @async_test
    async def test_chain_of_reruns_is_removed_in_one_collect(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a", hours=1)
            for before, name, hours in (("a", "b", 3), ("b", "c", 2), ("c", "d", 5)):
                accepted = ExecutionRecord(
                    id=name, workflow="w", hash="hash of w", at=NOW - HOUR, input=Inline(b"{}")
                )
                await stores.journal.accept(accepted, [_result(2, value=Large(f"{before}/x@/", 4))])
                await stores.end(name, hours)
            assert (await stores.collect(ALL)).executions == 4

    @async_test
    async def test_child_is_kept_while_parent_runs(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.begin("parent")
            await stores.run("child", "v", hours=9, parent=Parent("parent", 1, (), 1))
            assert (await stores.collect(ALL)).executions == 0
            await stores.end("parent", hours=8)
            assert (await stores.collect(ALL)).executions == 2

    @async_test
    async def test_idempotency_key_is_expired_for_thirty_days_then_free(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a", key="k")
            await stores.collect(ALL)
            with pytest.raises(IdempotencyKeyExpiredError, match="a, which has ended") as refused:
                await stores.begin("b", key="k", at=NOW + KEY_LIFE_MS - 1)
            assert (refused.value.code, refused.value.execution) == ("KEY_SPENT", "a")
            with pytest.raises(IdempotencyConflictError):
                await stores.begin("b", key="k", input=Inline(b"[]"))
            assert await stores.existing("a b") == ""
            await stores.begin("b", key="k", at=NOW + KEY_LIFE_MS)
            assert await stores.existing("a b") == "b"

    @async_test
    async def test_expired_idempotency_keys_are_removed(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a", key="k")
            await stores.run("b", key="l")
            assert (await stores.collect(Rule(keep=1))).keys == 0
            assert (await stores.collect(Rule(keep=1), now=NOW + KEY_LIFE_MS - 1)).keys == 0
            assert (await stores.collect(Rule(keep=1), now=NOW + KEY_LIFE_MS)).keys == 1
            again = ExecutionRecord(
                id="c", workflow="w", hash="hash of w", at=NOW, input=Inline(b"{}"), key="l"
            )
            assert (await stores.journal.accept(again)).id == "b"

    @async_test
    async def test_definition_is_removed_with_last_execution(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            for hash in ("hash of w", "hash of v"):
                await stores.journal.save_definition(hash, b"{}")
            for name, workflow in (("a", "w"), ("b", "v"), ("c", "v")):
                await stores.run(name, workflow)
        async with self.make_stores(tmp_path) as stores:
            assert (await stores.collect(Rule(keep=1))).definitions == 0
            assert (await stores.collect(Rule(workflow="v", keep=0))).definitions == 1
            assert await stores.journal.definition("hash of v") is None
            assert await stores.journal.definition("hash of w") == b"{}"

    @async_test
    async def test_recently_saved_definition_is_kept(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.journal.save_definition("hash of w", b"{}")
            assert (await stores.collect(ALL)).definitions == 0
            await stores.run("a")
            await stores.collect(ALL)
            await stores.begin("b")
            assert await stores.journal.definition("hash of w") == b"{}"

    @async_test
    async def test_id_of_removed_execution_can_be_reused(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a", hours=0)
            await stores.blob.put("a/x@/", b"old")
            await stores.collect(ALL)
            await stores.begin("a")
            await stores.blob.put("a/x@/", b"new")
            await stores.collect(ALL, now=NOW + HOUR)
            assert await stores.existing("a") == "a"
            assert await stores.blob.get("a/x@/") == b"new"
            assert await stores.journal.facts("a") == []

    @async_test
    async def test_large_execution_is_removed_completely(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.begin("large")
            await stores.journal.record("large", [_result(node) for node in range(2, 7_000)])
            for number in range(150):
                await stores.blob.put(f"large/{number}@/", b"data" * 1000)
            await stores.end("large")
            await stores.run("small")
            done = await stores.collect(ALL)
            assert (done.executions, done.facts, done.blobs) == (2, 7_002, 150)
            assert await stores.existing("large small") == ""

    @async_test
    async def test_late_blob_of_removed_execution_is_removed_later(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.run("a", hours=0, status="cancelled")
            await stores.collect(ALL)
            await stores.blob.put("a/late@/", b"data")
            assert (await stores.collect(ALL, now=NOW + HOUR)).blobs == 1
            assert await stores.blob.get("a/late@/") is None

    @async_test
    async def test_cancelled_collect_leaves_each_execution_whole_or_gone(self, tmp_path: Path) -> None:
        names = " ".join(f"x{number}" for number in range(self.many))
        async with self.make_stores(tmp_path) as stores:
            await asyncio.gather(*(stores.run(name) for name in names.split()))
            steps = 0
            while await stores.existing(names):
                steps += 1
                collecting = asyncio.create_task(stores.collect(ALL))
                for _ in range(steps):
                    await asyncio.sleep(0)
                collecting.cancel()
                await asyncio.wait([collecting])
                await stores.begin(f"barrier {steps}")
                for name in (await stores.existing(names)).split():
                    assert len(await stores.journal.facts(name)) == 2
                if steps > 20:
                    await stores.collect(ALL)

    @async_test
    async def test_collect_after_crash_finishes_removal(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await stores.begin("large")
            await stores.journal.record("large", [_result(node) for node in range(2, 7_000)])
            await stores.end("large", hours=2)
            await stores.run("other")
            crash_copies: list[Path] = []
            remaining_facts: list[int] = []

            def crash(so_far: RetentionResult) -> None:
                if so_far.executions and not crash_copies:
                    crash_copies.append(self.make_crash_copy(tmp_path))
                    remaining_facts.append(7_000 - so_far.facts)

            await stores.retention.collect([Rule(keep=1)], NOW, progress=crash)
        async with self.make_stores(crash_copies[0]) as stores:
            assert await stores.existing("large other") == "other"
            await stores.begin("next")
            assert await stores.journal.facts("next") == []
            done = await stores.collect()
            assert (done.executions, done.facts) == (0, remaining_facts[0])

    @async_test
    async def test_concurrent_writes_during_collect_succeed(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await asyncio.gather(*(stores.run(f"x{number}") for number in range(300)))
            collecting = asyncio.create_task(stores.collect(Rule(workflow="w", keep=0)))
            for number in range(50):
                await stores.run(f"y{number}", "v")
            assert (await collecting).executions == 300
            for number in range(50):
                assert len(await stores.journal.facts(f"y{number}")) == 2

    @async_test
    async def test_collect_frees_disk_space(self, tmp_path: Path) -> None:
        async with self.make_stores(tmp_path) as stores:
            await asyncio.gather(*(stores.run(f"x{number}") for number in range(200)))
            await asyncio.gather(
                *(stores.blob.put(f"x{number}/a@/", b"data" * 5_000) for number in range(200))
            )
            done = await stores.collect(Rule(keep=1))
            assert done.bytes_before > 4_000_000
            assert done.bytes_after < done.bytes_before * 0.08
            assert done.shrinks
