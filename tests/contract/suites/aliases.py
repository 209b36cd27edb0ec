"""Contract of workflow stores for aliases: weights and conditional changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rune.core.definition.model import canonical, content_hash
from rune.ports.journal import Journal
from rune.ports.workflows import (
    ANYTHING,
    NOTHING,
    Alias,
    ConcurrentChangeError,
    Expected,
    InvalidWeightsError,
    Version,
    WorkflowNotFoundError,
    WorkflowStore,
)
from tests.contract.suites.workflows import definition, deploy
from tests.support.async_test import async_test

RACERS = 20
STARTS = 1_000


async def replace(workflows: WorkflowStore, content: str, expected: Expected | None) -> Version:
    """Deploy with an expectation about the current version."""
    made = definition(content)
    return await workflows.deploy(canonical(made), content_hash(made), "orders", 1, expected=expected)


def tag(content: str) -> str:
    """Return the hash of this content."""
    return content_hash(definition(content))


async def alias(workflows: WorkflowStore, name: str = "stable") -> Alias:
    """Return the current alias."""
    return next(each for each in await workflows.aliases("orders") if each.name == name)


class AliasContract:
    """Mixin for the workflow store contract."""

    def make_workflows(self, folder: Path) -> AbstractAsyncContextManager[tuple[Journal, WorkflowStore]]:
        raise NotImplementedError

    @async_test
    async def test_weights_assign_versions_deterministically(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            for content in "abc":
                await deploy(workflows, content)
            await workflows.set_alias("orders", "stable", 1, 2, weights={2: 20, 3: 5.5})
            names = [f"k{number}" for number in range(STARTS)]
            given = [(await workflows.find("orders", "stable", by=name)).number for name in names]
            counts = Counter(given)
            assert 150 <= counts[2] <= 250
            assert 30 <= counts[3] <= 85
            assert counts.total() == counts[1] + counts[2] + counts[3] == STARTS
            assert [
                (await workflows.find("orders", "stable", by=name)).number for name in names[:50]
            ] == given[:50]
            found = await workflows.find("orders", "stable", by=names[given.index(3)])
            assert (found.hash, found.aliases) == (tag("c"), ("latest",))
            assert (await workflows.find("orders", "stable")).number == 1
            assert (await workflows.find("orders", "2", by="k0")).number == 2
            assert (await workflows.find("orders", by="k0")).number == 3

    @async_test
    async def test_assigned_version_is_stable_while_weight_grows(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            await deploy(workflows, "b")
            before: set[str] = set()
            for share in (1, 10, 50, 100):
                await workflows.set_alias("orders", "stable", 1, 2, weights={2: share})
                names = {
                    f"k{number}"
                    for number in range(200)
                    if (await workflows.find("orders", "stable", by=f"k{number}")).number == 2
                }
                assert before <= names
                before = names
            assert len(before) == 200

    @async_test
    async def test_aliases_and_weights_survive_reopen(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", alias="canary")
            await deploy(workflows, "b")
            await workflows.set_alias("orders", "stable", 1, 2, weights={2: 12.5})
            listed = [Alias("canary", 1), Alias("latest", 2, 2), Alias("stable", 1, 1, {2: 12.5})]
            assert await workflows.aliases("orders") == listed
            assert await workflows.aliases("unknown") == []
        async with self.make_workflows(tmp_path) as (_, workflows):
            assert await workflows.aliases("orders") == listed
            await workflows.archive("orders", 3)
            assert await workflows.aliases("orders") == listed
            with pytest.raises(WorkflowNotFoundError, match="removed"):
                await workflows.find("orders", "stable", by="k")

    @async_test
    async def test_moving_alias_clears_weights(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            await deploy(workflows, "b")
            weights = {2: 50.0}
            assert (await workflows.set_alias("orders", "stable", 1, 2, weights=weights)).change == "moved"
            assert (await workflows.set_alias("orders", "stable", 1, 3, weights=weights)).change == "none"
            assert (await workflows.set_alias("orders", "stable", None, 4, weights={2: 60})).number == 1
            assert (await alias(workflows)).weights == {2: 60}
            assert (await workflows.set_alias("orders", "stable", 1, 5)).change == "moved"
            assert (await alias(workflows)).weights == {}
            await workflows.set_alias("orders", "stable", 1, 6, weights=weights)
            await deploy(workflows, "c", alias="stable")
            assert await alias(workflows) == Alias("stable", 3, 5, {})
            await workflows.set_alias("orders", "stable", 1, 7, weights=weights)
            assert (await deploy(workflows, "a", alias="stable")).change == "moved"
            assert (await alias(workflows)).weights == {}

    @async_test
    async def test_invalid_weights_are_rejected(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            await deploy(workflows, "b")
            for weights in ({2: 0.0}, {2: -1.0}, {2: 101.0}, {1: 60.0, 2: 60.0}, {2: float("nan")}):
                with pytest.raises(InvalidWeightsError):
                    await workflows.set_alias("orders", "stable", 1, 1, weights=weights)
            for version in (1, None):
                await workflows.set_alias("orders", "own", 1, 1)
                with pytest.raises(InvalidWeightsError, match="`own` points at version 1"):
                    await workflows.set_alias("orders", "own", version, 1, weights={1: 5.0, 2: 5.0})
            with pytest.raises(InvalidWeightsError, match="latest"):
                await workflows.set_alias("orders", "latest", 1, 1, weights={2: 5})
            for number in (0, 3, -1, 2**80):
                with pytest.raises(
                    WorkflowNotFoundError, match=f"no version `{number}`: it has versions 1 to 2"
                ):
                    await workflows.set_alias("orders", "stable", 1, 1, weights={number: 5})
            with pytest.raises(WorkflowNotFoundError, match="no version `stable`"):
                await workflows.set_alias("orders", "stable", None, 1)
            assert await workflows.aliases("orders") == [Alias("latest", 2, 2, {}), Alias("own", 1, 1, {})]

    @async_test
    async def test_deploy_with_wrong_expected_hash_is_rejected(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            wrong: list[Expected] = [(), (ANYTHING,), (tag("a"),)]
            for expected in wrong:
                with pytest.raises(ConcurrentChangeError, match="does not exist"):
                    await replace(workflows, "a", expected)
            assert (await replace(workflows, "a", (NOTHING,))).change == "created"
            wrong = [(), (NOTHING,), (tag("x"), tag("y"))]
            for expected in wrong:
                with pytest.raises(ConcurrentChangeError, match=tag("a")):
                    await replace(workflows, "b", expected)
            assert [each.number for each in await workflows.versions("orders")] == [1]
            assert (await replace(workflows, "b", (tag("x"), tag("a")))).number == 2
            assert (await replace(workflows, "c", (ANYTHING,))).number == 3
            assert (await replace(workflows, "a", None)).change == "moved"

    @async_test
    async def test_repeated_conditional_deploy_is_idempotent_unless_creating(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await replace(workflows, "a", (NOTHING,))
            await replace(workflows, "b", (tag("a"),))
            again = await replace(workflows, "b", (tag("a"),))
            assert (again.number, again.change) == (2, "none")
            with pytest.raises(ConcurrentChangeError):
                await replace(workflows, "b", (NOTHING,))

    @async_test
    async def test_archived_workflow_counts_as_missing_in_conditional_deploy(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            await workflows.archive("orders", 2)
            with pytest.raises(ConcurrentChangeError, match="does not exist"):
                await replace(workflows, "b", (tag("a"),))
            assert (await replace(workflows, "b", (NOTHING,))).number == 2

    @async_test
    async def test_concurrent_conditional_deploys_have_one_winner(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            seen: Expected = (NOTHING,)
            for turn in range(5):
                racing = (replace(workflows, f"{turn}-{racer}", seen) for racer in range(RACERS))
                answers = await asyncio.gather(*racing, return_exceptions=True)
                (won,) = [each for each in answers if isinstance(each, Version)]
                assert sum(isinstance(each, ConcurrentChangeError) for each in answers) == RACERS - 1
                assert (won.number, (await workflows.find("orders")).hash) == (turn + 1, won.hash)
                seen = (won.hash,)

    @async_test
    async def test_concurrent_conditional_alias_moves_have_one_winner(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            for number in range(RACERS + 1):
                await deploy(workflows, str(number))
            other = RACERS + 1
            seen: Expected = (NOTHING,)
            for turn in range(1, 6):
                racing = (
                    workflows.set_alias("orders", "stable", number, 1, weights={other: turn}, expected=seen)
                    for number in range(1, RACERS + 1)
                )
                answers = await asyncio.gather(*racing, return_exceptions=True)
                (won,) = [each for each in answers if isinstance(each, Version)]
                assert sum(isinstance(each, ConcurrentChangeError) for each in answers) == RACERS - 1
                assert await alias(workflows) == Alias("stable", won.number, turn, {other: turn})
                again = await workflows.set_alias(
                    "orders", "stable", won.number, 1, weights={other: turn}, expected=("9",)
                )
                assert again.change == "none"
                seen = (str(turn),)
