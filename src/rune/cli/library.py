"""What the commands about stored definitions share: the way to the desk, names of versions, versions as documents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rune.cli import reach
from rune.cli.problems import INTERRUPTED, refuse_error
from rune.cli.reading import read
from rune.errors import RuneError
from rune.ports.library import LATEST, BadWeights, Version, check_weights, choose, unknown
from rune.runtime.history import iso
from rune.runtime.reader import Reader
from rune.settings import Settings

if TYPE_CHECKING:
    from rune.runtime.desk import Desk

HINTS = {"UNKNOWN_WORKFLOW": "`rune workflows` shows what there is"}

T = TypeVar("T")
Look = Callable[[Reader], Awaitable[int]]


def refusing(work: Callable[[], int], *, as_json: bool) -> int:
    """Do something and answer the exit code, of a refusal too."""
    try:
        return work()
    except RuneError as error:
        return refuse_error(error, as_json=as_json, hint=HINTS.get(error.code, ""))
    except KeyboardInterrupt:
        return INTERRUPTED


def ask(settings: Settings, wish: Callable[[Desk], Awaitable[T]]) -> T:
    """Have something written by whoever owns the file."""

    async def asked() -> T:
        async with reach.desk(settings) as desk:
            return await wish(desk)

    return asyncio.run(asked())


def known(settings: Settings, workflow: str, which: str | None) -> Version:
    """Look before the file is taken, or made: a name that nobody knows leaves no traces."""
    if not reach.exists(settings):
        raise unknown(workflow, (), LATEST)
    try:
        return choose(workflow, asyncio.run(_versions(settings, workflow)), which)
    except RuneError as error:
        if error.code != "EMPTY_STORE":
            raise
        raise unknown(workflow, (), LATEST) from None


async def _versions(settings: Settings, workflow: str) -> list[Version]:
    async with reach.reader(settings) as reader:
        return await reader.library.versions(workflow)


def look(workflow: str, work: Look, *, as_json: bool) -> int:
    """Look at a stored workflow; answers the exit code."""

    async def looked(reader: Reader, _: Settings) -> int:
        try:
            return await work(reader)
        except RuneError as error:
            if error.code not in HINTS:
                raise
            return refuse_error(error, as_json=as_json, hint=HINTS[error.code])

    def nothing() -> int:
        missing = unknown(workflow, (), LATEST)
        return refuse_error(missing, as_json=as_json, hint=HINTS[missing.code])

    return read(looked, as_json=as_json, without_file=nothing)


def reference(given: str) -> tuple[str, str | None]:
    """`orders` or `orders@stable`: the workflow, and which of its versions."""
    workflow, at, which = given.partition("@")
    return workflow, which if at else None


def shares_of(given: tuple[str, ...], alias: str, number: Callable[[str], int]) -> dict[int, float]:
    """`4=10` and `latest=5` as percent by version."""
    found: dict[int, float] = {}
    for each in given:
        which, _, share = each.partition("=")
        try:
            percent = float(share.removesuffix("%"))
        except ValueError:
            raise BadWeights(f"`{each}` says no share; write for example {which or '4'}=10") from None
        if number(which) in found:
            raise BadWeights(f"`{each}`: this version was named before")
        found[number(which)] = percent
    check_weights(alias, found)
    return dict(sorted(found.items()))


async def definition_of(reader: Reader, version: Version) -> dict[str, Any]:
    """The definition as plain data in canonical form."""
    data = await reader.definition(version.hash)
    if data is None:
        raise RuneError(
            f"the definition {version.hash} of {label(version)} is missing", code="UNKNOWN_DEFINITION"
        )
    found: dict[str, Any] = msgspec.json.decode(data)
    return found


def label(version: Version) -> str:
    """`orders@3`."""
    return f"{version.workflow}@{version.number}"


def version_document(version: Version) -> dict[str, Any]:
    """A version as documents show it."""
    return {
        "version": version.number,
        "hash": version.hash,
        "deployed_at": iso(version.at),
        "aliases": list(version.aliases),
    }
