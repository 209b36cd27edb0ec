"""Runs one seed: simulate a case with random faults, check it, and rerun some cases."""

from __future__ import annotations

from collections import Counter
from random import Random

from rune.core.execution.fact import EffectStarted, NodeResult, PauseChanged, SignalReceived
from tests.simulation.backlog import run_backlog
from tests.simulation.case import Case, random_case, registry
from tests.simulation.external_results import check_child
from tests.simulation.growing import growing_case
from tests.simulation.invariants import (
    check_calls,
    check_counts,
    check_end,
    check_fold,
    check_max_parallel,
    check_signals,
    check_single_emission,
    check_timers,
)
from tests.simulation.profile import harsh_profile, random_profile
from tests.simulation.reruns import facts_to_keep
from tests.simulation.simulator import Simulator

__all__ = ["CheckedSimulator", "registry", "run_seed"]

FOLD_CHECK_RATE = 0.03
HANDWRITTEN_FOLD_CHECK_RATE = 0.3
MAX_RERUNS = 2
COUNTED_CODES = ("TIMEOUT", "UNKNOWN_OUTCOME", "CHILD_FAILED")


class CheckedSimulator(Simulator):
    """A simulator that checks invariants while it runs."""

    def _step(self) -> None:
        super()._step()
        for execution in list(self.executions.values()):
            memory = execution.store.memory
            if memory is not None:
                check_counts(memory.state)
                check_signals(execution.case.plan, memory.state)
                check_single_emission(execution.store)
        check_max_parallel(self)
        if (
            self.rng.random()
            < (HANDWRITTEN_FOLD_CHECK_RATE if self.root.case.is_handwritten else FOLD_CHECK_RATE)
            and not self.workers
        ):
            for execution in self.executions.values():
                check_timers(execution)
                check_fold(execution, self.now, self.rng)


def run_seed(seed: int, tally: Counter[str] | None = None) -> str:
    """Run one seed and return the status of its first execution; raises ViolationError. `tally` counts events."""
    if run_backlog(seed) and tally is not None:
        tally["backlogs"] += 1
    growing = growing_case(seed)
    case = random_case(seed) if growing is None else growing.case
    rng = Random(f"world-{seed}")
    harsh = case.is_handwritten and rng.random() < 0.7
    sim = CheckedSimulator(case, registry(), harsh_profile(rng) if harsh else random_profile(rng), rng)
    if growing is not None:
        sim.run()
        growing.check(sim.root)
        return sim.root.journal.end.status if sim.root.journal.end is not None else ""
    _run_and_check(sim, tally)
    first = sim.root.journal.end
    assert first is not None
    for number in range(MAX_RERUNS if case.reruns else 0):
        rerun = _start_rerun(sim, case.without_failures(), rng, f"sim+{number}")
        if rerun is None:
            break
        sim = rerun
        _run_and_check(sim, tally)
        if tally is not None and sim.root.journal.end is not None:
            tally[f"rerun {sim.root.journal.end.status}"] += 1
    return first.status


def _start_rerun(sim: Simulator, case: Case, rng: Random, name: str) -> CheckedSimulator | None:
    """A simulator for a rerun of the same definition with effects that succeed."""
    kept_facts = facts_to_keep(sim.root, sim.now, rng)
    if kept_facts is None:
        return None
    return CheckedSimulator(
        case,
        registry(),
        random_profile(rng),
        rng,
        name=name,
        kept_facts=kept_facts,
        call_count=sim.call_count,
        effects_succeed=True,
        now=sim.now,
    )


def _run_and_check(sim: Simulator, tally: Counter[str] | None) -> None:
    sim.run()
    for execution in sim.executions.values():
        check_child(sim, execution)
        check_end(sim, execution)
    check_calls(sim)
    if tally is None:
        return
    tally["children"] += len(sim.executions) - 1
    for execution in sim.executions.values():
        facts = execution.journal.facts.values()
        tally["signals"] += sum(isinstance(fact, SignalReceived) for fact in facts)
        tally["signals taken"] += len(execution.journal.signal_takers)
        tally["effects started"] += sum(isinstance(fact, EffectStarted) for fact in facts)
        tally["paused executions"] += any(isinstance(fact, PauseChanged) for fact in facts)
        for code in (fact.failure.code for fact in facts if isinstance(fact, NodeResult) and fact.failure):
            tally[code] += code in COUNTED_CODES
