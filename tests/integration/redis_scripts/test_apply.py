"""The scripts behave like the core in random executions with duplicates, reordering, signals and pauses."""

from __future__ import annotations

from random import Random

import pytest
from redis import Redis

from rune.core.execution.outcome import FanOut, Output
from rune.core.execution.step import step, step_unrun
from rune.core.execution.token import Token, TokenPurpose
from rune.core.execution.transition import MAX_ITEMS_PER_TRANSITION
from rune.core.limits import Limits
from rune.core.plan.model import Plan
from tests.integration.redis_scripts.mirror import Mirror
from tests.integration.redis_scripts.random_walk import RandomWalk
from tests.simulation.case import random_case
from tests.support.plans import aggregator, conditional, merge, node, plan, quorum, race, split

SEEDS = 150
NARROW = Limits(window=2, items_in_flight=3)


def _wait() -> dict[str, object]:
    return node("wait", {"resume": "signal", "name": "go"})


PLANS: dict[str, Plan] = {
    "diamond": plan("start -> a -> c, start -> b -> c"),
    "untaken branch": plan(
        "start -> if -true-> a -> m, if -false-> b -> m", **{"if": conditional(), "m": merge()}
    ),
    "race": plan("start -> a -> m, start -> b -> m, start -> c -> m, m -> z", m=race()),
    "race that cancels": plan(
        "start -> a -> b -> m, start -> w -> m, m -> z", m=race({"cancel_losers": True}), w=_wait()
    ),
    "race with timeout": plan("start -> a -> m, start -> w -> m, m -> z", m=race({"timeout": 5}), w=_wait()),
    "two of three": plan("start -> a -> m, start -> b -> m, start -> c -> m", m=quorum(2)),
    "errors": plan(
        "start -> a -> b, a -!-> c, start -> d -> e",
        a=node(error="branch"),
        d=node(error="ignore", retry={"max_attempts": 3, "initial_delay": 1}),
    ),
    "items": plan("start -> s -> a -> g -> z", s=split(), g=aggregator()),
    "items that fork": plan(
        "start -> s -> a -> g, s -> b -> g, a -> c, g -> z", s=split({"max_in_flight": 2}), g=aggregator()
    ),
    "items in items": plan(
        "start -> s -> t -> a -> h -> b -> g -> z",
        s=split(),
        t=split(),
        h=aggregator(),
        g=aggregator({"timeout": 5}),
    ),
    "items that wait": plan(
        "start -> s -> w -> a -> g", s=split({"max_in_flight": 2}), w=_wait(), g=aggregator()
    ),
    "items that race": plan(
        "start -> s -> a -> m, s -> w -> m, m -> g -> z",
        s=split(),
        m=race({"cancel_losers": True, "timeout": 5}),
        w=_wait(),
        g=aggregator(),
    ),
    "items without aggregator": plan("start -> s -> a -> b, start -> c", s=split()),
    "signals": plan("start -> v -> a, start -> w -> b", v=_wait(), w=_wait()),
    "expected within": plan("start -> a -> b", settings={"expect_within": 20, "timeout": 30}),
    "execution timeout": plan("start -> a -> b", settings={"timeout": 20}),
    "max_parallel 2": plan("start -> a, start -> b, start -> c", settings={"max_parallel": 2}),
}


@pytest.mark.parametrize("name", PLANS)
def test_scripts_match_core_for_each_plan(redis: Redis, name: str) -> None:
    for seed in range(12):
        rng = Random(f"{name}-{seed}")
        RandomWalk(redis, PLANS[name], rng, rng.choice((Limits(), NARROW))).run()


@pytest.mark.parametrize("part", range(5))
def test_scripts_match_core_for_random_definitions(redis: Redis, part: int) -> None:
    for seed in range(part, SEEDS, 5):
        rng = Random(f"walk-{seed}")
        RandomWalk(redis, random_case(seed).plan, rng, rng.choice((Limits(), NARROW))).run()


def test_wide_fan_out_is_started_in_chunks(redis: Redis) -> None:
    mirror = Mirror.start(redis, PLANS["items"], limits=Limits(window=700))
    (token,) = mirror.emitted
    sent = mirror.decide(step(mirror.plan, token, FanOut(1_500), mirror.now)).emitted
    assert len(sent) == MAX_ITEMS_PER_TRANSITION + 1
    while sent[-1].fate is TokenPurpose.DISPATCH:
        sent = mirror.decide(step_unrun(mirror.plan, sent[-1], mirror.now)).emitted
    assert mirror.state.root.fans[token.node].in_flight == 700
    first = mirror.plan.index["a"]
    for item in range(0, 700, 100):
        done = Token(first, (token.node, item))
        assert len(mirror.decide(step(mirror.plan, done, Output(None), mirror.now)).emitted) == 1
