"""One seed: a random definition in a world of random trouble, and the verdict on it; then, for some, a rerun."""

from __future__ import annotations

from collections import Counter
from random import Random

from rune.core.execution.fact import EffectStarted, NodeResult, PauseChanged, SignalReceived
from tests.simulation.again import beginning
from tests.simulation.answers import check_family
from tests.simulation.case import Case, random_case, registry
from tests.simulation.profile import harsh_profile, random_profile
from tests.simulation.verdict import (
    check_calls,
    check_counts,
    check_end,
    check_fold,
    check_once,
    check_owned,
    check_parallel,
    check_signals,
)
from tests.simulation.world import Realm

__all__ = ["ProbedWorld", "registry", "run_seed"]

PROBE = 0.03
CLOSELY = 0.3
MOST_RERUNS = 2
SHOWN = ("TIMEOUT", "UNKNOWN_OUTCOME", "CHILD_FAILED")


class ProbedWorld(Realm):
    """A world whose invariants are looked at now and then while it runs."""

    def _act(self) -> None:
        super()._act()
        for execution in list(self.executions.values()):
            memory = execution.store.memory
            if memory is not None:
                check_counts(memory.state)
                check_signals(execution.case.plan, memory.state)
                check_once(execution.store)
        check_parallel(self)
        if self.rng.random() < (CLOSELY if self.root.case.is_known else PROBE) and not self.workers:
            for execution in self.executions.values():
                check_owned(execution)
                check_fold(execution, self.now, self.rng)


def run_seed(seed: int, tally: Counter[str] | None = None) -> str:
    """Run one seed; raises Violation. Answers how its first execution ended; `tally` counts what occurred."""
    case = random_case(seed)
    rng = Random(f"world-{seed}")
    harsh = case.is_known and rng.random() < 0.7
    world = ProbedWorld(case, registry(), harsh_profile(rng) if harsh else random_profile(rng), rng)
    _live(world, tally)
    first = world.root.journal.end
    assert first is not None
    for number in range(MOST_RERUNS if case.again else 0):
        again = _run_again(world, case.mended(), rng, f"sim+{number}")
        if again is None:
            break
        world = again
        _live(world, tally)
        if tally is not None and world.root.journal.end is not None:
            tally[f"rerun {world.root.journal.end.status}"] += 1
    return first.status


def _run_again(world: Realm, case: Case, rng: Random, name: str) -> ProbedWorld | None:
    """The same definition once more, beginning with what still holds, in a world where effects succeed."""
    kept = beginning(world.root, world.now, rng)
    if kept is None:
        return None
    return ProbedWorld(
        case,
        registry(),
        random_profile(rng),
        rng,
        name=name,
        kept=kept,
        calls=world.calls,
        mended=True,
        now=world.now,
    )


def _live(world: Realm, tally: Counter[str] | None) -> None:
    world.run()
    for execution in world.executions.values():
        check_family(world, execution)
        check_end(world, execution)
    check_calls(world)
    if tally is None:
        return
    tally["children"] += len(world.executions) - 1
    for execution in world.executions.values():
        facts = execution.journal.facts.values()
        tally["signals"] += sum(isinstance(fact, SignalReceived) for fact in facts)
        tally["taken"] += len(execution.journal.taken)
        tally["begun"] += sum(isinstance(fact, EffectStarted) for fact in facts)
        tally["paused"] += any(isinstance(fact, PauseChanged) for fact in facts)
        for code in (fact.failure.code for fact in facts if isinstance(fact, NodeResult) and fact.failure):
            tally[code] += code in SHOWN
