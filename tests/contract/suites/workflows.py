"""What every library promises: versions that never change, numbers without gaps, aliases that move in one act."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rune.core.definition.model import Definition, Node, canonical, content_hash
from rune.ports.journal import Journal, StoreUnavailableError
from rune.ports.workflows import (
    InvalidAliasError,
    Version,
    WorkflowEntry,
    WorkflowNotFoundError,
    WorkflowStore,
)
from tests.contract.suites.scenario import scenario

DEPLOYERS = 50
MANY = 300


def definition(content: str, workflow: str = "orders") -> Definition:
    """Definitions of one workflow that differ in what they say."""
    return Definition(
        id=workflow,
        name=f"Orders {content}",
        nodes=(Node(id="say", type="log", parameters={"message": content}),),
    )


async def deploy(
    library: WorkflowStore, content: str, workflow: str = "orders", at: int = 1, alias: str | None = None
) -> Version:
    """Deploy one of them."""
    made = definition(content, workflow)
    return await library.deploy(canonical(made), content_hash(made), workflow, at, alias=alias)


async def numbers(library: WorkflowStore, workflow: str = "orders") -> list[int]:
    """The versions there are."""
    return [each.number for each in await library.versions(workflow)]


class LibraryContract:
    """Subclass it and open a library in a folder, with the journal beside it; opened again there, it holds what it
    held. `make_looker` opens it for somebody who only looks while the owner goes on."""

    def make_library(self, folder: Path) -> AbstractAsyncContextManager[tuple[Journal, WorkflowStore]]:
        raise NotImplementedError

    def make_looker(self, folder: Path) -> AbstractAsyncContextManager[WorkflowStore]:
        raise NotImplementedError

    def crashed(self, folder: Path) -> Path:
        """A folder with what a crash at this instant would leave on disk; the library stays open."""
        raise NotImplementedError

    @scenario
    async def test_each_content_is_a_version_and_the_last_deployed_is_the_latest(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            first = await deploy(library, "a", at=10)
            second = await deploy(library, "b", at=20)
            assert first == Version(
                "orders", 1, content_hash(definition("a")), 10, ("latest",), change="created"
            )
            assert second == Version(
                "orders", 2, content_hash(definition("b")), 20, ("latest",), change="created"
            )
            assert [(each.number, each.aliases) for each in await library.versions("orders")] == [
                (1, ()),
                (2, ("latest",)),
            ]

    @scenario
    async def test_the_same_content_is_the_same_version(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", at=10)
            again = await deploy(library, "a", at=20)
            assert (again.number, again.at, again.change) == (1, 10, "none")
            assert await numbers(library) == [1]

    @scenario
    async def test_an_earlier_content_deployed_again_is_the_latest_under_its_old_number(
        self, folder: Path
    ) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            await deploy(library, "b")
            back = await deploy(library, "a", at=30)
            assert (back.number, back.aliases, back.change) == (1, ("latest",), "moved")
            assert (await library.find("orders")).number == 1
            assert (await deploy(library, "c")).number == 3

    @scenario
    async def test_the_definition_is_kept_in_the_same_act(self, folder: Path) -> None:
        async with self.make_library(folder) as (journal, library):
            version = await deploy(library, "a")
            assert await journal.definition(version.hash) == canonical(definition("a"))

    @scenario
    async def test_workflows_share_no_numbers_and_no_aliases(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", "orders", alias="stable")
            await deploy(library, "b", "orders")
            assert (await deploy(library, "a", "mails")).number == 1
            with pytest.raises(WorkflowNotFoundError):
                await library.find("mails", "stable")

    @scenario
    async def test_one_content_deployed_by_many_at_once_is_one_version(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            answers = await asyncio.gather(*(deploy(library, "a") for _ in range(DEPLOYERS)))
            assert {each.number for each in answers} == {1}
            assert [each.change for each in answers].count("created") == 1
            assert await numbers(library) == [1]

    @scenario
    async def test_contents_deployed_at_once_get_numbers_without_gaps(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            contents = [f"{number // 2}" for number in range(DEPLOYERS)]
            answers = await asyncio.gather(*(deploy(library, each) for each in contents))
            given: dict[str, set[int]] = {}
            for content, answer in zip(contents, answers, strict=True):
                given.setdefault(content, set()).add(answer.number)
            assert all(len(each) == 1 for each in given.values())
            assert sorted(number for (number,) in given.values()) == list(range(1, DEPLOYERS // 2 + 1))
            assert (await library.find("orders")).number in set().union(*given.values())

    @scenario
    async def test_a_refused_act_does_not_harm_those_beside_it(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            answers = await asyncio.gather(
                deploy(library, "a"),
                library.set_alias("nobody", "stable", 1, 2),
                deploy(library, "b"),
                return_exceptions=True,
            )
            assert isinstance(answers[1], WorkflowNotFoundError)
            assert await numbers(library) == [1, 2]

    @scenario
    async def test_an_alias_moves_and_versions_can_have_several(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            await deploy(library, "b")
            stable = await library.set_alias("orders", "stable", 2, 3)
            assert (stable.number, stable.aliases, stable.change) == (2, ("latest", "stable"), "moved")
            moved = await library.set_alias("orders", "stable", 1, 4)
            assert (moved.number, moved.aliases) == (1, ("stable",))
            assert (await library.set_alias("orders", "stable", 1, 5)).change == "none"
            assert (await library.find("orders", "stable")).number == 1

    @scenario
    async def test_a_deploy_moves_the_alias_it_names_and_latest_alone(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", alias="stable")
            await deploy(library, "b", alias="canary")
            versions = await library.versions("orders")
            assert [each.aliases for each in versions] == [("stable",), ("canary", "latest")]
            assert (await deploy(library, "b", alias="stable")).change == "moved"

    @scenario
    async def test_latest_can_go_back(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            await deploy(library, "b")
            await library.set_alias("orders", "latest", 1, 3)
            assert (await library.find("orders")).number == 1
            assert await numbers(library) == [1, 2]

    @scenario
    async def test_a_version_is_found_by_number_alias_or_nothing(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", alias="stable")
            await deploy(library, "b")
            found = {
                which: (await library.find("orders", which)).number
                for which in (None, "latest", "2", "v2", "1", "v1", "stable")
            }
            assert found == {None: 2, "latest": 2, "2": 2, "v2": 2, "1": 1, "v1": 1, "stable": 1}

    @scenario
    async def test_what_is_unknown_is_refused_with_what_there_is(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", alias="stable")
            await deploy(library, "b")
            for which in ("3", "0", "v9", "99999999999999", "9" * 40, "prod", "", "STABLE"):
                with pytest.raises(
                    WorkflowNotFoundError, match=r"versions 1 to 2, and latest \(2\), stable \(1\)"
                ):
                    await library.find("orders", which)
            with pytest.raises(WorkflowNotFoundError, match="`nobody`"):
                await library.find("nobody")
            for version in (0, 3, -1, 2**80):
                with pytest.raises(WorkflowNotFoundError, match="versions 1 to 2"):
                    await library.set_alias("orders", "stable", version, 1)
            with pytest.raises(WorkflowNotFoundError, match="`nobody`"):
                await library.archive("nobody", 1)
            assert await library.versions("nobody") == []

    @scenario
    async def test_an_alias_cannot_be_taken_for_a_number(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            for alias in ("1", "v1", "V12", "", "-a", "a b", "ä", "a\n", "a@b", "a" * 129):
                with pytest.raises(InvalidAliasError):
                    await library.set_alias("orders", alias, 1, 1)
                with pytest.raises(InvalidAliasError):
                    await deploy(library, "b", alias=alias)
            assert await numbers(library) == [1]
            for alias in ("v", "v1a", "prod_eu-1", "A"):
                await library.set_alias("orders", alias, 1, 1)

    @scenario
    async def test_a_hidden_workflow_is_not_found_and_loses_nothing(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", alias="stable")
            assert await library.archive("orders", 2)
            assert not await library.archive("orders", 3)
            for which in (None, "1", "stable", "none"):
                with pytest.raises(WorkflowNotFoundError, match="removed"):
                    await library.find("orders", which)
            with pytest.raises(WorkflowNotFoundError, match="removed"):
                await library.set_alias("orders", "stable", 1, 4)
            assert await library.list() == []
            assert [each.hidden for each in await library.list(hidden=True)] == [True]
            assert await numbers(library) == [1]

    @scenario
    async def test_a_new_deploy_shows_a_hidden_workflow_again(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", alias="stable")
            await library.archive("orders", 2)
            again = await deploy(library, "a", at=3)
            assert (again.number, again.change) == (1, "moved")
            await library.archive("orders", 4)
            assert (await deploy(library, "b", at=5)).number == 2
            assert (await library.find("orders", "stable")).number == 1
            assert [each.hidden for each in await library.list()] == [False]

    @scenario
    async def test_so_does_moving_latest(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            await library.archive("orders", 2)
            assert (await library.set_alias("orders", "latest", 1, 3)).change == "moved"
            assert (await library.find("orders")).number == 1

    @scenario
    async def test_entries_sum_workflows_up(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            assert await library.list() == []
            await deploy(library, "a", "orders", at=1, alias="stable")
            await deploy(library, "b", "orders", at=2)
            await deploy(library, "a", "mails", at=3)
            await deploy(library, "b", "orders", at=4)
            assert await library.list() == [
                WorkflowEntry(
                    workflow="mails",
                    name="Orders a",
                    latest=1,
                    versions=1,
                    aliases={"latest": 1},
                    deployed_at=3,
                ),
                WorkflowEntry(
                    workflow="orders",
                    name="Orders b",
                    latest=2,
                    versions=2,
                    aliases={"latest": 2, "stable": 1},
                    deployed_at=4,
                ),
            ]

    @scenario
    async def test_many_versions(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await asyncio.gather(*(deploy(library, str(number)) for number in range(MANY)))
            assert await numbers(library) == list(range(1, MANY + 1))
            aliases = [f"a{number}x" for number in range(MANY)]
            await asyncio.gather(
                *(library.set_alias("orders", alias, number, 1) for number, alias in enumerate(aliases, 1))
            )
            assert (await library.find("orders", "a99x")).number == 100
            (entry,) = await library.list()
            assert (entry.versions, len(entry.aliases)) == (MANY, MANY + 1)

    @scenario
    async def test_everything_is_there_when_opened_again(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a", alias="stable")
            await deploy(library, "b")
            await deploy(library, "a", "mails")
            await library.archive("mails", 2)
            before = await library.versions("orders"), await library.list(hidden=True)
        async with self.make_library(folder) as (_, library):
            assert (await library.versions("orders"), await library.list(hidden=True)) == before
            assert (await deploy(library, "c")).number == 3

    @scenario
    async def test_what_was_answered_outlives_a_crash_whole(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            version = await deploy(library, "a", alias="stable")
            left = self.crashed(folder)
        async with self.make_library(left) as (journal, library):
            found = await library.find("orders", "stable")
            assert (found.number, found.aliases) == (1, ("latest", "stable"))
            assert await journal.definition(version.hash) is not None

    @scenario
    async def test_those_who_only_look_see_what_was_answered_and_change_nothing(self, folder: Path) -> None:
        async with self.make_library(folder) as (_, library):
            await deploy(library, "a")
            async with self.make_looker(folder) as looker:
                assert (await looker.find("orders")).number == 1
                await deploy(library, "b", alias="stable")
                assert (await looker.find("orders", "stable")).number == 2
                assert await looker.versions("orders") == await library.versions("orders")
                assert await looker.list() == await library.list()
                with pytest.raises(StoreUnavailableError):
                    await deploy(looker, "c")
