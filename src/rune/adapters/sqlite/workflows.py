"""Workflow definitions, versions, aliases and triggers in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rune.adapters.rows import alias_of, name_in, scopes_of, scopes_text
from rune.adapters.sqlite.database import Database, WriteFunction
from rune.adapters.sqlite.expectations import insert_missing
from rune.ports.journal import Missing
from rune.ports.workflows import (
    LATEST,
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
    matches,
    number_of,
    path_taken_error,
    shares_of,
    weighted_choice,
    workflow_not_found,
)

MAX_CACHED_VERSIONS = 1_000
_ALIASES = "(SELECT group_concat(name, ' ') FROM alias WHERE workflow = v.workflow AND number = v.number)"
_WITH_SOURCES = 6
"""The schema version from which on versions have sources. A reader may find a file that no owner has migrated yet."""
_WITH_SCOPES = 11
"""The schema version from which on versions have scopes."""
_UPSERT_SOURCE = (
    "INSERT INTO version_source VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " note = CASE excluded.note WHEN '' THEN note ELSE excluded.note END,"
    " media_type = coalesce(excluded.media_type, media_type), data = coalesce(excluded.data, data),"
    " scopes = excluded.scopes"
)
_BY_NUMBER = "JOIN workflow w ON w.id = v.workflow WHERE v.workflow = ? AND v.number = ?"
_BY_ALIAS = (
    "JOIN workflow w ON w.id = v.workflow JOIN alias a ON a.workflow = v.workflow AND a.number = v.number"
    " WHERE v.workflow = ? AND a.name = ?"
)
_UPSERT_ALIAS = (
    "INSERT INTO alias VALUES (?, ?, ?, ?, 1, ?)"
    " ON CONFLICT DO UPDATE SET number = excluded.number, at = excluded.at, revision = revision + 1,"
    " weights = excluded.weights WHERE number <> excluded.number OR weights <> excluded.weights"
)
_NO_WEIGHTS = "{}"

_TRIGGER_DECODER = msgspec.msgpack.Decoder(Trigger)
_ENCODER = msgspec.msgpack.Encoder()
_SELECT_BODY = "SELECT body FROM workflow_trigger"


class SqliteWorkflows:
    """Implements the workflow store. A single thread writes, so numbering versions needs no lock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # The owner process is the only writer, so its cached lookups stay valid until its next write.
        self._owned = database.opened > 0
        self._cache: dict[tuple[str, str], tuple[Version, dict[int, float]]] = {}

    async def _write(self, work: WriteFunction) -> Any:
        """Submit a write and clear the cache afterwards, even if the caller is cancelled: the write still happens."""
        write = self._database.submit(work)
        write.add_done_callback(lambda _: self._cache.clear())
        return await asyncio.shield(write)

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

        def work(db: sqlite3.Connection) -> Version:
            now = _tags(db, workflow)
            wanted = {hash} if source is None else {hash, source.tag}
            if not matches(now, expected, already=wanted.issubset(now)):
                raise concurrent_change_error(f"workflow `{workflow}`", now)
            db.execute("INSERT OR IGNORE INTO definition VALUES (?, ?)", (hash, definition))
            number, created = _find_or_insert_version(db, workflow, hash, name, at)
            moved = [
                _move_alias(db, workflow, each, number, at) for each in (LATEST, alias) if each is not None
            ]
            kept = (None, None) if source is None else (source.media_type, source.data)
            reach = scopes_text(scopes if created else _added(db, workflow, number, scopes))
            db.execute(_UPSERT_SOURCE, (workflow, number, principal, note, *kept, reach))
            restored = _record_deploy(db, workflow, at)
            return _result(db, workflow, number, "created" if created else _change(restored or any(moved)))

        version: Version = await self._write(work)
        return version

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

        def work(db: sqlite3.Connection) -> Version:
            known = _alias(db, workflow, alias)
            number = known.number if version is None and known is not None else version
            if number is None:
                raise workflow_not_found(workflow, _versions(db, workflow), alias)
            for each in (number, *shares):
                if each.bit_length() > 63 or _version(db, workflow, each) is None:
                    raise workflow_not_found(workflow, _versions(db, workflow), each)
            check_others(alias, number, shares)
            if alias != LATEST and _is_archived(db, workflow):
                raise archived_error(workflow)
            now = () if known is None else (str(known.revision),)
            already = known is not None and (known.number, known.weights) == (number, shares)
            if not matches(now, expected, already=already):
                raise concurrent_change_error(f"alias `{alias}` of `{workflow}`", now)
            moved = _move_alias(db, workflow, alias, number, at, shares)
            restored = alias == LATEST and _unarchive(db, workflow)
            return _result(db, workflow, number, _change(moved or restored))

        found: Version = await self._write(work)
        return found

    async def archive(self, workflow: str, at: int) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            changed = db.execute(
                "UPDATE workflow SET hidden_at = ? WHERE id = ? AND hidden_at IS NULL", (at, workflow)
            ).rowcount
            if not changed and not _is_archived(db, workflow):
                raise workflow_not_found(workflow, (), LATEST)
            return changed == 1

        archived: bool = await self._write(work)
        return archived

    async def find(self, workflow: str, which: str | None = None, *, by: str | None = None) -> Version:
        wanted = LATEST if which is None else which
        version, weights = self._cache.get((workflow, wanted)) or self._look_up(workflow, wanted)
        if weights and by is not None:
            number = weighted_choice(workflow, wanted, weights, by)
            return version if number is None else await self.find(workflow, str(number))
        return version

    def _look_up(self, workflow: str, wanted: str) -> tuple[Version, dict[int, float]]:
        db = self._database.reader
        number = number_of(wanted)
        if number is not None:
            row = db.execute(
                f"{_select(db)} {_BY_NUMBER} AND w.hidden_at IS NULL", (workflow, number)
            ).fetchone()
        else:
            row = db.execute(
                f"{_select(db)} {_BY_ALIAS} AND w.hidden_at IS NULL", (workflow, wanted)
            ).fetchone()
        if row is not None:
            alias = None if number is not None else _alias(db, workflow, wanted)
            found = _version_of(row), {} if alias is None else alias.weights
            if self._owned and len(self._cache) < MAX_CACHED_VERSIONS:
                self._cache[(workflow, wanted)] = found
            return found
        if _is_archived(db, workflow):
            raise archived_error(workflow)
        raise workflow_not_found(workflow, _versions(db, workflow), wanted)

    async def aliases(self, workflow: str) -> list[Alias]:
        rows = self._database.reader.execute(
            "SELECT name, number, revision, weights FROM alias WHERE workflow = ? ORDER BY name", (workflow,)
        )
        return [alias_of(row) for row in rows]

    async def versions(self, workflow: str) -> list[Version]:
        return _versions(self._database.reader, workflow)

    async def source(self, workflow: str, number: int) -> VersionSource | None:
        db = self._database.reader
        if db.execute("PRAGMA user_version").fetchone()[0] < _WITH_SOURCES:
            return None
        row = db.execute(
            "SELECT data, media_type FROM version_source WHERE workflow = ? AND number = ?",
            (workflow, number),
        ).fetchone()
        return VersionSource(*row) if row is not None and row[0] is not None else None

    async def list(self, *, hidden: bool = False) -> list[WorkflowEntry]:
        rows = self._database.reader.execute(
            "SELECT w.id, v.name, v.number, (SELECT max(number) FROM version WHERE workflow = w.id),"
            " (SELECT group_concat(name || ' ' || number, ' ') FROM alias WHERE workflow = w.id),"
            " w.deployed_at, w.hidden_at IS NOT NULL FROM workflow w"
            " JOIN alias a ON a.workflow = w.id AND a.name = ?"
            " JOIN version v ON v.workflow = w.id AND v.number = a.number"
            " WHERE ? OR w.hidden_at IS NULL ORDER BY w.id",
            (LATEST, hidden),
        )
        return [
            WorkflowEntry(
                workflow=workflow,
                name=name,
                latest=latest,
                versions=count,
                aliases=_parse_aliases(aliases),
                deployed_at=deployed_at,
                hidden=bool(archived),
            )
            for workflow, name, latest, count, aliases, deployed_at, archived in rows
        ]


def _select(db: sqlite3.Connection) -> str:
    """Return the beginning of the statements that read versions."""
    (schema,) = db.execute("PRAGMA user_version").fetchone()
    columns, sources = "NULL, '', NULL", ""
    if schema >= _WITH_SOURCES:
        columns = f"s.principal, s.note, {'s.scopes' if schema >= _WITH_SCOPES else 'NULL'}"
        sources = " LEFT JOIN version_source s ON s.workflow = v.workflow AND s.number = v.number"
    return f"SELECT v.workflow, v.number, v.hash, v.at, {_ALIASES}, {columns} FROM version v{sources}"


def _find_or_insert_version(
    db: sqlite3.Connection, workflow: str, hash: str, name: str, at: int
) -> tuple[int, bool]:
    """Return the number of the version with this content, and whether it was inserted."""
    known = db.execute(
        "SELECT number FROM version WHERE workflow = ? AND hash = ?", (workflow, hash)
    ).fetchone()
    if known is not None:
        return known[0], False
    (number,) = db.execute(
        "SELECT coalesce(max(number), 0) + 1 FROM version WHERE workflow = ?", (workflow,)
    ).fetchone()
    db.execute("INSERT INTO version VALUES (?, ?, ?, ?, ?)", (workflow, number, hash, name, at))
    return number, True


def _added(db: sqlite3.Connection, workflow: str, number: int, scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes of an existing version together with others. None are all workflows."""
    known = db.execute(
        "SELECT scopes FROM version_source WHERE workflow = ? AND number = ?", (workflow, number)
    ).fetchone()
    before = () if known is None else scopes_of(known[0])
    return tuple(sorted({*before, *scopes})) if before and scopes else ()


def _move_alias(
    db: sqlite3.Connection,
    workflow: str,
    alias: str,
    number: int,
    at: int,
    weights: Mapping[int, float] | None = None,
) -> bool:
    shares = msgspec.json.encode(weights).decode() if weights else _NO_WEIGHTS
    return db.execute(_UPSERT_ALIAS, (workflow, alias, number, at, shares)).rowcount == 1


def _alias(db: sqlite3.Connection, workflow: str, name: str) -> Alias | None:
    row = db.execute(
        "SELECT name, number, revision, weights FROM alias WHERE workflow = ? AND name = ?", (workflow, name)
    ).fetchone()
    return alias_of(row) if row else None


def _tags(db: sqlite3.Connection, workflow: str) -> tuple[str, ...]:
    """Return the tags of the latest version, that of its text first; none if the workflow is unknown or archived."""
    row = db.execute(
        "SELECT v.hash, s.data, s.media_type FROM workflow w"
        " JOIN alias a ON a.workflow = w.id AND a.name = ?"
        " JOIN version v ON v.workflow = w.id AND v.number = a.number"
        " LEFT JOIN version_source s ON s.workflow = v.workflow AND s.number = v.number"
        " WHERE w.id = ? AND w.hidden_at IS NULL",
        (LATEST, workflow),
    ).fetchone()
    if row is None:
        return ()
    hash, data, media_type = row
    return (hash,) if data is None else (VersionSource(data, media_type).tag, hash)


def _record_deploy(db: sqlite3.Connection, workflow: str, at: int) -> bool:
    """Record the time of a deploy and return whether it has restored an archived workflow."""
    was = _is_archived(db, workflow)
    db.execute(
        "INSERT INTO workflow VALUES (?, ?, NULL)"
        " ON CONFLICT DO UPDATE SET deployed_at = excluded.deployed_at, hidden_at = NULL",
        (workflow, at),
    )
    return was


def _unarchive(db: sqlite3.Connection, workflow: str) -> bool:
    return (
        db.execute(
            "UPDATE workflow SET hidden_at = NULL WHERE id = ? AND hidden_at IS NOT NULL", (workflow,)
        ).rowcount
        == 1
    )


def _is_archived(db: sqlite3.Connection, workflow: str) -> bool:
    row = db.execute("SELECT hidden_at IS NOT NULL FROM workflow WHERE id = ?", (workflow,)).fetchone()
    return row is not None and bool(row[0])


def _version(db: sqlite3.Connection, workflow: str, number: int) -> Version | None:
    row = db.execute(f"{_select(db)} WHERE v.workflow = ? AND v.number = ?", (workflow, number)).fetchone()
    return _version_of(row) if row else None


def _versions(db: sqlite3.Connection, workflow: str) -> list[Version]:
    return [
        _version_of(row)
        for row in db.execute(f"{_select(db)} WHERE v.workflow = ? ORDER BY v.number", (workflow,))
    ]


def _result(db: sqlite3.Connection, workflow: str, number: int, change: Change) -> Version:
    found = _version(db, workflow, number)
    assert found is not None
    return msgspec.structs.replace(found, change=change)


def _change(moved: bool) -> Change:
    return "moved" if moved else "none"


def _version_of(row: tuple[Any, ...]) -> Version:
    workflow, number, hash, at, aliases, principal, note, scopes = row
    return Version(
        workflow,
        number,
        hash,
        at,
        tuple(sorted(aliases.split())) if aliases else (),
        principal=principal,
        note=note or "",
        scopes=scopes_of(scopes),
    )


def _parse_aliases(aliases: str) -> dict[str, int]:
    """Parse a text such as `latest 3 stable 2`. No alias contains a space."""
    words = aliases.split()
    return dict(sorted(zip(words[::2], map(int, words[1::2]), strict=True)))


class SqliteTriggers:
    """Implements the trigger store. A single thread writes, so revisions are compared and replaced atomically."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, workflow: str | None = None) -> Sequence[Trigger]:
        if workflow is None:
            return self._select(f"{_SELECT_BODY} ORDER BY workflow, node")
        return self._select(f"{_SELECT_BODY} WHERE workflow = ? ORDER BY node", workflow)

    async def find(self, id: str) -> Trigger | None:
        return next(iter(self._select(f"{_SELECT_BODY} WHERE id = ?", id)), None)

    async def at_path(self, path: str) -> Trigger | None:
        return next(iter(self._select(f"{_SELECT_BODY} WHERE path = ?", path)), None)

    async def put(self, trigger: Trigger, missing: Missing | None = None) -> Trigger | None:
        stored = msgspec.structs.replace(trigger, revision=trigger.revision + 1)

        def work(db: sqlite3.Connection) -> Trigger | None:
            known = db.execute("SELECT revision FROM workflow_trigger WHERE id = ?", (stored.id,)).fetchone()
            if (known[0] if known else 0) != trigger.revision:
                return None
            other = db.execute(
                "SELECT workflow FROM workflow_trigger WHERE path = ? AND id <> ?", (stored.path, stored.id)
            ).fetchone()
            if other is not None:
                raise path_taken_error(stored.path, other[0])
            db.execute(
                "INSERT OR REPLACE INTO workflow_trigger VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    stored.id,
                    stored.workflow,
                    stored.node,
                    stored.path,
                    stored.due,
                    stored.revision,
                    _ENCODER.encode(stored),
                ),
            )
            insert_missing(db, missing)
            return stored

        result: Trigger | None = await self._database.submit(work)
        return result

    async def remove(self, trigger: Trigger) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            return (
                db.execute(
                    "DELETE FROM workflow_trigger WHERE id = ? AND revision = ?",
                    (trigger.id, trigger.revision),
                ).rowcount
                == 1
            )

        removed: bool = await self._database.submit(work)
        return removed

    async def due(self, now: int, limit: int) -> Sequence[Trigger]:
        return self._select(f"{_SELECT_BODY} WHERE due <= ? ORDER BY due LIMIT ?", now, limit)

    async def next_due(self) -> int | None:
        row = self._database.reader.execute("SELECT min(due) FROM workflow_trigger WHERE due IS NOT NULL")
        found: int | None = row.fetchone()[0]
        return found

    async def remember_delivery(self, trigger: str, mark: str, delivery: str, until: int) -> str:
        def work(db: sqlite3.Connection) -> str:
            db.execute(
                "INSERT OR IGNORE INTO signed_delivery VALUES (?, ?, ?, ?)", (trigger, mark, delivery, until)
            )
            (first,) = db.execute(
                "SELECT delivery FROM signed_delivery WHERE trigger_id = ? AND mark = ?", (trigger, mark)
            ).fetchone()
            return str(first)

        first: str = await self._database.submit(work)
        return first

    async def forget_deliveries(self, now: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            return db.execute("DELETE FROM signed_delivery WHERE until < ?", (now,)).rowcount

        dropped: int = await self._database.submit(work)
        return dropped

    def _select(self, statement: str, *values: Any) -> Sequence[Trigger]:
        return [_TRIGGER_DECODER.decode(row[0]) for row in self._database.reader.execute(statement, values)]
