"""Workflow versions, aliases and triggers, with the webhook deliveries they have seen, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import msgspec

from rune.adapters.postgres.database import Database, DatabaseRefusedError, Row, query
from rune.adapters.postgres.expectations import missing_values
from rune.adapters.rows import alias_of, name_in, weights_in
from rune.core.json_decoder import JsonDecoder
from rune.ports.journal import Missing
from rune.ports.workflows import (
    LATEST,
    NOTHING,
    Alias,
    Change,
    Expected,
    Trigger,
    Version,
    VersionSource,
    WorkflowEntry,
    archived_error,
    check_alias,
    check_others,
    concurrent_change_error,
    number_of,
    path_taken_error,
    repeatable,
    shares_of,
    weighted_choice,
    workflow_not_found,
)

_MAX_VERSION = 2**31 - 1
_MAX_READ = 1_000  # definitions whose queues are read

_TRIGGER = msgspec.msgpack.Decoder(Trigger)
_PACK = msgspec.msgpack.Encoder()


class _QueuedNode(msgspec.Struct):
    queue: str | None = None


class _QueuedDefinition(msgspec.Struct):
    id: str
    nodes: list[_QueuedNode]


_QUEUED = JsonDecoder(_QueuedDefinition)


async def named_queues(database: Database) -> tuple[tuple[str, str], ...]:
    """Return the queues that nodes of current workflows name, each with a workflow."""
    found: dict[str, str] = {}
    for row in await database.fetch(query("definitions_with_queues"), _MAX_READ):
        definition = _QUEUED.decode(row["canonical"])
        for node in definition.nodes:
            if node.queue is not None:
                found.setdefault(node.queue, definition.id)
    return tuple(sorted(found.items()))


class PostgresWorkflows:
    """Versions and aliases. Deploys of one workflow are serialised by a lock, so version numbers have no gaps."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def deploy(
        self,
        definition: bytes,
        hash: str,
        workflow: str,
        at: int,
        *,
        alias: str | None = None,
        expected: Expected | None = None,
        source: VersionSource | None = None,
        principal: str | None = None,
        note: str = "",
        scopes: tuple[str, ...] = (),
    ) -> Version:
        if alias is not None:
            check_alias(alias)
        name = name_in(definition)
        kept = (None, None) if source is None else (source.media_type, source.data)
        values = (workflow, hash, definition, name, alias, at, principal, note, *kept, [*scopes])
        row = await self._change("deploy", expected, *values)
        if row["change"] == "changed":
            raise concurrent_change_error(f"workflow `{workflow}`", _tags(row))
        return await self._changed_version(workflow, row["number"], row["change"])

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
        shares = shares_of(alias, weights)
        named = (*shares,) if version is None else (version, *shares)
        if any(not 0 < each <= _MAX_VERSION for each in named):
            raise await self._not_found(workflow, alias, named)
        if shares:
            known = [] if version is not None else await self.aliases(workflow)
            for number in (version, *(each.number for each in known if each.name == alias)):
                if number is not None:
                    check_others(alias, number, shares)
        packed = msgspec.json.encode(shares).decode()
        row = await self._change("set_alias", expected, workflow, alias, version, at, packed)
        match row["answer"]:
            case "unknown":
                raise await self._not_found(workflow, alias, named)
            case "hidden":
                raise archived_error(workflow)
            case "changed":
                raise concurrent_change_error(f"alias `{alias}` of `{workflow}`", _tags(row))
            case change:
                return await self._changed_version(workflow, row["number"], change)

    async def _change(self, name: str, expected: Expected | None, *values: Any) -> Row:
        """Run a conditional change; the expected tags are its last parameter."""
        tags = None if expected is None else [*expected]
        if repeatable(expected):
            (row,) = await self._database.fetch(query(name), *values, tags)
            return row
        return await self._database.once(query(name), *values, tags)

    async def _not_found(self, workflow: str, alias: str, named: Sequence[int]) -> Exception:
        """Return the error for the first named version that does not exist, or for the alias if all do."""
        versions = await self.versions(workflow)
        known = {each.number for each in versions}
        return workflow_not_found(
            workflow, versions, next((each for each in named if each not in known), alias)
        )

    async def archive(self, workflow: str, at: int) -> bool:
        row = await self._database.once(query("archive"), workflow, at)
        if row is None:
            raise workflow_not_found(workflow, (), LATEST)
        return bool(row["hid"])

    async def find(self, workflow: str, which: str | None = None, *, by: str | None = None) -> Version:
        wanted = LATEST if which is None else which
        number = None if which is None else number_of(which)
        row = await self._database.find(
            query("versions"), workflow, number, wanted if number is None else None
        )
        if row is not None and not row["hidden"]:
            weights = weights_in(row["weights"]) if number is None and by is not None else {}
            other = weighted_choice(workflow, wanted, weights, by) if by is not None else None
            return _version(row) if other is None else await self.find(workflow, str(other))
        rows = await self._database.find_all(query("versions"), workflow, None, None)
        if rows and rows[0]["hidden"]:
            raise archived_error(workflow)
        raise workflow_not_found(workflow, [_version(each) for each in rows], wanted)

    async def aliases(self, workflow: str) -> list[Alias]:
        return [alias_of(row) for row in await self._database.find_all(query("aliases"), workflow, None)]

    async def versions(self, workflow: str) -> list[Version]:
        return [
            _version(row) for row in await self._database.find_all(query("versions"), workflow, None, None)
        ]

    async def source(self, workflow: str, number: int) -> VersionSource | None:
        if not 0 < number <= _MAX_VERSION:
            return None
        row = await self._database.find(query("version_source"), workflow, number)
        return None if row is None else VersionSource(row["data"], row["media_type"])

    async def list(self, *, hidden: bool = False) -> list[WorkflowEntry]:
        return [
            WorkflowEntry(
                workflow=row["id"],
                name=row["name"],
                latest=row["number"],
                versions=row["versions"],
                aliases=dict(zip(row["names"], row["numbers"], strict=True)),
                deployed_at=row["deployed_at"],
                hidden=row["hidden"],
            )
            for row in await self._database.fetch(query("workflows"), hidden)
        ]

    async def _changed_version(self, workflow: str, number: int, change: Change) -> Version:
        (row,) = await self._database.fetch(query("versions"), workflow, number, None)
        return msgspec.structs.replace(_version(row), change=change)


def _tags(row: Row) -> tuple[str, ...]:
    """Return the current tag that a failed change has found; none if the object does not exist."""
    return () if row["tag"] == NOTHING else (row["tag"],)


def _version(row: Row) -> Version:
    return Version(
        row["workflow"],
        row["number"],
        row["hash"],
        row["at"],
        tuple(row["aliases"]),
        principal=row["principal"],
        note=row["note"] or "",
        scopes=tuple(row["scopes"] or ()),
    )


class PostgresTriggers:
    """Triggers with optimistic locking: one statement compares and replaces the revision."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, workflow: str | None = None) -> Sequence[Trigger]:
        return _read(await self._database.find_all(query("triggers"), workflow))

    async def find(self, id: str) -> Trigger | None:
        return next(iter(_read(await self._database.find_all(query("trigger"), id))), None)

    async def at_path(self, path: str) -> Trigger | None:
        return next(iter(_read(await self._database.find_all(query("trigger_at_path"), path))), None)

    async def put(self, trigger: Trigger, missing: Missing | None = None) -> Trigger | None:
        stored = msgspec.structs.replace(trigger, revision=trigger.revision + 1)
        body = _PACK.encode(stored)
        statement: tuple[Any, ...]
        if trigger.revision:
            statement = (
                query("trigger_update"),
                stored.id,
                stored.path,
                stored.due,
                trigger.revision,
                body,
                *missing_values(missing),
            )
        else:
            statement = (
                query("trigger_insert"),
                stored.id,
                stored.workflow,
                stored.node,
                stored.path,
                stored.due,
                body,
                *missing_values(missing),
            )
        try:
            row = await self._database.once(*statement)
        except DatabaseRefusedError as error:
            if not isinstance(error.__cause__, asyncpg.UniqueViolationError):
                raise
            other = None if stored.path is None else await self.at_path(stored.path)
            raise path_taken_error(stored.path, None if other is None else other.workflow) from None
        return None if row is None else stored

    async def remove(self, trigger: Trigger) -> bool:
        row = await self._database.once(query("trigger_remove"), trigger.id, trigger.revision)
        return row is not None

    async def due(self, now: int, limit: int) -> Sequence[Trigger]:
        return _read(await self._database.fetch(query("triggers_due"), now, limit))

    async def next_due(self) -> int | None:
        (row,) = await self._database.fetch(query("triggers_next_due"))
        due: int | None = row["due"]
        return due

    async def remember_delivery(self, trigger: str, mark: str, delivery: str, until: int) -> str:
        await self._database.fetch(query("delivery_insert"), trigger, mark, delivery, until)
        (row,) = await self._database.fetch(query("delivery"), trigger, mark)
        return str(row["delivery"])

    async def forget_deliveries(self, now: int) -> int:
        (row,) = await self._database.fetch(query("deliveries_forget"), now)
        return int(row["dropped"])


def _read(rows: Sequence[Row]) -> Sequence[Trigger]:
    return [_TRIGGER.decode(row["body"]) for row in rows]
