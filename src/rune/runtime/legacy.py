"""Executions that another engine runs: their definition says so, and their start is handed over to it."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from rune.core.definition import canonical
from rune.core.plan import Plan
from rune.errors import RuneError
from rune.ports.herald import Herald
from rune.ports.journal import FORMAT, Accepted
from rune.runtime.launcher import PLAIN, Launcher, Options, new_execution_id
from rune.wire.rabbit import MOST_IN_FULL, MessageTooLarge, NodeExecutionMessage, encode_message


class RunsElsewhere(RuneError):
    """Somebody wants to see an execution through that is not run here."""

    code = "RUNS_ELSEWHERE"


class LegacyLauncher(Launcher):
    """Hands over what is to be run elsewhere, once it knows where to; opens everything else."""

    _elsewhere: Herald | None = None

    def hands_over(self, herald: Herald) -> None:
        """Who takes what is to be run elsewhere."""
        self._elsewhere = herald

    def leaves(self, plan: Plan) -> bool:
        """Whether an execution of this plan is run elsewhere."""
        return self._elsewhere is not None and plan.definition.settings.executor == "legacy"

    async def start(self, plan: Plan, input: bytes, options: Options = PLAIN, **about: Any) -> Accepted:
        """A child is run here whatever its definition says: its parent waits for it."""
        if self._elsewhere is None or not self.leaves(plan) or about.get("parent") is not None:
            return await super().start(plan, input, options, **about)
        key = options.key
        execution = about.get("execution") or new_execution_id()
        if key is not None:  # the same key must be the same execution, and only its id is known there
            said = f"{plan.definition.id}\x1f{key}".encode()
            execution = "k" + hashlib.blake2b(said, digest_size=15).hexdigest()
        priority = about.get("priority")
        await self._elsewhere.hand_over(_message(plan, input, execution, priority))
        return Accepted(
            id=execution,
            workflow=plan.definition.id,
            hash=plan.hash,
            at=self._clock.now(),
            input=input,
            key=key,
            priority=plan.definition.settings.priority if priority is None else priority,
            format=FORMAT,
        )

    async def start_here(self, plan: Plan, input: bytes, **about: Any) -> Accepted:
        """Open an execution here whatever its definition says."""
        return await super().start(plan, input, **about)


def _message(plan: Plan, input: bytes, execution: str, priority: int | None) -> bytes:
    """The start of an execution for somebody without access to our stores."""
    behind = [node for each in sorted(plan.triggers) for node in plan.graph.successors(each)]
    message = NodeExecutionMessage(
        workflow_id=plan.definition.id,
        execution_id=execution,
        current_node=plan.ids[(behind or list(plan.entries))[0]],
        definition=msgspec.Raw(canonical(plan.definition)),
        context=msgspec.Raw(b'{"$trigger":' + input + b"}"),
        priority=priority,
    )
    body = encode_message(message)
    if len(body) > MOST_IN_FULL:
        raise MessageTooLarge(f"the start of {plan.definition.id}", len(body), MOST_IN_FULL)
    return body
