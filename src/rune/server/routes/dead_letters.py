"""Dead letters: executions that the engine gave up on."""

from __future__ import annotations

from starlette.responses import Response

from rune.server.auth import dead_letter_not_found
from rune.server.endpoints import RequestContext, Router
from rune.server.requests import Page, check_cursor
from rune.server.responses import Reply, no_content
from rune.server.routes.executions import accepted_reply
from rune.server.schemas import LetterPage, Started, letter_view

dead_letters = Router("dead letters")


@dead_letters(
    "GET", "/dead-letters", "List dead letters, newest first", need="view", query=Page, answer=LetterPage
)
async def list_letters(call: RequestContext) -> Response:
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


@dead_letters(
    "POST",
    "/dead-letters/{letter}/requeue",
    "Try again what the engine gave up on",
    need="run",
    answer=Started,
    status=202,
    also={409: "There is nothing to run again.", 429: "A limit on starts refuses it."},
)
async def requeue(call: RequestContext) -> Response:
    """In a new execution that keeps what succeeded."""
    return accepted_reply(await call.master.services.dead_letters.requeue(call.path["letter"]))


@dead_letters(
    "DELETE", "/dead-letters/{letter}", "Settle a dead letter without trying again", need="run", status=204
)
async def drop(call: RequestContext) -> Response:
    """Its execution stays as it ended."""
    if not await call.master.services.dead_letters.discard(call.path["letter"]):
        raise dead_letter_not_found(call.path["letter"])
    return no_content()
