"""Foresight: while a token that is all there is of its execution is in our hands, nothing else can happen to it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence

from rune.core.effect import Decision, Finish
from rune.core.ending import end_of_one
from rune.core.token import Token
from rune.ports.clock import Clock

MOST = 10_000


class _Alone:
    """A node that was claimed, when by either clock, and what was foreseen last."""

    __slots__ = ("answer", "decisions", "node", "then", "when")

    def __init__(self, node: int, now: int) -> None:
        self.node = node
        self.then = now
        self.when = time.monotonic()
        self.decisions: Sequence[Decision] | None = None
        self.answer: tuple[Finish, int] | None = None


class Foresight:
    """Which decisions are certain to be the last."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._alone: OrderedDict[str, _Alone] = OrderedDict()

    def note(self, execution: str, token: Token, now: int) -> None:
        """This token was claimed here, and it is all there is."""
        self._alone[execution] = _Alone(token.node, now)
        if len(self._alone) > MOST:
            self._alone.popitem(last=False)

    def forget(self, execution: str) -> None:
        self._alone.pop(execution, None)

    def end(self, execution: str, decisions: Sequence[Decision]) -> tuple[Finish, int] | None:
        """The end that these decisions bring, and its time; the same however often it is asked for."""
        alone = self._alone.get(execution)
        if alone is None:
            return None
        if alone.decisions is not decisions:
            alone.decisions = decisions
            finish = end_of_one(decisions) if decisions[0].node == alone.node else None
            passed = 0 if self._clock is not None else round((time.monotonic() - alone.when) * 1000)
            alone.answer = None if finish is None else (finish, alone.then + passed)
        return alone.answer
