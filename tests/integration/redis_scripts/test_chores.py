"""Operations on many tokens run in chunks; the final state equals that of the core."""

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
from rune.core.execution.transition import MAX_ITEMS_PER_TRANSITION, apply
from rune.core.limits import Limits
from tests.integration.redis_scripts.mirror import NOW, PACK, Mirror
from tests.support.plans import aggregator, node, plan, race, split

MANY = 600
LIMITS = Limits(window=1_000)
MAX_CHUNK = 520


class UncheckedMirror(Mirror):
    """A mirror that is compared only when all chunks are done."""

    def apply_both(self, *decisions: Decision) -> list[Any]:
        for decision in decisions:
            apply(self.plan, self.state, decision)
        found: list[Any] = self.decoded(self.run("apply", self._instructions.packed(decisions)))[2]
        return found

    def decoded(self, answer: bytes) -> list[Any]:
        found: list[Any] = msgspec.msgpack.decode(answer)
        return found

    def claim_unchecked(self, token: Token) -> None:
        """Claim the token in core and scripts."""
        claim_verdict(self.plan, self.state, token, self.now)
        want = (token.node, encode_path(token.path), "run", 1, False, "me", False)
        self.run("claim", PACK((*want, token_fields(token))))

    def change_pause(self, fact: PauseChanged) -> list[Any]:  # type: ignore[override]
        change_pause(self.plan, self.state, fact)
        found: list[Any] = self.decoded(self.run("control", PACK((fact.at, fact.number, fact.paused))))[2]
        return found

    def check(self) -> None:
        there = self.read_state()
        assert there.scopes.keys() == self.state.scopes.keys()
        assert there == self.state


def _start_items(mirror: UncheckedMirror, count: int) -> list[Token]:
    """Start every item; return their tokens."""
    (token,) = [each for each in mirror.emitted if mirror.plan.nodes[each.node].fans_out]
    items: list[Token] = []
    decision = step(mirror.plan, token, FanOut(count), NOW)
    while True:
        sent = [token_from_fields(each) for each in mirror.apply_both(decision)]
        items += [each for each in sent if each.fate is TokenPurpose.RUN]
        dispatch = [each for each in sent if each.fate is TokenPurpose.DISPATCH]
        if not dispatch:
            return items
        decision = step_unrun(mirror.plan, dispatch[0], NOW)


def test_resume_emits_parked_tokens_in_chunks(redis: Redis) -> None:
    mirror = UncheckedMirror.start(
        redis, plan("start -> s -> a -> g", s=split(), g=aggregator()), limits=LIMITS
    )
    assert isinstance(mirror, UncheckedMirror)
    items = _start_items(mirror, MANY)
    assert len(items) == MANY
    mirror.change_pause(PauseChanged(NOW, 1, True))
    for item in items:
        mirror.claim_unchecked(item)
    first = mirror.change_pause(PauseChanged(NOW, 2, False))
    rest = mirror.run_chores()
    sent = [token_from_fields(each).path for batch in (first, *rest) for each in batch]
    assert sorted(sent) == sorted(each.path for each in items)
    assert all(len(batch) <= MAX_CHUNK for batch in (first, *rest))
    assert len(rest) >= 1
    mirror.check()


def test_cancelled_region_emits_waiting_tokens_in_chunks(redis: Redis) -> None:
    wait = node("wait", {"resume": "signal", "name": "go"})
    shape = "start -> s -> w -> g -> m, start -> a -> m, m -> z"
    losing = race({"cancel_losers": True})
    mirror = UncheckedMirror.start(
        redis, plan(shape, s=split(), w=wait, g=aggregator(), m=losing), limits=LIMITS
    )
    assert isinstance(mirror, UncheckedMirror)
    for item in _start_items(mirror, MANY):
        mirror.apply_both(step(mirror.plan, item, Suspend(None, "go"), NOW))
    mirror.check()
    (opened,) = mirror.apply_both(step(mirror.plan, Token(mirror.plan.index["a"]), Output(None), NOW))
    first = mirror.apply_both(step(mirror.plan, token_from_fields(opened), Output(None), NOW))
    rest = mirror.run_chores()
    woken = [token_from_fields(each) for batch in (first, *rest) for each in batch]
    assert len([each for each in woken if each.node == mirror.plan.index["w"]]) == MANY
    assert len(rest) >= 1
    assert all(len(batch) <= MAX_CHUNK for batch in (first, *rest))
    mirror.check()


def test_call_with_many_decisions_starts_one_chunk_of_items(redis: Redis) -> None:
    """Every ended item makes room for others, while most of the window is still empty."""
    shape = plan("start -> s -> a -> g", s=split(), g=aggregator())
    mirror = UncheckedMirror.start(redis, shape, limits=LIMITS)
    assert isinstance(mirror, UncheckedMirror)
    (token,) = [each for each in mirror.emitted if mirror.plan.nodes[each.node].fans_out]
    started = mirror.apply_both(step(mirror.plan, token, FanOut(3 * MANY), NOW))
    first = [token_from_fields(each) for each in started]
    items = [each for each in first if each.fate is TokenPurpose.RUN]
    ended = [step(mirror.plan, each, Output(None), NOW) for each in items[:32]]

    sent = [token_from_fields(each) for each in mirror.apply_both(*ended)]

    assert len(items) == MAX_ITEMS_PER_TRANSITION
    assert len([each for each in sent if each.fate is TokenPurpose.RUN]) == MAX_ITEMS_PER_TRANSITION
    dispatch = [each for each in (*first, *sent) if each.fate is TokenPurpose.DISPATCH]
    while dispatch:
        rest = mirror.apply_both(step_unrun(mirror.plan, dispatch.pop(), NOW))
        dispatch += [each for each in map(token_from_fields, rest) if each.fate is TokenPurpose.DISPATCH]
    assert mirror.read_state().root.fans[token.node].in_flight == LIMITS.window
