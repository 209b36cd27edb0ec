"""The library keeps definitions under the names of their workflows: immutable versions, and aliases that move."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from rune.errors import RuneError

LATEST = "latest"
"""The alias that every deploy moves."""

Change = Literal["created", "moved", "none"]

_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")
_NUMBER = re.compile(r"[vV]?([0-9]{1,15})")


class UnknownWorkflow(RuneError):
    """No workflow of this name is stored, or none of this version."""

    code = "UNKNOWN_WORKFLOW"


class BadAlias(RuneError):
    """An alias that could not be told from a version number, or not be written."""

    code = "BAD_ALIAS"


class Version(msgspec.Struct, frozen=True):
    """One definition of a workflow. `at` is when it was first deployed, `aliases` are those that point at it now."""

    workflow: str
    number: int
    hash: str
    at: int
    aliases: tuple[str, ...] = ()
    change: Change = "none"  # what the act that answers this did: a new version, an alias that moved


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow in a list. `name` is that of its latest version."""

    workflow: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: int
    hidden: bool = False


class Library(Protocol):
    """Definitions by workflow and version. Numbers of a workflow begin at 1 and have no gaps."""

    async def deploy(
        self, definition: bytes, hash: str, workflow: str, at: int, *, alias: str | None = None
    ) -> Version:
        """Keep a definition as a new version, or find the version that has the same content. `latest` points at it
        afterwards, and so does `alias`, in the same act; a hidden workflow is shown again."""

    async def point(self, workflow: str, alias: str, version: int, at: int) -> Version:
        """Let an alias point at a version. Moving `latest` shows a hidden workflow again."""

    async def hide(self, workflow: str, at: int) -> bool:
        """Take a workflow out of sight: it is not found any more, its versions stay. False if it was hidden."""

    async def find(self, workflow: str, which: str | None = None) -> Version:
        """The version of this number (`3`, `v3`) or alias; None: the latest."""

    async def versions(self, workflow: str) -> list[Version]:
        """Every version, the oldest first, of a hidden workflow too."""

    async def entries(self, *, hidden: bool = False) -> list[Entry]:
        """The workflows by name; `hidden`: those out of sight too."""


def number_of(which: str) -> int | None:
    """The version number that is written here; None if it is none."""
    found = _NUMBER.fullmatch(which)
    return int(found[1]) if found else None


def check_alias(alias: str) -> None:
    """Refuse what is no alias."""
    if number_of(alias) is not None:
        raise BadAlias(f"`{alias}` names a version by its number and cannot be an alias")
    if not _ALIAS.fullmatch(alias):
        raise BadAlias(
            f"`{alias}` is no alias: a letter, then letters, digits, `_` and `-`, at most 128 in all"
        )


def choose(workflow: str, versions: Sequence[Version], which: str | None = None) -> Version:
    """The version that is meant, among those of a workflow."""
    wanted = LATEST if which is None else which
    number = number_of(wanted)
    for each in versions:
        if each.number == number if number is not None else wanted in each.aliases:
            return each
    raise unknown(workflow, versions, wanted)


def unknown(workflow: str, versions: Sequence[Version], which: str | int) -> UnknownWorkflow:
    """Why nothing was found, and what there is instead."""
    if not versions:
        return UnknownWorkflow(f"no workflow `{workflow}` was deployed")
    last = versions[-1].number
    numbers = "version 1" if last == 1 else f"versions 1 to {last}"
    aliases = sorted((name, each.number) for each in versions for name in each.aliases)
    pointing = ", ".join(f"{name} ({number})" for name, number in aliases)
    return UnknownWorkflow(f"`{workflow}` has no version `{which}`: there are {numbers}, and {pointing}")


def out_of_sight(workflow: str) -> UnknownWorkflow:
    """Why a hidden workflow is not found."""
    return UnknownWorkflow(f"workflow `{workflow}` was removed; a new deploy brings it back")
