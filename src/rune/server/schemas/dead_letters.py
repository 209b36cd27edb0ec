"""Dead letters as the API shows them: executions and messages of the queue."""

from __future__ import annotations

from typing import Any

from rune.api.dead_letters import (
    DeadLetterView,
    DeadMessageDetail,
    DeadMessageView,
)
from rune.ports.clock import moment
from rune.ports.journal import DeadLetter
from rune.runtime.services.dead_letters import DeadMessage


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
