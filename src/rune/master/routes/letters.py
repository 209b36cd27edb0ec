"""Dead letters: executions that the engine gave up on."""

from __future__ import annotations

from starlette.responses import Response

from rune.errors import RuneError
from rune.master.operation import Call, Resource
from rune.master.paging import Page
from rune.master.reply import Reply, no_content
from rune.master.routes.starts import accepted_reply
from rune.master.views import LetterPage, Started, letter_view

letters = Resource("dead letters")


class UnknownLetter(RuneError):
    """No dead letter has this id."""

    code = "UNKNOWN_DEAD_LETTER"


@letters("GET", "/dead-letters", "List dead letters, newest first", query=Page, answer=LetterPage)
async def list_letters(call: Call) -> Response:
    """Those that nobody has settled."""
    query: Page = call.query
    found = await call.master.reader.dead_letters(query.limit + 1, query.cursor)
    page = found[: query.limit]
    following = page[-1].id if len(found) > query.limit else None
    return Reply(LetterPage(dead_letters=[letter_view(each) for each in page], next=following))


@letters(
    "POST",
    "/dead-letters/{letter}/requeue",
    "Try again what the engine gave up on",
    need="run",
    answer=Started,
    status=202,
    also={409: "There is nothing to run again."},
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
        raise UnknownLetter(f"`{call.path['letter']}` is no dead letter")
    return no_content()
