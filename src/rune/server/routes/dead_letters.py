"""Routes for dead letters (executions that the engine gave up on) and dead messages (messages of the queue that no
worker could process)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from rune.api.dead_letters import (
    DeadLetterPage,
    DeadMessageDetail,
    DeadMessageList,
    DiscardedMessage,
    RequeuedMessage,
)
from rune.api.executions import Started
from rune.core.permissions import Principal
from rune.runtime.services.dead_letters import DeadMessage
from rune.server.auth import dead_letter_not_found
from rune.server.context import ServerContext
from rune.server.resource import Resource
from rune.server.responses import Accepted, NoContent, Reply
from rune.server.routes.executions.executions import accepted_reply
from rune.server.routing import Caller, DeadLetterId, Limit, MessageId, Page, QueryModel, Server, check_cursor
from rune.server.schemas.dead_letters import dead_message_detail, dead_message_view, letter_view

dead_letters = Resource("dead letters")


class MessageQuery(QueryModel):
    """How many dead messages are listed."""

    limit: Limit = 50


@dead_letters.get("/dead-letters", requires="view")
async def list_dead_letters(
    query: Annotated[Page, Query()],
    server: Server,
    caller: Caller,
) -> Reply[DeadLetterPage]:
    """List dead letters, newest first.

    Only open dead letters. For a key limited to some workflows a page may hold fewer than `limit`; follow `next`."""
    found = await server.reader.dead_letters(query.limit + 1, query.cursor)
    await check_cursor(server.reader, query.cursor, found)
    page = found[: query.limit]
    sees = caller.sees
    following = page[-1].id if len(found) > query.limit else None
    return Reply(
        DeadLetterPage(
            dead_letters=[letter_view(each) for each in page if sees(each.workflow)], next=following
        )
    )


@dead_letters.post(
    "/dead-letters/{letter}/requeue",
    requires="run",
    responses={409: "The execution has nothing to run again.", 429: "A start limit is exceeded."},
)
async def requeue_dead_letter(letter: DeadLetterId, server: Server) -> Accepted[Started]:
    """Requeue a dead letter.

    Starts a new execution that keeps the results of nodes that succeeded."""
    return accepted_reply(await server.services.dead_letters.requeue(letter))


@dead_letters.delete("/dead-letters/{letter}", requires="run")
async def discard_dead_letter(letter: DeadLetterId, server: Server) -> NoContent:
    """Discard a dead letter.

    The execution itself does not change."""
    if not await server.services.dead_letters.discard(letter):
        raise dead_letter_not_found(letter)
    return NoContent()


@dead_letters.get("/dead-messages", requires="view")
async def list_dead_messages(
    query: Annotated[MessageQuery, Query()], server: Server, caller: Caller
) -> Reply[DeadMessageList]:
    """List dead messages, oldest first.

    Messages of the queue of a cluster that no worker could process, without their bodies. A key limited to some
    workflows sees those that name one of them."""
    found = [each for each in await server.services.dead_messages.list() if _sees(caller, each)]
    return Reply(DeadMessageList(dead_messages=[dead_message_view(each) for each in found[: query.limit]]))


@dead_letters.get("/dead-messages/{message}", requires="view")
async def get_dead_message(message: MessageId, server: Server, caller: Caller) -> Reply[DeadMessageDetail]:
    """Get a dead message with its body.

    Bytes of the body that are not UTF-8 are replaced."""
    return Reply(dead_message_detail(await _find_message(server, caller, message)))


@dead_letters.post("/dead-messages/{message}/requeue", requires="run")
async def requeue_dead_message(message: MessageId, server: Server, caller: Caller) -> Reply[RequeuedMessage]:
    """Send a dead message again.

    Sends it to the queue that it came from. Identical messages have one id and are sent together."""
    found = await _find_message(server, caller, message)
    count = await server.services.dead_messages.requeue(message)
    return Reply(RequeuedMessage(id=message, queue=found.queue, count=count))


@dead_letters.delete("/dead-messages/{message}", requires="run")
async def discard_dead_message(message: MessageId, server: Server, caller: Caller) -> Reply[DiscardedMessage]:
    """Discard a dead message.

    Identical messages have one id and are discarded together."""
    await _find_message(server, caller, message)
    count = await server.services.dead_messages.discard(message)
    if not count:
        raise dead_letter_not_found(message)
    return Reply(DiscardedMessage(id=message, count=count))


def _sees(caller: Principal, message: DeadMessage) -> bool:
    return not caller.scopes or (message.workflow is not None and caller.sees(message.workflow))


async def _find_message(server: ServerContext, caller: Principal, id: str) -> DeadMessage:
    found = await server.services.dead_messages.find(id)
    if found is None or not _sees(caller, found):
        raise dead_letter_not_found(id)
    return found
