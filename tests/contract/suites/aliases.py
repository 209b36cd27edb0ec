"""What every library promises of aliases: weights that spread starts, and changes that are compared in the same act."""

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
from tests.contract.suites.library import definition, deploy
from tests.contract.suites.scenario import scenario

RACERS = 20
STARTS = 1_000


async def replace(library: WorkflowStore, content: str, expected: Expected | None) -> Version:
    """Deploy something where what is there is expected."""
    made = definition(content)
    return await library.deploy(canonical(made), content_hash(made), "orders", 1, expected=expected)


def tag(content: str) -> str:
    """What is expected of a workflow with this content."""
    return content_hash(definition(content))


async def alias(library: WorkflowStore, name: str = "stable") -> Alias:
    """An alias as it is."""
    return next(each for each in await library.aliases("orders") if each.name == name)


class AliasContract:
    """Mix it into the contract of libraries."""

    def make_library(self, folder: Path) -> AbstractAsyncContextManager[tuple[Journal, WorkflowStore]]:
        raise NotImplementedError

    @scenario
    async def test_weights_give_each_name_a_version_and_always_the_same_one(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            for content in "abc":
                await deploy(library, content)
            await library.set_alias("orders", "stable", 1, 2, weights={2: 20, 3: 5.5})
            names = [f"k{number}" for number in range(STARTS)]
            given = [(await library.find("orders", "stable", by=name)).number for name in names]
            counts = Counter(given)
            assert 150 <= counts[2] <= 250
            assert 30 <= counts[3] <= 85
            assert counts.total() == counts[1] + counts[2] + counts[3] == STARTS
            assert [(await library.find("orders", "stable", by=name)).number for name in names[:50]] == given[
                :50
            ]
            found = await library.find("orders", "stable", by=names[given.index(3)])
            assert (found.hash, found.aliases) == (tag("c"), ("latest",))
            assert (await library.find("orders", "stable")).number == 1
            assert (await library.find("orders", "2", by="k0")).number == 2
            assert (await library.find("orders", by="k0")).number == 3

    @scenario
    async def test_whoever_got_the_new_version_keeps_it_while_its_weight_grows(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            await deploy(library, "b")
            before: set[str] = set()
            for share in (1, 10, 50, 100):
                await library.set_alias("orders", "stable", 1, 2, weights={2: share})
                names = {
                    f"k{number}"
                    for number in range(200)
                    if (await library.find("orders", "stable", by=f"k{number}")).number == 2
                }
                assert before <= names
                before = names
            assert len(before) == 200

    @scenario
    async def test_aliases_are_listed_with_their_weights_and_outlive_the_process(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", alias="canary")
            await deploy(library, "b")
            await library.set_alias("orders", "stable", 1, 2, weights={2: 12.5})
            listed = [Alias("canary", 1), Alias("latest", 2, 2), Alias("stable", 1, 1, {2: 12.5})]
            assert await library.aliases("orders") == listed
            assert await library.aliases("nobody") == []
        async with self.make_library(folder) as (_, library):
            assert await library.aliases("orders") == listed
            await library.archive("orders", 3)
            assert await library.aliases("orders") == listed
            with pytest.raises(WorkflowNotFoundError, match="removed"):
                await library.find("orders", "stable", by="k")

    @scenario
    async def test_moving_an_alias_by_whatever_means_ends_its_weights(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            await deploy(library, "b")
            weights = {2: 50.0}
            assert (await library.set_alias("orders", "stable", 1, 2, weights=weights)).change == "moved"
            assert (await library.set_alias("orders", "stable", 1, 3, weights=weights)).change == "none"
            assert (await library.set_alias("orders", "stable", None, 4, weights={2: 60})).number == 1
            assert (await alias(library)).weights == {2: 60}
            assert (await library.set_alias("orders", "stable", 1, 5)).change == "moved"
            assert (await alias(library)).weights == {}
            await library.set_alias("orders", "stable", 1, 6, weights=weights)
            await deploy(library, "c", alias="stable")
            assert await alias(library) == Alias("stable", 3, 5, {})
            await library.set_alias("orders", "stable", 1, 7, weights=weights)
            assert (await deploy(library, "a", alias="stable")).change == "moved"
            assert (await alias(library)).weights == {}

    @scenario
    async def test_weights_that_spread_nothing_are_refused(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            await deploy(library, "b")
            for weights in ({2: 0.0}, {2: -1.0}, {2: 101.0}, {1: 60.0, 2: 60.0}, {2: float("nan")}):
                with pytest.raises(InvalidWeightsError):
                    await library.set_alias("orders", "stable", 1, 1, weights=weights)
            with pytest.raises(InvalidWeightsError, match="latest"):
                await library.set_alias("orders", "latest", 1, 1, weights={2: 5})
            for number in (0, 3, -1, 2**80):
                with pytest.raises(
                    WorkflowNotFoundError, match=f"no version `{number}`: it has versions 1 to 2"
                ):
                    await library.set_alias("orders", "stable", 1, 1, weights={number: 5})
            with pytest.raises(WorkflowNotFoundError, match="no version `stable`"):
                await library.set_alias("orders", "stable", None, 1)
            assert [each.name for each in await library.aliases("orders")] == ["latest"]

    @scenario
    async def test_a_deploy_finds_what_it_expects_or_changes_nothing(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            wrong: list[Expected] = [(), (ANYTHING,), (tag("a"),)]
            for expected in wrong:
                with pytest.raises(ConcurrentChangeError, match="does not exist"):
                    await replace(library, "a", expected)
            assert (await replace(library, "a", (NOTHING,))).change == "created"
            wrong = [(), (NOTHING,), (tag("x"), tag("y"))]
            for expected in wrong:
                with pytest.raises(ConcurrentChangeError, match=tag("a")):
                    await replace(library, "b", expected)
            assert [each.number for each in await library.versions("orders")] == [1]
            assert (await replace(library, "b", (tag("x"), tag("a")))).number == 2
            assert (await replace(library, "c", (ANYTHING,))).number == 3
            assert (await replace(library, "a", None)).change == "moved"

    @scenario
    async def test_asked_again_a_deploy_answers_as_before_unless_it_had_to_be_the_first(
        self, folder: Path
    ) -> None:
        async with self.make_library(folder) as (_, library):
            await replace(library, "a", (NOTHING,))
            await replace(library, "b", (tag("a"),))
            again = await replace(library, "b", (tag("a"),))
            assert (again.number, again.change) == (2, "none")
            with pytest.raises(ConcurrentChangeError):
                await replace(library, "b", (NOTHING,))

    @scenario
    async def test_a_hidden_workflow_is_nothing_to_whoever_expects(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            await library.archive("orders", 2)
            with pytest.raises(ConcurrentChangeError, match="does not exist"):
                await replace(library, "b", (tag("a"),))
            assert (await replace(library, "b", (NOTHING,))).number == 2

    @scenario
    async def test_of_many_who_saw_the_same_one_replaces_it(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            seen: Expected = (NOTHING,)
            for turn in range(5):
                racing = (replace(library, f"{turn}-{racer}", seen) for racer in range(RACERS))
                answers = await asyncio.gather(*racing, return_exceptions=True)
                (won,) = [each for each in answers if isinstance(each, Version)]
                assert sum(isinstance(each, ConcurrentChangeError) for each in answers) == RACERS - 1
                assert (won.number, (await library.find("orders")).hash) == (turn + 1, won.hash)
                seen = (won.hash,)

    @scenario
    async def test_so_does_one_who_moves_an_alias(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            for number in range(RACERS):
                await deploy(library, str(number))
            seen: Expected = (NOTHING,)
            for turn in range(1, 6):
                racing = (
                    library.set_alias("orders", "stable", number, 1, weights={turn: 5}, expected=seen)
                    for number in range(1, RACERS + 1)
                )
                answers = await asyncio.gather(*racing, return_exceptions=True)
                (won,) = [each for each in answers if isinstance(each, Version)]
                assert sum(isinstance(each, ConcurrentChangeError) for each in answers) == RACERS - 1
                assert await alias(library) == Alias("stable", won.number, turn, {turn: 5})
                again = await library.set_alias(
                    "orders", "stable", won.number, 1, weights={turn: 5}, expected=("9",)
                )
                assert again.change == "none"
                seen = (str(turn),)
