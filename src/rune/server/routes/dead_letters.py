"""Dead letters: executions that the engine gave up on."""

from __future__ import annotations

from starlette.responses import Response

from rune.server.auth import unknown_letter
from rune.server.endpoints import Call, Resource
from rune.server.requests import Page, check_cursor
from rune.server.responses import Reply, no_content
from rune.server.routes.executions import accepted_reply
from rune.server.schemas import LetterPage, Started, letter_view

letters = Resource("dead letters")


@letters(
    "GET", "/dead-letters", "List dead letters, newest first", need="view", query=Page, answer=LetterPage
)
async def list_letters(call: Call) -> Response:
    """Those that nobody has settled. A key with a scope may get short pages; `next` still leads on."""
    query: Page = call.query
    found = await call.master.reader.dead_letters(query.limit + 1, query.cursor)
    await check_cursor(call.master.reader, query.cursor, found)
    page = found[: query.limit]
    sees = call.principal.sees
    following = page[-1].id if len(found) > query.limit else None
    return Reply(
        LetterPage(dead_letters=[letter_view(each) for each in page if sees(each.workflow)], next=following)
    )


@letters(
    "POST",
    "/dead-letters/{letter}/requeue",
    "Try again what the engine gave up on",
    need="run",
    answer=Started,
    status=202,
    also={409: "There is nothing to run again.", 429: "A limit on starts refuses it."},
)
async def requeue(call: Call) -> Response:
    """In a new execution that keeps what succeeded."""
    return accepted_reply(await call.master.desk.requeue(call.path["letter"]))


@letters(
    "DELETE", "/dead-letters/{letter}", "Settle a dead letter without trying again", need="run", status=204
)
async def drop(call: Call) -> Response:
    """Its execution stays as it ended."""
    if not await call.master.desk.drop(call.path["letter"]):
        raise unknown_letter(call.path["letter"])
    return no_content()
