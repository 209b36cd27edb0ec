"""An execution in memory: what the journal knows of it, folded, and what only this moment knows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rune.core.control import touch
from rune.core.effect import Decision, Timer
from rune.core.lineage import Path
from rune.core.plan import Plan
from rune.core.state import State
from rune.core.token import Fate, Token
from rune.ports.journal import Accepted
from rune.ports.state import Fence


class Lease(msgspec.Struct):
    """Who may run a token, until when."""

    owner: str
    fence: Fence
    until: int


class Running(msgspec.Struct):
    """One execution in memory."""

    accepted: Accepted
    plan: Plan
    state: State
    offset: int = 0  # of an execution with its own clock
    timers: dict[Timer, int] = {}
    leases: dict[tuple[int, Path], Lease] = {}
    claimed: set[tuple[int, Path]] = set()
    waited: dict[tuple[int, Path], int] = {}
    acts: int = 0
    held_back: dict[tuple[int, Path], Token] = {}  # as many run as may run at once
    asleep_until: int = 0  # what the file knows of its next waking
    foreseen: tuple[Sequence[Decision], int] | None = None  # it sleeps after these, unless it acts before
    recovered: bool = False  # read back from the journal: somebody may have died on one of its tokens

    def first(self, token: Token) -> int | None:
        """When the first party arrived at the join whose token this is."""
        scope = self.state.scopes.get(token.path) if token.arrived else None
        barrier = None if scope is None else scope.barriers.get(token.node)
        return None if barrier is None else barrier.first

    def is_full(self, token: Token) -> bool:
        """Whether as many nodes run as may run at once."""
        most = self.plan.max_parallel
        return most is not None and token.fate is Fate.RUN and len(self.claimed) >= most

    def claim(self, key: tuple[int, Path]) -> None:
        """A token is in somebody's hands."""
        self.claimed.add(key)
        self.held_back.pop(key, None)

    def let_in(self) -> list[Token]:
        """Somebody is done: whoever was held back may try again. One that has become void takes nobody's place."""
        free = max(0, (self.plan.max_parallel or 0) - len(self.claimed))
        found: list[Token] = []
        while self.held_back and len(found) < free:
            token = self.held_back.pop(next(iter(self.held_back)))
            if touch(self.plan, self.state, token) in ("run", "cancelled"):
                found.append(token)
        return found

    def sleeps_after(self, decisions: Sequence[Decision]) -> bool:
        """Whether these decisions, written down together with the time of the next waking, are all there is."""
        return self.foreseen is not None and self.foreseen[0] is decisions and self.foreseen[1] == self.acts

    def done(self, key: tuple[int, Path]) -> None:
        """A token is no longer in anybody's hands."""
        self.claimed.discard(key)
        self.leases.pop(key, None)
