"""The library keeps definitions under the names of their workflows: immutable versions, and aliases that move."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from rune.errors import RuneError
from rune.ids import fraction

LATEST = "latest"
"""The alias that every deploy moves."""

NOTHING, ANYTHING = "", "*"
Expected: TypeAlias = tuple[str, ...]
"""What the asker takes to be there, compared in the same act that changes it: tags, one of which it has to be.
`NOTHING`: nothing is there; `ANYTHING`: something is. The tag of a workflow is the hash of its latest version, that of
an alias its revision."""

Change = Literal["created", "moved", "none"]

_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")
_NUMBER = re.compile(r"[vV]?([0-9]{1,15})")


class WorkflowNotFoundError(RuneError):
    """No workflow of this name is stored, or none of this version."""

    code = "UNKNOWN_WORKFLOW"


class InvalidAliasError(RuneError):
    """An alias that could not be told from a version number, or not be written."""

    code = "BAD_ALIAS"


class InvalidWeightsError(RuneError):
    """Weights that spread nothing."""

    code = "BAD_WEIGHTS"


class ConcurrentChangeError(RuneError):
    """Somebody else was first: what is there is not what the asker expected."""

    code = "CHANGED"


class Version(msgspec.Struct, frozen=True):
    """One definition of a workflow. `at` is when it was first deployed, `aliases` are those that point at it now."""

    workflow: str
    number: int
    hash: str
    at: int
    aliases: tuple[str, ...] = ()
    change: Change = "none"  # what the act that answers this did: a new version, an alias that moved


class Alias(msgspec.Struct, frozen=True):
    """A name that points at a version. With `weights` so many percent of the starts get other versions; moving it, by
    whatever means, ends that. `revision` counts its changes."""

    name: str
    number: int
    revision: int = 1
    weights: dict[int, float] = {}


class WorkflowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow in a list. `name` is that of its latest version."""

    workflow: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: int
    hidden: bool = False


class WorkflowStore(Protocol):
    """Definitions by workflow and version. Numbers of a workflow begin at 1 and have no gaps."""

    async def deploy(
        self,
        definition: bytes,
        hash: str,
        workflow: str,
        at: int,
        *,
        alias: str | None = None,
        expected: Expected | None = None,
    ) -> Version:
        """Keep a definition as a new version, or find the version that has the same content. `latest` points at it
        afterwards, and so does `alias`, in the same act; a hidden workflow is shown again, and is nothing to whoever
        expects. Content that is the latest already was put there as expected, whoever did it; only who expects nothing
        is refused."""

    async def set_alias(
        self,
        workflow: str,
        alias: str,
        version: int | None,
        at: int,
        *,
        weights: Mapping[int, float] | None = None,
        expected: Expected | None = None,
    ) -> Version:
        """Let an alias point at a version, with these weights and no others; None: where it points already. Moving
        `latest` shows a hidden workflow again. An alias that is so already is so, whatever was expected."""

    async def archive(self, workflow: str, at: int) -> bool:
        """Take a workflow out of sight: it is not found any more, its versions stay. False if it was hidden."""

    async def find(self, workflow: str, which: str | None = None, *, by: str | None = None) -> Version:
        """The version of this number (`3`, `v3`) or alias; None: the latest. `by`: where the alias has weights, the
        version that these give to this name, which is the same one each time."""

    async def aliases(self, workflow: str) -> list[Alias]:
        """Every alias by name, of a hidden workflow too."""

    async def versions(self, workflow: str) -> list[Version]:
        """Every version, the oldest first, of a hidden workflow too."""

    async def list(self, *, hidden: bool = False) -> list[WorkflowEntry]:
        """The workflows by name; `hidden`: those out of sight too."""


def number_of(which: str) -> int | None:
    """The version number that is written here; None if it is none."""
    found = _NUMBER.fullmatch(which)
    return int(found[1]) if found else None


def check_alias(alias: str) -> None:
    """Refuse what is no alias."""
    if number_of(alias) is not None:
        raise InvalidAliasError(f"`{alias}` names a version by its number and cannot be an alias")
    if not _ALIAS.fullmatch(alias):
        raise InvalidAliasError(
            f"`{alias}` is no alias: a letter, then letters, digits, `_` and `-`, at most 128 in all"
        )


def check_weights(alias: str, weights: Mapping[int, float]) -> None:
    """Refuse weights that spread nothing."""
    if alias == LATEST and weights:
        raise InvalidWeightsError("`latest` is where the newest version is; weigh another alias")
    if any(not 0 < share <= 100 for share in weights.values()) or sum(weights.values()) > 100:
        raise InvalidWeightsError("weights are percent: each above 0, together at most 100")


def shares_of(alias: str, weights: Mapping[int, float] | None) -> dict[int, float]:
    """The weights that an alias shall have, by version; what is no alias or spreads nothing is refused."""
    check_alias(alias)
    shares = dict(sorted((weights or {}).items()))
    check_weights(alias, shares)
    return shares


def weighted_choice(workflow: str, alias: str, weights: Mapping[int, float], by: str) -> int | None:
    """The version that weights give to a name; None: the one that the alias points at."""
    place = fraction(workflow, alias, by) * 100
    for number, share in sorted(weights.items()):
        if place < share:
            return number
        place -= share
    return None


def matches(now: str, expected: Expected | None, *, already: bool) -> bool:
    """Whether what is there may be changed. `already`: it is what it shall be, as whoever asks again finds it."""
    if expected is None or now in expected or (now != NOTHING and ANYTHING in expected):
        return True
    return already and repeatable(expected)


def repeatable(expected: Expected | None) -> bool:
    """Whether asking again answers as the first time did: not where something has to be new."""
    return expected is None or any(tag != NOTHING for tag in expected)


def choose(workflow: str, versions: Sequence[Version], which: str | None = None) -> Version:
    """The version that is meant, among those of a workflow."""
    wanted = LATEST if which is None else which
    number = number_of(wanted)
    for each in versions:
        if each.number == number if number is not None else wanted in each.aliases:
            return each
    raise workflow_not_found(workflow, versions, wanted)


def workflow_not_found(workflow: str, versions: Sequence[Version], which: str | int) -> WorkflowNotFoundError:
    """Why nothing was found, and what there is instead."""
    if not versions:
        return WorkflowNotFoundError(f"no workflow `{workflow}` was deployed")
    last = versions[-1].number
    numbers = "version 1" if last == 1 else f"versions 1 to {last}"
    aliases = sorted((name, each.number) for each in versions for name in each.aliases)
    pointing = ", ".join(f"{name} ({number})" for name, number in aliases)
    return WorkflowNotFoundError(
        f"`{workflow}` has no version `{which}`: there are {numbers}, and {pointing}"
    )


def archived_error(workflow: str) -> WorkflowNotFoundError:
    """Why a hidden workflow is not found."""
    return WorkflowNotFoundError(f"workflow `{workflow}` was removed; a new deploy brings it back")


def concurrent_change_error(what: str, now: str) -> ConcurrentChangeError:
    """Why something is left as it is."""
    is_now = "there is none" if now == NOTHING else f'it is "{now}" now'
    return ConcurrentChangeError(f"{what} is not what was expected: {is_now}")
