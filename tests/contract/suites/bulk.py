"""Contract of the store of bulk jobs."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from rune.ports.queries import KEPT_MS, BulkJob, BulkOutcome, BulkStore
from tests.support.async_test import async_test

EXECUTIONS = [f"x{number}" for number in range(5)]


def job(id: str = "b1", at: int = 1_000) -> BulkJob:
    return BulkJob(id=id, at=at, principal="key:k1", action="cancel", reason="why", total=len(EXECUTIONS))


def done(place: int) -> BulkOutcome:
    return BulkOutcome(place=place, execution=EXECUTIONS[place], outcome="done", started=f"y{place}")


def refused(place: int) -> BulkOutcome:
    return BulkOutcome(
        place=place, execution=EXECUTIONS[place], outcome="refused", code="ENDED", detail="has ended"
    )


class BulkContract:
    """Subclasses open a store in a folder; opened again there, it has the same content."""

    def make_bulk(self, folder: Path) -> AbstractAsyncContextManager[BulkStore]:
        raise NotImplementedError

    @async_test
    async def test_job_is_resumed_with_what_is_pending(self, tmp_path: Path) -> None:
        async with self.make_bulk(tmp_path) as store:
            assert await store.create(job(), EXECUTIONS) == job()
            claimed = await store.claim(2_000, 3_000)
            assert claimed == job()
            assert await store.record("b1", [done(0), refused(1)], 4_000) == "running"
        async with self.make_bulk(tmp_path) as store:
            assert await store.claim(3_999, 9_000) is None
            again = await store.claim(4_000, 9_000)
            assert again is not None
            assert (again.status, again.counts) == ("running", {"done": 1, "refused": 1})
            assert [each.execution for each in await store.pending("b1", 2)] == ["x2", "x3"]
            assert await store.record("b1", [done(2), done(3), done(4)], 9_000) == "completed"
            assert await store.pending("b1", 2) == []
            found = await store.find("b1")
            assert found is not None
            assert (found.status, found.counts) == ("completed", {"done": 4, "refused": 1})
            assert await store.claim(10_000, 11_000) is None

    @async_test
    async def test_same_id_keeps_the_first_job(self, tmp_path: Path) -> None:
        async with self.make_bulk(tmp_path) as store:
            await store.create(job(), EXECUTIONS)
            again = await store.create(job(at=2_000), EXECUTIONS[:1])
            assert (again.at, again.total) == (1_000, 5)
            assert len(await store.pending("b1", 10)) == 5
            assert await store.find("b2") is None

    @async_test
    async def test_outcomes_are_paged_and_recorded_once(self, tmp_path: Path) -> None:
        async with self.make_bulk(tmp_path) as store:
            await store.create(job(), EXECUTIONS)
            await store.record("b1", [done(0), refused(1), done(2)], 0)
            await store.record("b1", [refused(0)], 0)
            assert await store.outcomes("b1", limit=2) == [done(0), refused(1)]
            assert await store.outcomes("b1", after=1) == [done(2)]
            assert await store.outcomes("b1", outcome="refused") == [refused(1)]

    @async_test
    async def test_aborted_job_is_not_claimed(self, tmp_path: Path) -> None:
        async with self.make_bulk(tmp_path) as store:
            await store.create(job(), EXECUTIONS)
            assert await store.abort("b1")
            assert not await store.abort("b1")
            assert await store.claim(2_000, 3_000) is None
            assert await store.record("b1", [done(0)], 3_000) == "aborted"

    @async_test
    async def test_concurrent_claims_of_one_job_have_one_winner(self, tmp_path: Path) -> None:
        async with self.make_bulk(tmp_path) as store:
            await store.create(job(), EXECUTIONS)
            claims = await asyncio.gather(*(store.claim(2_000, 3_000) for _ in range(8)))
            assert sum(each is not None for each in claims) == 1

    @async_test
    async def test_old_jobs_that_are_over_are_deleted(self, tmp_path: Path) -> None:
        async with self.make_bulk(tmp_path) as store:
            for id in ("b1", "b2"):
                await store.create(job(id), EXECUTIONS)
            await store.abort("b1")
            await store.create(job("b3", 1_001 + KEPT_MS), EXECUTIONS)
            assert [each.id for each in await store.list(10)] == ["b3", "b2"]
            assert await store.outcomes("b1") == []
            assert await store.pending("b1", 10) == []
