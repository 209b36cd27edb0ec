"""Routes for dead letters: executions that the engine gave up on."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from rune.server.auth import dead_letter_not_found, requires
from rune.server.parameters import LetterId
from rune.server.responses import Reply, documented, no_content
from rune.server.routes.executions import accepted_reply
from rune.server.routing import Caller, Page, Server, check_cursor, resource
from rune.server.schemas import LetterPage, Started, letter_view

dead_letters = resource("dead letters")


@dead_letters.get(
    "/dead-letters",
    summary="List dead letters, newest first",
    dependencies=[requires("view")],
    response_model=LetterPage,
)
async def list_letters(
    query: Annotated[Page, Query()],
    server: Server,
    caller: Caller,
) -> Response:
    """Only open dead letters. For a key limited to some workflows a page may hold fewer than `limit`; follow `next`."""
    found = await server.reader.dead_letters(query.limit + 1, query.cursor)
    await check_cursor(server.reader, query.cursor, found)
    page = found[: query.limit]
    sees = caller.sees
    following = page[-1].id if len(found) > query.limit else None
    return Reply(
        LetterPage(dead_letters=[letter_view(each) for each in page if sees(each.workflow)], next=following)
    )


@dead_letters.post(
    "/dead-letters/{letter}/requeue",
    summary="Requeue a dead letter",
    dependencies=[requires("run")],
    response_model=Started,
    status_code=202,
    responses=documented({409: "The execution has nothing to run again.", 429: "A start limit is exceeded."}),
)
async def requeue(letter: LetterId, server: Server) -> Response:
    """Starts a new execution that keeps the results of nodes that succeeded."""
    return accepted_reply(await server.services.dead_letters.requeue(letter))


@dead_letters.delete(
    "/dead-letters/{letter}",
    summary="Discard a dead letter",
    dependencies=[requires("run")],
    status_code=204,
    response_class=Response,
)
async def drop(letter: LetterId, server: Server) -> Response:
    """The execution itself does not change."""
    if not await server.services.dead_letters.discard(letter):
        raise dead_letter_not_found(letter)
    return no_content()
