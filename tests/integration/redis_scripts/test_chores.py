"""What concerns very many tokens is done a few hundred at a time; when all of it is done, it is what the core says."""

from __future__ import annotations

from typing import Any

import msgspec
from redis import Redis

from rune.adapters.redis.encoding import encode_path, token_fields, token_from_fields
from rune.core.execution.control import change_pause, claim_verdict
from rune.core.execution.decision import Decision
from rune.core.execution.fact import PauseChanged
from rune.core.execution.outcome import FanOut, Output, Suspend
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import apply
from rune.core.limits import Limits
from tests.integration.redis_scripts.mirror import NOW, PACK, Mirror
from tests.unit.core.plans import gather, node, plan, race, split

MANY = 600
LIMITS = Limits(window=1_000)
AT_MOST = 520


class Crowd(Mirror):
    """A mirror that is compared when its chores are done."""

    def both(self, *decisions: Decision) -> list[Any]:
        for decision in decisions:
            apply(self.plan, self.state, decision)
        found: list[Any] = self.decoded(self.run("apply", self._instructions.packed(decisions)))[2]
        return found

    def decoded(self, answer: bytes) -> list[Any]:
        found: list[Any] = msgspec.msgpack.decode(answer)
        return found

    def park(self, token: Token) -> None:
        """Somebody comes to run it."""
        claim_verdict(self.plan, self.state, token)
        want = (token.node, encode_path(token.path), "run", 1, False, "me", False)
        self.run("claim", PACK((*want, token_fields(token))))

    def told(self, fact: PauseChanged) -> list[Any]:
        change_pause(self.plan, self.state, fact)
        found: list[Any] = self.decoded(self.run("control", PACK((fact.at, fact.number, fact.paused))))[2]
        return found

    def check(self) -> None:
        there = self.there()
        assert there.scopes.keys() == self.state.scopes.keys()
        assert there == self.state


def _spread(mirror: Crowd, count: int) -> list[Token]:
    """Every item started."""
    (token,) = [each for each in mirror.emitted if mirror.plan.nodes[each.node].fans_out]
    items: list[Token] = []
    decision = step(mirror.plan, token, FanOut(count), NOW)
    while True:
        sent = [token_from_fields(each) for each in mirror.both(decision)]
        items += [each for each in sent if each.fate is TokenPurpose.RUN]
        dispatch = [each for each in sent if each.fate is TokenPurpose.DISPATCH]
        if not dispatch:
            return items
        decision = step_unrun(mirror.plan, dispatch[0], NOW)


def test_a_resume_sends_all_that_was_parked_a_few_hundred_at_a_time(redis: Redis) -> None:
    mirror = Crowd.begun(redis, plan("start -> s -> a -> g", s=split(), g=gather()), limits=LIMITS)
    assert isinstance(mirror, Crowd)
    items = _spread(mirror, MANY)
    assert len(items) == MANY
    mirror.told(PauseChanged(NOW, 1, True))
    for item in items:
        mirror.park(item)
    first = mirror.told(PauseChanged(NOW, 2, False))
    rest = mirror.chores()
    sent = [token_from_fields(each).path for batch in (first, *rest) for each in batch]
    assert sorted(sent) == sorted(each.path for each in items)
    assert all(len(batch) <= AT_MOST for batch in (first, *rest))
    assert len(rest) >= 1
    mirror.check()


def test_a_cancelled_region_wakes_all_that_wait_a_few_hundred_at_a_time(redis: Redis) -> None:
    wait = node("wait", {"resume": "signal", "name": "go"})
    shape = "start -> s -> w -> g -> m, start -> a -> m, m -> z"
    losing = race({"cancel_losers": True})
    mirror = Crowd.begun(redis, plan(shape, s=split(), w=wait, g=gather(), m=losing), limits=LIMITS)
    assert isinstance(mirror, Crowd)
    for item in _spread(mirror, MANY):
        mirror.both(step(mirror.plan, item, Suspend(None, "go"), NOW))
    mirror.check()
    (opened,) = mirror.both(step(mirror.plan, Token(mirror.plan.index["a"]), Output(None), NOW))
    first = mirror.both(step(mirror.plan, token_from_fields(opened), Output(None), NOW))
    rest = mirror.chores()
    woken = [token_from_fields(each) for batch in (first, *rest) for each in batch]
    assert len([each for each in woken if each.node == mirror.plan.index["w"]]) == MANY
    assert len(rest) >= 1
    assert all(len(batch) <= AT_MOST for batch in (first, *rest))
    mirror.check()
