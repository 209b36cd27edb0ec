"""Dead letters: executions and messages of the queue."""

from __future__ import annotations

from rune.api.base import View, absent


class DeadLetterView(View, frozen=True, kw_only=True):
    """An execution that the engine gave up on."""

    id: str
    execution_id: str
    workflow_id: str
    node_id: str | None = absent(None)
    code: str
    message: str
    at: str


class DeadLetterPage(View, frozen=True, kw_only=True):
    """A page of dead letters, newest first."""

    dead_letters: list[DeadLetterView]
    next: str | None = absent(None)


class DeadMessageView(View, frozen=True, kw_only=True):
    """A message of the queue that no worker could process. `execution_id`, `workflow_id` and `node_id` are null if its
    body does not name them, `at` if the queue did not record the time."""

    id: str
    execution_id: str | None = absent(None)
    workflow_id: str | None = absent(None)
    node_id: str | None = absent(None)
    code: str
    message: str
    at: str | None = absent(None)
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


class DiscardedMessage(View, frozen=True, kw_only=True):
    """A dead message that was discarded; `count` is the number of identical ones. An older server sends nothing."""

    id: str = absent("")
    count: int = absent(1)
