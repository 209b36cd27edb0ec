"""Contract of workflow stores: immutable versions, numbers without gaps, atomic alias moves."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rune.core.definition.model import Definition, Node, canonical, content_hash
from rune.ports.journal import Journal, StoreUnavailableError
from rune.ports.workflows import (
    NOTHING,
    ConcurrentChangeError,
    InvalidAliasError,
    Version,
    VersionSource,
    WorkflowEntry,
    WorkflowNotFoundError,
    WorkflowStore,
)
from tests.support.async_test import async_test

DEPLOYERS = 50
MANY = 300


def definition(content: str, workflow: str = "orders") -> Definition:
    """Return a definition of the workflow with this content."""
    return Definition(
        id=workflow,
        name=f"Orders {content}",
        nodes=(Node(id="say", type="log", parameters={"message": content}),),
    )


async def deploy(
    workflows: WorkflowStore, content: str, workflow: str = "orders", at: int = 1, alias: str | None = None
) -> Version:
    """Deploy a definition with this content."""
    made = definition(content, workflow)
    return await workflows.deploy(canonical(made), content_hash(made), workflow, at, alias=alias)


async def numbers(workflows: WorkflowStore, workflow: str = "orders") -> list[int]:
    """Return the version numbers."""
    return [each.number for each in await workflows.versions(workflow)]


class WorkflowContract:
    """Subclasses open a workflow store and its journal in a folder; opened again there, they have the same content.
    `make_reader` opens the store read-only while the owner has it open."""

    def make_workflows(self, folder: Path) -> AbstractAsyncContextManager[tuple[Journal, WorkflowStore]]:
        raise NotImplementedError

    def make_reader(self, folder: Path) -> AbstractAsyncContextManager[WorkflowStore]:
        raise NotImplementedError

    def make_crash_copy(self, folder: Path) -> Path:
        """Copy what a crash at this moment would leave on disk to a new folder; the store stays open."""
        raise NotImplementedError

    @async_test
    async def test_version_collects_scopes_of_its_deployers(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):

            async def scopes(content: str, *given: str, note: str = "") -> tuple[str, ...]:
                made = definition(content)
                deployed = await workflows.deploy(
                    canonical(made), content_hash(made), "orders", 1, scopes=given, note=note
                )
                found = await workflows.find("orders", str(deployed.number))
                assert found.scopes == deployed.scopes
                return found.scopes

            assert await scopes("a", "shop-*", "orders") == ("orders", "shop-*")
            assert await scopes("a", "billing", "orders", note="again") == ("billing", "orders", "shop-*")
            assert await scopes("b", "billing") == ("billing",)
            assert await scopes("b") == ()
            assert await scopes("b", "billing") == ()
            assert await scopes("c") == ()
            assert await scopes("c", "billing") == ()
        async with self.make_workflows(tmp_path) as (_, workflows):
            stored = [each.scopes for each in await workflows.versions("orders")]
            assert stored == [("billing", "orders", "shop-*"), (), ()]

    @async_test
    async def test_deploy_creates_version_and_moves_latest(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            first = await deploy(workflows, "a", at=10)
            second = await deploy(workflows, "b", at=20)
            assert first == Version(
                "orders", 1, content_hash(definition("a")), 10, ("latest",), change="created"
            )
            assert second == Version(
                "orders", 2, content_hash(definition("b")), 20, ("latest",), change="created"
            )
            assert [(each.number, each.aliases) for each in await workflows.versions("orders")] == [
                (1, ()),
                (2, ("latest",)),
            ]

    @async_test
    async def test_deploy_of_same_content_returns_same_version(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", at=10)
            again = await deploy(workflows, "a", at=20)
            assert (again.number, again.at, again.change) == (1, 10, "none")
            assert await numbers(workflows) == [1]

    @async_test
    async def test_redeploy_of_earlier_content_moves_latest_to_old_number(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            await deploy(workflows, "b")
            back = await deploy(workflows, "a", at=30)
            assert (back.number, back.aliases, back.change) == (1, ("latest",), "moved")
            assert (await workflows.find("orders")).number == 1
            assert (await deploy(workflows, "c")).number == 3

    @async_test
    async def test_deploy_stores_definition(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (journal, workflows):
            version = await deploy(workflows, "a")
            assert await journal.definition(version.hash) == canonical(definition("a"))

    @async_test
    async def test_version_keeps_source_principal_and_note(self, tmp_path: Path) -> None:
        made = definition("a")
        text = VersionSource(b"id: orders  # \xc3\xa4\x00\n", "application/yaml")
        async with self.make_workflows(tmp_path) as (_, workflows):
            version = await workflows.deploy(
                canonical(made),
                content_hash(made),
                "orders",
                1,
                source=text,
                principal="key:ann",
                note="first",
            )
            assert (version.principal, version.note) == ("key:ann", "first")
            await deploy(workflows, "b")
        async with self.make_workflows(tmp_path) as (_, workflows):
            assert await workflows.source("orders", 1) == text
            assert [(each.principal, each.note) for each in await workflows.versions("orders")] == [
                ("key:ann", "first"),
                (None, ""),
            ]
            assert (await workflows.find("orders", "1")).principal == "key:ann"
            assert await workflows.source("orders", 2) is None
            assert await workflows.source("orders", 3) is None
            assert await workflows.source("mails", 2**40) is None

    @async_test
    async def test_redeploy_of_same_content_keeps_newest_source(self, tmp_path: Path) -> None:
        made = definition("a")
        content = (canonical(made), content_hash(made), "orders")
        old, new = VersionSource(b"{}", "application/json"), VersionSource(b"moved", "application/yaml")
        async with self.make_workflows(tmp_path) as (_, workflows):
            await workflows.deploy(*content, 1, source=old, principal="key:ann", note="first")
            again = await workflows.deploy(*content, 2, source=new, principal="key:bob")
            assert (again.number, again.change) == (1, "none")
            assert (again.at, again.principal, again.note) == (1, "key:ann", "first")
            assert await workflows.source("orders", 1) == new
            renamed = await workflows.deploy(*content, 3, principal="key:bob", note="second")
            assert (renamed.principal, renamed.note) == ("key:ann", "second")
            assert await workflows.source("orders", 1) == new

    @async_test
    async def test_rejected_deploy_keeps_source(self, tmp_path: Path) -> None:
        made = definition("a")
        content = (canonical(made), content_hash(made), "orders")
        async with self.make_workflows(tmp_path) as (_, workflows):
            await workflows.deploy(*content, 1, source=VersionSource(b"one", "application/yaml"))
            with pytest.raises(ConcurrentChangeError):
                await workflows.deploy(
                    *content, 2, source=VersionSource(b"two", "application/yaml"), expected=(NOTHING,)
                )
            source = await workflows.source("orders", 1)
            assert source is not None
            assert source.data == b"one"

    @async_test
    async def test_expected_tag_is_that_of_text_or_of_content(self, tmp_path: Path) -> None:
        made = definition("a")
        content = (canonical(made), content_hash(made), "orders")
        one, two, three = (VersionSource(each, "application/yaml") for each in (b"one", b"two", b"three"))
        async with self.make_workflows(tmp_path) as (_, workflows):
            await workflows.deploy(*content, 1, source=one)
            await workflows.deploy(*content, 2, source=two, expected=(one.tag,))
            for stale in ((one.tag,), ("0" * 64, one.tag), ()):
                with pytest.raises(ConcurrentChangeError, match=two.tag):
                    await workflows.deploy(*content, 3, source=three, expected=stale)
            assert await workflows.source("orders", 1) == two
            await workflows.deploy(*content, 4, source=three, expected=("0" * 64, content_hash(made)))
            assert await workflows.source("orders", 1) == three
            other = definition("b")
            with pytest.raises(ConcurrentChangeError):
                await workflows.deploy(
                    canonical(other), content_hash(other), "orders", 5, expected=(two.tag,)
                )
            await workflows.deploy(canonical(other), content_hash(other), "orders", 5, expected=(three.tag,))
            with pytest.raises(ConcurrentChangeError, match=content_hash(other)):
                await workflows.deploy(*content, 6, source=one, expected=(three.tag,))

    @async_test
    async def test_repeated_deploy_is_in_effect_only_with_same_text(self, tmp_path: Path) -> None:
        made = definition("a")
        content = (canonical(made), content_hash(made), "orders")
        one, two = (VersionSource(each, "application/yaml") for each in (b"one", b"two"))
        async with self.make_workflows(tmp_path) as (_, workflows):
            await workflows.deploy(*content, 1)
            with pytest.raises(ConcurrentChangeError):
                await workflows.deploy(*content, 2, source=one, expected=(two.tag,))
            await workflows.deploy(*content, 3, source=one, expected=(content_hash(made),))
            for repeated in (one, None):
                again = await workflows.deploy(*content, 4, source=repeated, expected=("0" * 64,))
                assert (again.number, again.change) == (1, "none")
            with pytest.raises(ConcurrentChangeError):
                await workflows.deploy(*content, 5, source=two, expected=("0" * 64,))
            assert await workflows.source("orders", 1) == one

    @async_test
    async def test_one_of_concurrent_deploys_that_expect_same_text_succeeds(self, tmp_path: Path) -> None:
        made = definition("a")
        content = (canonical(made), content_hash(made), "orders")
        start = VersionSource(b"start", "application/yaml")
        texts = [VersionSource(f"text {number}".encode(), "application/yaml") for number in range(DEPLOYERS)]
        async with self.make_workflows(tmp_path) as (_, workflows):
            await workflows.deploy(*content, 1, source=start)
            answers = await asyncio.gather(
                *(workflows.deploy(*content, 2, source=each, expected=(start.tag,)) for each in texts),
                return_exceptions=True,
            )
            (stored,) = [
                text for text, answer in zip(texts, answers, strict=True) if isinstance(answer, Version)
            ]
            assert await workflows.source("orders", 1) == stored
            lost = [each for each in answers if isinstance(each, ConcurrentChangeError)]
            assert len(lost) == DEPLOYERS - 1

    @async_test
    async def test_workflows_have_independent_numbers_and_aliases(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", "orders", alias="stable")
            await deploy(workflows, "b", "orders")
            assert (await deploy(workflows, "a", "mails")).number == 1
            with pytest.raises(WorkflowNotFoundError):
                await workflows.find("mails", "stable")

    @async_test
    async def test_concurrent_deploys_of_same_content_create_one_version(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            answers = await asyncio.gather(*(deploy(workflows, "a") for _ in range(DEPLOYERS)))
            assert {each.number for each in answers} == {1}
            assert [each.change for each in answers].count("created") == 1
            assert await numbers(workflows) == [1]

    @async_test
    async def test_concurrent_deploys_get_numbers_without_gaps(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            contents = [f"{number // 2}" for number in range(DEPLOYERS)]
            answers = await asyncio.gather(*(deploy(workflows, each) for each in contents))
            given: dict[str, set[int]] = {}
            for content, answer in zip(contents, answers, strict=True):
                given.setdefault(content, set()).add(answer.number)
            assert all(len(each) == 1 for each in given.values())
            assert sorted(number for (number,) in given.values()) == list(range(1, DEPLOYERS // 2 + 1))
            assert (await workflows.find("orders")).number in set().union(*given.values())

    @async_test
    async def test_rejected_write_does_not_affect_concurrent_writes(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            answers = await asyncio.gather(
                deploy(workflows, "a"),
                workflows.set_alias("unknown", "stable", 1, 2),
                deploy(workflows, "b"),
                return_exceptions=True,
            )
            assert isinstance(answers[1], WorkflowNotFoundError)
            assert await numbers(workflows) == [1, 2]

    @async_test
    async def test_set_alias_moves_alias(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            await deploy(workflows, "b")
            stable = await workflows.set_alias("orders", "stable", 2, 3)
            assert (stable.number, stable.aliases, stable.change) == (2, ("latest", "stable"), "moved")
            moved = await workflows.set_alias("orders", "stable", 1, 4)
            assert (moved.number, moved.aliases) == (1, ("stable",))
            assert (await workflows.set_alias("orders", "stable", 1, 5)).change == "none"
            assert (await workflows.find("orders", "stable")).number == 1

    @async_test
    async def test_deploy_moves_only_given_alias_and_latest(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", alias="stable")
            await deploy(workflows, "b", alias="canary")
            versions = await workflows.versions("orders")
            assert [each.aliases for each in versions] == [("stable",), ("canary", "latest")]
            assert (await deploy(workflows, "b", alias="stable")).change == "moved"

    @async_test
    async def test_latest_can_move_to_older_version(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            await deploy(workflows, "b")
            await workflows.set_alias("orders", "latest", 1, 3)
            assert (await workflows.find("orders")).number == 1
            assert await numbers(workflows) == [1, 2]

    @async_test
    async def test_find_accepts_number_alias_or_none(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", alias="stable")
            await deploy(workflows, "b")
            found = {
                which: (await workflows.find("orders", which)).number
                for which in (None, "latest", "2", "v2", "1", "v1", "stable")
            }
            assert found == {None: 2, "latest": 2, "2": 2, "v2": 2, "1": 1, "v1": 1, "stable": 1}

    @async_test
    async def test_unknown_version_error_lists_existing_versions(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", alias="stable")
            await deploy(workflows, "b")
            for which in ("3", "0", "v9", "99999999999999", "9" * 40, "prod", "", "STABLE"):
                with pytest.raises(
                    WorkflowNotFoundError, match=r"versions 1 to 2, and latest \(2\), stable \(1\)"
                ):
                    await workflows.find("orders", which)
            with pytest.raises(WorkflowNotFoundError, match="`unknown`"):
                await workflows.find("unknown")
            for version in (0, 3, -1, 2**80):
                with pytest.raises(WorkflowNotFoundError, match="versions 1 to 2"):
                    await workflows.set_alias("orders", "stable", version, 1)
            with pytest.raises(WorkflowNotFoundError, match="`unknown`"):
                await workflows.archive("unknown", 1)
            assert await workflows.versions("unknown") == []

    @async_test
    async def test_invalid_alias_names_are_rejected(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            for alias in ("1", "v1", "V12", "", "-a", "a b", "ä", "a\n", "a@b", "a" * 129):
                with pytest.raises(InvalidAliasError):
                    await workflows.set_alias("orders", alias, 1, 1)
                with pytest.raises(InvalidAliasError):
                    await deploy(workflows, "b", alias=alias)
            assert await numbers(workflows) == [1]
            for alias in ("v", "v1a", "prod_eu-1", "A"):
                await workflows.set_alias("orders", alias, 1, 1)

    @async_test
    async def test_archived_workflow_is_not_found_but_keeps_versions(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", alias="stable")
            assert await workflows.archive("orders", 2)
            assert not await workflows.archive("orders", 3)
            for which in (None, "1", "stable", "none"):
                with pytest.raises(WorkflowNotFoundError, match="removed"):
                    await workflows.find("orders", which)
            with pytest.raises(WorkflowNotFoundError, match="removed"):
                await workflows.set_alias("orders", "stable", 1, 4)
            assert await workflows.list() == []
            assert [each.hidden for each in await workflows.list(hidden=True)] == [True]
            assert await numbers(workflows) == [1]

    @async_test
    async def test_deploy_restores_archived_workflow(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", alias="stable")
            await workflows.archive("orders", 2)
            again = await deploy(workflows, "a", at=3)
            assert (again.number, again.change) == (1, "moved")
            await workflows.archive("orders", 4)
            assert (await deploy(workflows, "b", at=5)).number == 2
            assert (await workflows.find("orders", "stable")).number == 1
            assert [each.hidden for each in await workflows.list()] == [False]

    @async_test
    async def test_moving_latest_restores_archived_workflow(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            await workflows.archive("orders", 2)
            assert (await workflows.set_alias("orders", "latest", 1, 3)).change == "moved"
            assert (await workflows.find("orders")).number == 1

    @async_test
    async def test_list_returns_one_entry_per_workflow(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            assert await workflows.list() == []
            await deploy(workflows, "a", "orders", at=1, alias="stable")
            await deploy(workflows, "b", "orders", at=2)
            await deploy(workflows, "a", "mails", at=3)
            await deploy(workflows, "b", "orders", at=4)
            assert await workflows.list() == [
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

    @async_test
    async def test_many_versions_and_aliases(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await asyncio.gather(*(deploy(workflows, str(number)) for number in range(MANY)))
            assert await numbers(workflows) == list(range(1, MANY + 1))
            aliases = [f"a{number}x" for number in range(MANY)]
            await asyncio.gather(
                *(workflows.set_alias("orders", alias, number, 1) for number, alias in enumerate(aliases, 1))
            )
            assert (await workflows.find("orders", "a99x")).number == 100
            (entry,) = await workflows.list()
            assert (entry.versions, len(entry.aliases)) == (MANY, MANY + 1)

    @async_test
    async def test_versions_survive_reopen(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a", alias="stable")
            await deploy(workflows, "b")
            await deploy(workflows, "a", "mails")
            await workflows.archive("mails", 2)
            before = await workflows.versions("orders"), await workflows.list(hidden=True)
        async with self.make_workflows(tmp_path) as (_, workflows):
            assert (await workflows.versions("orders"), await workflows.list(hidden=True)) == before
            assert (await deploy(workflows, "c")).number == 3

    @async_test
    async def test_acknowledged_deploy_survives_crash(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            version = await deploy(workflows, "a", alias="stable")
            crash_copy = self.make_crash_copy(tmp_path)
        async with self.make_workflows(crash_copy) as (journal, workflows):
            found = await workflows.find("orders", "stable")
            assert (found.number, found.aliases) == (1, ("latest", "stable"))
            assert await journal.definition(version.hash) is not None

    @async_test
    async def test_reader_sees_acknowledged_versions_and_cannot_write(self, tmp_path: Path) -> None:
        async with self.make_workflows(tmp_path) as (_, workflows):
            await deploy(workflows, "a")
            async with self.make_reader(tmp_path) as reader:
                assert (await reader.find("orders")).number == 1
                await deploy(workflows, "b", alias="stable")
                assert (await reader.find("orders", "stable")).number == 2
                assert await reader.versions("orders") == await workflows.versions("orders")
                assert await reader.list() == await workflows.list()
                with pytest.raises(StoreUnavailableError):
                    await deploy(reader, "c")
