"""The library in PostgreSQL."""

from __future__ import annotations

import msgspec

from rune.adapters.postgres.database import Database, Row
from rune.adapters.postgres.sql import query
from rune.ports.library import LATEST, Change, Entry, Version, check_alias, number_of, out_of_sight, unknown

_LAST = 2**31 - 1


class _Named(msgspec.Struct):
    """As much of a definition as a list shows."""

    name: str = ""


class PostgresLibrary:
    """Versions and aliases. Whoever deploys a workflow does so alone, so a version number is simply the next one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def deploy(
        self, definition: bytes, hash: str, workflow: str, at: int, *, alias: str | None = None
    ) -> Version:
        if alias is not None:
            check_alias(alias)
        name = msgspec.json.decode(definition, type=_Named).name
        (row,) = await self._database.fetch(query("deploy"), workflow, hash, definition, name, alias, at)
        return await self._answer(workflow, row["number"], row["change"])

    async def point(self, workflow: str, alias: str, version: int, at: int) -> Version:
        check_alias(alias)
        if not 0 < version <= _LAST:
            raise unknown(workflow, await self.versions(workflow), version)
        (row,) = await self._database.fetch(query("point"), workflow, alias, version, at)
        match row["answer"]:
            case "unknown":
                raise unknown(workflow, await self.versions(workflow), version)
            case "hidden":
                raise out_of_sight(workflow)
            case change:
                return await self._answer(workflow, version, change)

    async def hide(self, workflow: str, at: int) -> bool:
        row = await self._database.once(query("hide"), workflow, at)
        if row is None:
            raise unknown(workflow, (), LATEST)
        return bool(row["hid"])

    async def find(self, workflow: str, which: str | None = None) -> Version:
        wanted = LATEST if which is None else which
        number = number_of(wanted)
        row = await self._database.find(
            query("versions"), workflow, number, wanted if number is None else None
        )
        if row is not None and not row["hidden"]:
            return _version(row)
        rows = await self._database.look(query("versions"), workflow, None, None)
        if rows and rows[0]["hidden"]:
            raise out_of_sight(workflow)
        raise unknown(workflow, [_version(each) for each in rows], wanted)

    async def versions(self, workflow: str) -> list[Version]:
        return [_version(row) for row in await self._database.look(query("versions"), workflow, None, None)]

    async def entries(self, *, hidden: bool = False) -> list[Entry]:
        return [
            Entry(
                workflow=row["id"],
                name=row["name"],
                latest=row["number"],
                versions=row["versions"],
                aliases=dict(zip(row["names"], row["numbers"], strict=True)),
                deployed_at=row["deployed_at"],
                hidden=row["hidden"],
            )
            for row in await self._database.fetch(query("entries"), hidden)
        ]

    async def _answer(self, workflow: str, number: int, change: Change) -> Version:
        (row,) = await self._database.fetch(query("versions"), workflow, number, None)
        return msgspec.structs.replace(_version(row), change=change)


def _version(row: Row) -> Version:
    return Version(row["workflow"], row["number"], row["hash"], row["at"], tuple(row["aliases"]))
