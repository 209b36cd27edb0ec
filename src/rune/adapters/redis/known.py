"""What a process knows of executions: how they were accepted, and their plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

from rune.adapters.redis.instructions import Instructions
from rune.core.plan import Plan
from rune.ports.journal import Accepted, Journal

MOST = 20_000

Plans = Callable[[str], Awaitable[Plan]]


class Known(msgspec.Struct):
    """An execution."""

    accepted: Accepted
    plan: Plan
    instructions: Instructions


class Register:
    """The executions that were touched last, bounded."""

    def __init__(self, journal: Journal, plans: Plans) -> None:
        self._journal = journal
        self._plans = plans
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._instructions: OrderedDict[str, Instructions] = OrderedDict()

    async def of(self, execution: str) -> Known:
        """Raises KeyError for one that was never accepted."""
        found = self._known.get(execution)
        if found is not None:
            return found
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise KeyError(execution)
        return self.add(accepted, await self._plans(accepted.hash))

    def add(self, accepted: Accepted, plan: Plan) -> Known:
        instructions = self._instructions.get(plan.hash)
        if instructions is None or instructions.plan is not plan:
            instructions = self._instructions[plan.hash] = Instructions(plan)
        if len(self._instructions) > MOST // 100:
            self._instructions.popitem(last=False)
        known = self._known[accepted.id] = Known(accepted, plan, instructions)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return known

    def forget(self, execution: str) -> None:
        self._known.pop(execution, None)
