"""Dead letters as the API shows them: executions and messages of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rune.ports.journal import DeadLetter
from rune.runtime.services.dead_letters import DeadMessage

if TYPE_CHECKING:
    pass
from rune.server.schemas.base import View, moment


class DeadLetterView(View, frozen=True, kw_only=True):
    """An execution that the engine gave up on."""

    id: str
    execution_id: str
    workflow_id: str
    node_id: str | None
    code: str
    message: str
    at: str


class DeadLetterPage(View, frozen=True, kw_only=True):
    """A page of dead letters, newest first."""

    dead_letters: list[DeadLetterView]
    next: str | None


class DeadMessageView(View, frozen=True, kw_only=True):
    """A message of the queue that no worker could process. `execution_id`, `workflow_id` and `node_id` are null if its
    body does not name them, `at` if the queue did not record the time."""

    id: str
    execution_id: str | None
    workflow_id: str | None
    node_id: str | None
    code: str
    message: str
    at: str | None
    queue: str


class DeadMessageDetail(DeadMessageView, frozen=True, kw_only=True):
    """A dead message with its body."""

    body: str


class DeadMessageList(View, frozen=True, kw_only=True):
    """Dead messages, oldest first."""

    dead_messages: list[DeadMessageView]


class RequeuedMessage(View, frozen=True, kw_only=True):
    """A dead message that was sent to its queue again; `count` is the number of identical ones."""

    id: str
    queue: str
    count: int


def letter_view(letter: DeadLetter) -> DeadLetterView:
    return DeadLetterView(
        id=letter.id,
        execution_id=letter.execution,
        workflow_id=letter.workflow,
        node_id=letter.node or None,
        code=letter.code,
        message=letter.message,
        at=moment(letter.at),
    )


def dead_message_view(each: DeadMessage) -> DeadMessageView:
    return DeadMessageView(**_dead_message(each))


def dead_message_detail(each: DeadMessage) -> DeadMessageDetail:
    return DeadMessageDetail(**_dead_message(each), body=each.body.decode(errors="replace"))


def _dead_message(each: DeadMessage) -> dict[str, Any]:
    return {
        "id": each.id,
        "execution_id": each.execution,
        "workflow_id": each.workflow,
        "node_id": each.node,
        "code": each.code,
        "message": each.reason,
        "at": None if each.at is None else moment(each.at),
        "queue": each.queue,
    }
