"""The log: who changed what."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from rune.master.operation import Call, Resource
from rune.master.paging import Page
from rune.master.problems import ApiError
from rune.master.reply import Reply
from rune.master.views import View
from rune.ports.log import Entry, Wanted
from rune.runtime.history import iso

entries = Resource("log")

Text = Annotated[str, Meta(min_length=1, max_length=300)]


class LogQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries are wanted. `action` may be its first word: `workflow` or `workflow.deploy`."""

    actor: Text | None = None
    action: Text | None = None
    target: Text | None = None


class EntryView(View, frozen=True, kw_only=True):
    """Somebody wanted something to be changed. `outcome` is `asked`; what was refused has a second entry, with the code
    of the refusal."""

    number: int
    at: str
    actor: str
    action: str
    target: str
    details: dict[str, str]
    outcome: str


class EntryPage(View, frozen=True, kw_only=True):
    """Entries, newest first."""

    entries: list[EntryView]
    next: str | None


def entry_view(entry: Entry) -> EntryView:
    """An entry as it is told."""
    return EntryView(
        number=entry.number,
        at=iso(entry.at) or "",
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        details=entry.details,
        outcome=entry.outcome,
    )


@entries("GET", "/log", "Who changed what, newest first", need="admin", query=LogQuery, answer=EntryPage)
async def list_entries(call: Call) -> Response:
    """Entries are never changed and never removed, and hold no values."""
    query: LogQuery = call.query
    cursor = query.cursor
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise ApiError(f"`{cursor[:60]}` is no cursor of this list", code="BAD_CURSOR")
    wanted = Wanted(actor=query.actor, action=query.action, target=query.target)
    before = None if cursor is None else int(cursor)
    found = await call.master.engine.backend.log.read(wanted, before=before, limit=query.limit + 1)
    page = found[: query.limit]
    following = str(page[-1].number) if len(found) > query.limit else None
    return Reply(EntryPage(entries=[entry_view(each) for each in page], next=following))
