"""A lookout: what an execution that another process runs has come to, read from the file."""

from __future__ import annotations

from collections.abc import Iterable

from rune.cli.tally import Tally
from rune.core.fact import Attempt, End, Fact, Result, Start, Suspension
from rune.core.fold import fold
from rune.core.plan import Plan
from rune.core.routing import follow
from rune.ports.journal import Accepted, Stored
from rune.runtime.reader import Reader

FEW = 500  # facts of an execution that is folded with every look, to tell what runs from what has not begun


class Lookout:
    """Counts what happens into a tally, and finds the end."""

    def __init__(self, accepted: Accepted, plan: Plan, tally: Tally | None) -> None:
        self.accepted = accepted
        self.plan = plan
        self.end: End | None = None
        self.seen = 0
        self._tally = tally
        self._facts: list[Fact] = [Start(accepted.at)]
        self._change = -1

    async def look(self, reader: Reader) -> bool:
        """Read what was written since; whether anything was, by whomever."""
        before, self._change = self._change, await reader.change()
        if self._change == before:
            return False
        self.count(await reader.facts(self.accepted.id, self.seen))
        if self.end is None and self._tally is not None and len(self._facts) <= FEW:
            _, applied = fold(self.plan, self._facts, self.accepted.at)
            self._tally.skipped(applied.skipped)
            for token in applied.emitted:
                self._tally.claimed(self.accepted.id, token)
        return True

    def look_anew(self) -> None:
        """The file will be read by another reader, whose changes are counted anew."""
        self._change = -1

    def count(self, stored: Iterable[Stored]) -> None:
        """Take in facts, in their order."""
        for each in stored:
            self.seen = each.number
            if each.late:
                continue
            if isinstance(each.fact, End):
                self.end = each.fact
            if self._tally is None:
                continue
            if len(self._facts) <= FEW:
                self._facts.append(each.fact)
            if isinstance(each.fact, Result | Attempt | Suspension):
                self._tally.add(follow(self.plan, each.fact))
