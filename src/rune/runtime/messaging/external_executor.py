"""Hands executions over to another engine, which runs whole workflows and reads their starts from the broker."""

from __future__ import annotations

import hashlib

import msgspec

from rune.codec.messages import MAX_FULL_BYTES, MessageTooLargeError, NodeExecutionMessage, encode_message
from rune.core.definition.model import canonical
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.clock import Clock
from rune.ports.journal import FORMAT, ExecutionRecord
from rune.ports.outbox import EventPublisher


class ExternalExecutorError(RuneError):
    """The execution runs in another engine, so this process cannot follow it to its end."""

    code = "RUNS_ELSEWHERE"


class ExternalExecutor:
    """Runs the executions of definitions whose settings have `executor: legacy`."""

    def __init__(self, publisher: EventPublisher, clock: Clock) -> None:
        self._publisher = publisher
        self._clock = clock

    def runs(self, plan: Plan) -> bool:
        """Return whether executions of this plan run in the other engine."""
        return plan.definition.settings.executor == "legacy"

    async def start(
        self, plan: Plan, input: bytes, execution: str, *, key: str | None, priority: int | None
    ) -> ExecutionRecord:
        """Hand an execution over; the broker has stored it when this returns. It is not in the journal."""
        if key is not None:
            # The other engine knows only the id of an execution, so the id is derived from the idempotency key.
            seed = f"{plan.definition.id}\x1f{key}".encode()
            execution = "k" + hashlib.blake2b(seed, digest_size=15).hexdigest()
        await self._publisher.hand_over(_start_message(plan, input, execution, priority))
        return ExecutionRecord(
            id=execution,
            workflow=plan.definition.id,
            hash=plan.hash,
            at=self._clock.now(),
            input=input,
            key=key,
            priority=plan.definition.settings.priority if priority is None else priority,
            format=FORMAT,
        )


def _start_message(plan: Plan, input: bytes, execution: str, priority: int | None) -> bytes:
    """Encode the start of an execution for an engine without access to our stores."""
    entries = [node for each in sorted(plan.triggers) for node in plan.graph.successors(each)]
    message = NodeExecutionMessage(
        workflow_id=plan.definition.id,
        execution_id=execution,
        current_node=plan.ids[(entries or list(plan.entries))[0]],
        definition=msgspec.Raw(canonical(plan.definition)),
        context=msgspec.Raw(b'{"$trigger":' + input + b"}"),
        priority=priority,
    )
    body = encode_message(message)
    if len(body) > MAX_FULL_BYTES:
        raise MessageTooLargeError(f"the start of {plan.definition.id}", len(body), MAX_FULL_BYTES)
    return body
