"""Routes for dead letters: executions that the engine gave up on."""

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
    "GET",
    "/dead-letters",
    "List dead letters, newest first",
    permission="view",
    query=Page,
    response=LetterPage,
)
async def list_letters(call: RequestContext) -> Response:
    """Only open dead letters. For a key limited to some workflows a page may hold fewer than `limit`; follow `next`."""
    query: Page = call.query
    found = await call.server.reader.dead_letters(query.limit + 1, query.cursor)
    await check_cursor(call.server.reader, query.cursor, found)
    page = found[: query.limit]
    sees = call.principal.sees
    following = page[-1].id if len(found) > query.limit else None
    return Reply(
        LetterPage(dead_letters=[letter_view(each) for each in page if sees(each.workflow)], next=following)
    )


@dead_letters(
    "POST",
    "/dead-letters/{letter}/requeue",
    "Requeue a dead letter",
    permission="run",
    response=Started,
    status=202,
    responses={409: "The execution has nothing to run again.", 429: "A start limit is exceeded."},
)
async def requeue(call: RequestContext) -> Response:
    """Starts a new execution that keeps the results of nodes that succeeded."""
    return accepted_reply(await call.server.services.dead_letters.requeue(call.path["letter"]))


@dead_letters("DELETE", "/dead-letters/{letter}", "Discard a dead letter", permission="run", status=204)
async def drop(call: RequestContext) -> Response:
    """The execution itself does not change."""
    if not await call.server.services.dead_letters.discard(call.path["letter"]):
        raise dead_letter_not_found(call.path["letter"])
    return no_content()
