"""Runs the unit tests of the core with every operation also applied by the scripts."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from redis import Redis

from rune.core.execution import control as control_module
from rune.core.execution import control as timers_module
from rune.core.execution import transition as transition_module
from rune.core.execution.decision import Applied, Decision, Timer
from rune.core.execution.fact import PauseChanged, SignalReceived
from rune.core.execution.state import State
from rune.core.plan.model import Plan
from tests.integration.redis_scripts.mirror import NOW, Mirror
from tests.support import plans
from tests.unit.core.test_control import *  # noqa: F403
from tests.unit.core.test_fan_out import *  # noqa: F403
from tests.unit.core.test_joins import *  # noqa: F403
from tests.unit.core.test_signals import *  # noqa: F403
from tests.unit.core.test_timers import *  # noqa: F403
from tests.unit.core.test_transition import *  # noqa: F403

MAX_SCOPES = 400
"""Larger states are not copied to Redis."""


class ScriptChecker:
    """Applies each operation of the core also to a mirrored copy of the state."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.operations = 0

    def _copy(
        self, plan: Plan, state: State, now: int, timers: dict[Timer, int] | None = None
    ) -> Mirror | None:
        if state.folding or state.ended or not state.scopes or len(state.scopes) > MAX_SCOPES:
            return None
        self.operations += 1
        return Mirror(self._redis, plan, deepcopy(state), timers or {}, now)

    def apply(self, plan: Plan, state: State, decision: Decision) -> Applied:
        mirror = self._copy(plan, state, NOW)
        if mirror is not None:
            mirror.decide(decision)
        return transition_module.apply(plan, state, decision)

    def control(self, plan: Plan, state: State, fact: PauseChanged) -> Applied:
        mirror = self._copy(plan, state, fact.at)
        if mirror is not None:
            mirror.change_pause(fact)
        return control_module.change_pause(plan, state, fact)

    def signal(self, plan: Plan, state: State, fact: SignalReceived) -> Applied:
        mirror = self._copy(plan, state, fact.at)
        if mirror is not None:
            mirror.signal(fact)
        return control_module.deliver_signal(plan, state, fact)

    def wake(self, plan: Plan, state: State, timer: Timer, now: int) -> Applied:
        mirror = self._copy(plan, state, now, {timer: now})
        if mirror is not None:
            mirror.fire(timer)
        return timers_module.fire_timer(plan, state, timer, now)


@pytest.fixture(autouse=True)
def checker(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> ScriptChecker:
    """Patch the execution driver so that every operation is checked against the scripts."""
    checker = ScriptChecker(redis)
    verbs: dict[str, Callable[..., Any]] = {
        "apply": checker.apply,
        "change_pause": checker.control,
        "deliver_signal": checker.signal,
        "fire_timer": checker.wake,
    }
    for name, verb in verbs.items():
        monkeypatch.setattr(plans, name, verb)
    return checker


def test_core_cases_call_the_scripts(checker: ScriptChecker) -> None:
    execution = plans.ExecutionDriver(plans.plan("start -> a -> b"))
    execution.ok("a", "b")
    assert checker.operations == 4, "each fact and its duplicate"
