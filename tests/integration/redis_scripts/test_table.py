"""The core's own table of cases, with every act done by the scripts too, from the same state before it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from redis import Redis

from rune.core.execution import control as controlling
from rune.core.execution import timers as waking
from rune.core.execution import transition as applying
from rune.core.execution.decision import Applied, Decision, Timer
from rune.core.execution.fact import PauseChanged, SignalReceived
from rune.core.execution.state import State
from rune.core.plan.model import Plan
from tests.integration.redis_scripts.mirror import NOW, Mirror
from tests.unit.core import plans
from tests.unit.core.test_apply import *  # noqa: F403
from tests.unit.core.test_barrier import *  # noqa: F403
from tests.unit.core.test_control import *  # noqa: F403
from tests.unit.core.test_signals import *  # noqa: F403
from tests.unit.core.test_wake import *  # noqa: F403
from tests.unit.core.test_windows import *  # noqa: F403

HUGE = 400
"""Scopes beyond which a case is about numbers and not about shapes."""


class Held:
    """Does each act of the core to a copy of the state that is held against the scripts."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.acts = 0

    def _copy(
        self, plan: Plan, state: State, now: int, timers: dict[Timer, int] | None = None
    ) -> Mirror | None:
        if state.folding or state.ended or not state.scopes or len(state.scopes) > HUGE:
            return None
        self.acts += 1
        return Mirror(self._redis, plan, deepcopy(state), timers or {}, now)

    def apply(self, plan: Plan, state: State, decision: Decision) -> Applied:
        mirror = self._copy(plan, state, NOW)
        if mirror is not None:
            mirror.decide(decision)
        return applying.apply(plan, state, decision)

    def control(self, plan: Plan, state: State, fact: PauseChanged) -> Applied:
        mirror = self._copy(plan, state, fact.at)
        if mirror is not None:
            mirror.control(fact)
        return controlling.change_pause(plan, state, fact)

    def hear(self, plan: Plan, state: State, fact: SignalReceived) -> Applied:
        mirror = self._copy(plan, state, fact.at)
        if mirror is not None:
            mirror.hear(fact)
        return controlling.deliver_signal(plan, state, fact)

    def wake(self, plan: Plan, state: State, timer: Timer, now: int) -> Applied:
        mirror = self._copy(plan, state, now, {timer: now})
        if mirror is not None:
            mirror.fire(timer)
        return waking.fire_timer(plan, state, timer, now)


@pytest.fixture(autouse=True)
def held(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Every life that a case leads goes through the scripts."""
    held = Held(redis)
    verbs: dict[str, Callable[..., Any]] = {
        "apply": held.apply,
        "change_pause": held.control,
        "deliver_signal": held.hear,
        "fire_timer": held.wake,
    }
    for name, verb in verbs.items():
        monkeypatch.setattr(plans, name, verb)
    return held


def test_the_cases_are_held_against_the_scripts(held: Held) -> None:
    life = plans.Life(plans.plan("start -> a -> b"))
    life.ok("a", "b")
    assert held.acts == 4, "each fact, and its twin"
