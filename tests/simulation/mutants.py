"""Mutants: one defect each, in the rules or in the order of a commit. The simulator must detect all of them.

python -m tests.simulation.mutants [--seeds 6000] [--jobs 2] [NAME…]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.change import Change, edit, replace, skip
from tests.faults.hook import ROOT, environment
from tests.simulation.detecting_seeds import DETECTING_SEEDS

Function = Callable[..., Any]


def apply_arrivals_of_twins(original: Function) -> Function:
    def apply(plan: Any, state: Any, decision: Any) -> Any:
        from rune.core.execution.decision import ArriveAtJoin
        from rune.core.execution.transition import Transition

        scope = state.scopes.get(decision.path)
        if scope is None or decision.node not in scope.done:
            return original(plan, state, decision)
        if decision.node in scope.live and decision.fact is None:
            return original(plan, state, decision)
        transition = Transition(plan, state, decision.at)
        transition.perform(scope, [effect for effect in decision.effects if isinstance(effect, ArriveAtJoin)])
        transition.propagate_counts(scope)
        return transition.applied

    return apply


def fill_any_free_edge(original: Function) -> Function:
    def arrive(self: Any, scope: Any, effect: Any) -> None:
        node = self._plan.nodes[self._plan.dst[effect.edge]]
        barrier = scope.barriers.get(node.index)
        used = () if barrier is None else barrier.arrivals
        edge = next((each for each in node.in_edges if each not in used), effect.edge)
        original(self, scope, copy_with(effect, edge=edge))

    return arrive


def remove_lineage(original: Function) -> Function:
    def fact_key(fact: Any) -> tuple[Any, ...]:
        key: tuple[Any, ...] = original(fact)
        return (*key[:2], key[2][:-1]) if key[0] == "result" else key

    return fact_key


def delete_open_barriers(original: Function) -> Function:
    def arrive(self: Any, scope: Any, effect: Any) -> None:
        node = self._plan.dst[effect.edge]
        done = {node} & scope.done
        scope.done -= done
        original(self, scope, effect)
        scope.done |= done
        if scope.barriers[node].opened:
            del scope.barriers[node]

    return arrive


def clear_outbox_first(original: Function) -> Function:
    def relay(sim: Any, execution: Any) -> Iterator[None]:
        for _ in original(sim, execution):
            execution.journal.outbox.clear()
            yield

    return relay


def sleep_without_timer(original: Function) -> Function:
    def wait_until(self: Any, scope: Any, live: Any, due: int | None) -> None:
        original(self, scope, live, None)
        live.due = due

    return wait_until


def renew_always(_original: Function) -> Function:
    def renew(self: Any, _token: Any, _lease: Any, now: int) -> bool:
        self.load(now)
        return True

    return renew


def finish_without_timer(original: Function) -> Function:
    def finish(self: Any, how: Any) -> None:
        original(self, how)
        self.applied.armed = [each for each in self.applied.armed if each[0].kind != "finish"]

    return finish


def deliver_duplicate_signals(original: Function) -> Function:
    def deliver(plan: Any, state: Any, fact: Any) -> Any:
        if not state.ended:
            state.received_signals.discard(fact.id)
        return original(plan, state, fact)

    return deliver


def deliver_taken_signals(original: Function) -> Function:
    def deliver(self: Any) -> None:
        self._consumed_signals.clear()
        original(self)

    return deliver


def hide_early_signals(original: Function) -> Function:
    def wait_for_signal(self: Any, *arguments: Any) -> None:
        unheeded, self.state.pending_signals = self.state.pending_signals, []
        original(self, *arguments)
        self.state.pending_signals = unheeded

    return wait_for_signal


def keep_deadline(original: Function) -> Function:
    def wake(self: Any, scope: Any, live: Any) -> None:
        deadline = live.deadline
        original(self, scope, live)
        live.deadline = deadline

    return wake


def expire_resumed_tokens(original: Function) -> Function:
    def resume(act: Any, scope: Any, timer: Any, now: int) -> None:
        from rune.core.execution.token import TokenPurpose

        live = scope.live.get(timer.node)
        if live is not None and not live.waiting and live.wakes_at and live.token.signal:
            live.token = copy_with(live.token, fate=TokenPurpose.OVERDUE)
        original(act, scope, timer, now)

    return resume


def ignore_pause(original: Function) -> Function:
    def method(self: Any, *arguments: Any) -> None:
        paused_at, self.state.paused_at = self.state.paused_at, None
        original(self, *arguments)
        self.state.paused_at = paused_at

    return method


def leave_tokens_parked(original: Function) -> Function:
    def change_pause(plan: Any, state: Any, fact: Any) -> Any:
        tokens = [live for scope in state.scopes.values() for live in scope.live.values() if live.parked]
        applied = original(plan, state, fact)
        for live in tokens:
            live.parked = True
        return applied

    return change_pause


def count_time_in_pauses(original: Function) -> Function:
    def deadline(plan: Any, state: Any, *arguments: Any) -> None:
        original(plan, copy_with(state, pauses=[], paused_at=None), *arguments)

    return deadline


def start_effect_again(original: Function) -> Function:
    def record_effect_start(self: Any, token: Any) -> bool:
        original(self, token)
        return True

    return record_effect_start


def admit_one_more(original: Function) -> Function:
    def is_full(self: Any, memory: Any, token: Any) -> bool:
        return bool(original(self, memory, token)) and len(memory.claims) > self.plan.max_parallel

    return is_full


def report_only_to_ended_parents(original: Function) -> Function:
    def is_end_unreported(sim: Any, each: Any) -> bool:
        return bool(original(sim, each)) and sim.executions[each.parent.id].journal.end is not None

    return is_end_unreported


def ignore_other_tokens(original: Function) -> Function:
    def is_only_activity(state: Any, decisions: Any) -> Any:
        root = state.scopes.get(())
        alone = state if root is None else copy_with(state, scopes={(): copy_with(root, count=1)})
        return original(alone, decisions)

    return is_only_activity


def share_one_time(original: Function) -> Function:
    def prepared(self: Any, token: Any, decisions: Any) -> Any:
        now = self._sim.now
        self._sim.now = decisions[0].at if decisions else now
        try:
            return original(self, token, decisions)
        finally:
            self._sim.now = now

    return prepared


def commit_without_answer(original: Function) -> Function:
    def store_run(self: Any, run: Any) -> Any:
        from tests.simulation.journal import Outage

        try:
            return original(self, run)
        except Outage:
            return run.decisions

    return store_run


def copy_with(value: Any, **fields: Any) -> Any:
    """A copy of a struct with some fields replaced."""
    from msgspec import structs

    return structs.replace(value, **fields)


RULES: dict[str, tuple[Change, ...]] = {
    "no deduplication": (
        edit(
            "rune.core.execution.transition:apply",
            (
                "decision.node in scope.done and (live is None or fact is not None)",
                "decision.node in scope.done and live is None and fact is None",
            ),
        ),
        skip("rune.core.execution.transition:_is_cancelled_by_rule", True),
    ),
    "join counts arrivals instead of edges": (
        replace("rune.core.execution.transition:apply", apply_arrivals_of_twins),
        replace("rune.core.execution.transition:Transition._arrive", fill_any_free_edge),
    ),
    "key without lineage": (
        replace("rune.core.execution.fact:fact_key", remove_lineage),
        replace(
            "tests.simulation.journal:Journal.result",
            lambda original: lambda self, node, path: original(self, node, path[:-1]),
        ),
    ),
    "barrier deleted when it opens": (
        replace("rune.core.execution.transition:Transition._arrive", delete_open_barriers),
    ),
    "no dead edges": (
        replace(
            "rune.core.execution.routing:routes",
            lambda original: lambda node, fact: copy_with(original(node, fact), dead=()),
        ),
    ),
    "state before journal": (
        edit(
            "tests.simulation.worker:Worker._commit",
            (
                """
                decisions = [decision_for_fact(plan, stored)] if stored is not None else self._store_run(run)
                yield
                applied = store.apply(decisions, sim.now)
                self.running = None
                yield
                """,
                """
                decisions = [decision_for_fact(plan, stored)] if stored is not None else run.decisions
                applied = store.apply(decisions, sim.now)
                self.running = None
                yield
                decisions = decisions if stored is not None else self._store_run(run)
                yield
                """,
            ),
        ),
    ),
    "ack before publish": (replace("tests.simulation.worker:relay", clear_outbox_first),),
    "wait without timer": (
        replace("rune.core.execution.transition:Transition.wait_until", sleep_without_timer),
    ),
    "no fence": (replace("tests.simulation.store:Store.renew", renew_always),),
    "no finish timer": (replace("rune.core.execution.transition:Transition.finish", finish_without_timer),),
    "inline run without check of first fact": (
        edit(
            "tests.simulation.worker:Worker._store_run",
            (
                "execution.journal.record([*facts, *end])",
                "execution.journal.record([*facts, *end], require_first=False)",
            ),
        ),
    ),
    "timeout not journaled": (
        edit(
            "tests.simulation.worker:Worker._store_run",
            (
                "[each.fact for each in run.decisions if each.fact is not None]",
                """[
                    each.fact
                    for each in run.decisions
                    if each.fact is not None
                    and getattr(getattr(each.fact, "failure", None), "code", "") != "TIMEOUT"
                ]""",
            ),
        ),
    ),
    "race loser visible downstream": (skip("rune.core.execution.scope:visible"),),
    "fan-out window never refills": (
        edit(
            "rune.core.execution.transition:Transition.propagate_counts",
            ("refill and fan.next < fan.count", "False"),
        ),
    ),
    "error edge on success": (
        replace(
            "rune.core.plan.compiler:_outlets",
            lambda original: (
                lambda definition, node, type, out, _normal: original(definition, node, type, out, (out, ()))
            ),
        ),
        replace(
            "rune.core.plan.compiler:_node_plan",
            lambda original: (
                lambda *arguments: copy_with(plan := original(*arguments), normal=(plan.out, ()))
            ),
        ),
    ),
    "aggregator marks arrivals instead of items": (
        edit(
            "rune.core.execution.transition:Transition._collect_item",
            ("item * edges + self._plan.gather_position[effect.edge]", "fan.resolved"),
        ),
    ),
    "fold ignores pauses": (skip("rune.core.execution.fold:_Fold._apply_pause"),),
}

SIGNALS: dict[str, tuple[Change, ...]] = {
    "duplicate signal delivered": (
        replace("rune.core.execution.control:deliver_signal", deliver_duplicate_signals),
    ),
    "signal taken twice": (skip("tests.simulation.journal:Journal._is_signal_taken", False),),
    "fold drops undelivered signals": (skip("rune.core.execution.fold:deliver_signal"),),
    "fold delivers taken signals again": (
        replace("rune.core.execution.fold:_Fold._deliver_signals", deliver_taken_signals),
    ),
    "signal path ignored": (
        edit(
            "rune.core.execution.transition:Transition.route_signal",
            ("signal.path is None or path == signal.path", "True"),
        ),
    ),
    "signal resumes the newest wait": (
        edit("rune.core.execution.transition:Transition.route_signal", ("min(waiting)", "max(waiting)")),
    ),
    "early signal ignored": (
        replace("rune.core.execution.transition:Transition.wait_for_signal", hide_early_signals),
    ),
    "unused signal not returned": (
        edit("rune.core.execution.transition:apply", ("act.route_signal(delivered)", "None")),
    ),
    "failed wait still receives signals": (
        edit("rune.core.execution.transition:_retry", ("if live.waiting: _stop_waiting(act, live)", "")),
    ),
    "timeout after signal": (
        replace("rune.core.execution.transition:Transition.wake", keep_deadline),
        edit("rune.core.execution.transition:Transition.give_signal", ("self.disarm(live)", "")),
        replace("rune.core.execution.control:_resume", expire_resumed_tokens),
    ),
    "cancelled region keeps signal waits": (
        edit(
            "rune.core.execution.transition:Transition.cancel_region",
            (
                "live.waiting and live.token.node in node.region",
                "live.waiting and live.signal is None and live.token.node in node.region",
            ),
        ),
    ),
}

OPERATIONS: dict[str, tuple[Change, ...]] = {
    "pause does not park tokens": (replace("rune.core.execution.transition:Transition.emit", ignore_pause),),
    "wake during pause": (replace("rune.core.execution.transition:Transition.wake", ignore_pause),),
    "resume leaves tokens parked": (
        replace("rune.core.execution.control:change_pause", leave_tokens_parked),
    ),
    "pause counts toward timeout": (replace("rune.core.execution.control:_deadline", count_time_in_pauses),),
    "effect start ignored": (
        replace("tests.simulation.worker:Worker._record_effect_start", start_effect_again),
    ),
    "unknown outcome retried": (
        edit(
            "rune.core.execution.retry:is_retried",
            (
                'if attempt >= retry.max_attempts or error.code == "UNKNOWN_OUTCOME": return False',
                "if attempt >= retry.max_attempts: return False",
            ),
        ),
    ),
    "max_parallel exceeded by one": (replace("tests.simulation.store:Store._is_full", admit_one_more),),
    "held-back token never released": (
        edit("tests.simulation.store:Store._release_held_back", ("len(found) >= free", "found or free > 0")),
    ),
    "child end not reported after crash": (
        replace("tests.simulation.children:_is_end_unreported", report_only_to_ended_parents),
    ),
    "child started after end of parent": (
        edit(
            "tests.simulation.children:_create_child",
            (
                "parent.journal.end is not None or _has_attempt_ended(parent, token)"
                " or child in sim.refused_children",
                "_has_attempt_ended(parent, token) or child in sim.refused_children",
            ),
        ),
    ),
    "child started after end of attempt": (
        edit(
            "tests.simulation.children:_create_child",
            (
                "parent.journal.end is not None or _has_attempt_ended(parent, token)"
                " or child in sim.refused_children",
                "parent.journal.end is not None",
            ),
        ),
    ),
    "child not cancelled with its attempt": (skip("tests.simulation.worker:cancel_child_of", ()),),
    "kept result depends on rerun token": (skip("rune.core.execution.rerun:_StaleTokens._edges_used", ()),),
    "aggregator kept although item runs again": (
        skip("rune.core.execution.rerun:_StaleTokens._mark_aggregators"),
    ),
    "kept result runs again": (skip("rune.core.execution.transition:_is_recorded", False),),
    "execution ends with open tokens": (
        replace("rune.core.execution.inline_run:_is_only_activity", ignore_other_tokens),
    ),
}

LATENESS: dict[str, tuple[Change, ...]] = {
    "late command is executed": (skip("tests.simulation.store:Store.is_late", False),),
    "activation from the journal leaves no mark": (
        edit("tests.simulation.store:Store.refold", ("if not state.ended: self.mark(now)", "")),
    ),
    "end without a state leaves no mark": (
        edit(
            "tests.simulation.store:Store.close",
            ("if not self.holds_state and (not self.closed): self.mark(now)", ""),
        ),
    ),
    "lease not compared before the node runs": (skip("tests.simulation.worker:Worker._may_begin", True),),
    "lease counts from the answer": (
        edit(
            "tests.simulation.worker:Worker._handle",
            ("self.lease_until = asked + LEASE", "self.lease_until = sim.now + LEASE"),
        ),
    ),
    "ready token waits for a timer after loss": (
        edit(
            "rune.core.execution.fold:due_after_loss",
            ("state.ended or applied.emitted or applied.finish is not None", "state.ended"),
        ),
    ),
    "nodes of an inline run share one time": (
        replace("tests.simulation.node_runner:NodeRunner._prepared", share_one_time),
    ),
    "write without an answer counts as written": (
        replace("tests.simulation.worker:Worker._store_run", commit_without_answer),
    ),
}

SIZES: dict[str, tuple[Change, ...]] = {
    "payload of a join has no limit": (
        edit("rune.core.execution.scope:ValueSource._join", ("size > self.limits.output_bytes", "False")),
    ),
    "join counts only its own members": (
        edit(
            "rune.core.execution.scope:ValueSource._join",
            (
                "self.size(origin) if inner is None else inner.size",
                "self.size(origin) if inner is None else 0",
            ),
        ),
    ),
    "join copies what arrived": (
        edit(
            "rune.core.execution.scope:ValueSource._built",
            ("each.joins[name].value", "__import__('copy').deepcopy(each.joins[name].value)"),
        ),
    ),
    "joins inside of each other have no limit": (
        edit("rune.core.execution.scope:ValueSource._join", ("nesting > self.limits.json_depth", "False")),
    ),
}

_FILTER = "rune.runtime.state_wrapper:LostTokensFilter"

BACKLOGS: dict[str, tuple[Change, ...]] = {
    "token in a backlog sent again by its age": (
        edit(f"{_FILTER}._lost", ("is_empty or begin <= delivered", "True")),
    ),
    "tokens of a rebuilt execution sent at once": (
        edit(f"{_FILTER}.due_timers", ("each.due is None", "False")),
    ),
    "message that was sent before the search ends it": (
        edit(f"{_FILTER}._lost", ("begin <= delivered", "begin - 60_000 <= delivered")),
    ),
    "lost token is never found": (edit(f"{_FILTER}._lost", ("is_empty or begin <= delivered", "False")),),
}

MUTANTS = {**RULES, **SIGNALS, **OPERATIONS, **LATENESS, **SIZES, **BACKLOGS}
HANDWRITTEN_ONLY = (
    "signal taken twice",
    "unused signal not returned",
    "kept result runs again",
    "child started after end of attempt",
    "pause counts toward timeout",
)
"""Mutants that only seeds with a handwritten model detect."""


class MutantResult(NamedTuple):
    """Result of the simulator for one mutant."""

    name: str
    is_detected: bool
    by_known_seed: bool
    seconds: float
    detail: str


def run_mutant(name: str, seeds: int) -> MutantResult:
    """Run the simulator with one mutant: first the seed that detected it before, then all seeds."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rune-mutant-") as folder:
        variables = environment("tests.simulation.mutants:MUTANTS", name, Path(folder))
        variables["PYTHONDONTWRITEBYTECODE"] = "1"
        process = run_simulator(name, variables, DETECTING_SEEDS.get(name, 0), 1)
        first = is_detected(process)
        if not first:
            process = run_simulator(name, variables, 0, seeds)
    lines = process.stdout.splitlines()
    seed = next((line.partition(":")[0] for line in lines if line.startswith("seed ")), "")
    detail = next((line.strip() for line in lines if "Violation" in line or "Error" in line), "")
    seconds = time.perf_counter() - start
    return MutantResult(
        name, is_detected(process), first, seconds, f"{seed}: {detail or process.stderr[-300:]}"
    )


def run_simulator(
    name: str, variables: dict[str, str], first: int, seeds: int
) -> subprocess.CompletedProcess[str]:
    """Run seeds up to the first violation."""
    command = [
        sys.executable,
        "-m",
        "tests.simulation",
        "--seeds",
        str(seeds),
        "--first",
        str(first),
        "--jobs",
        "1",
    ]
    command += ["--stop", *(["--handwritten"] if name in HANDWRITTEN_ONLY else [])]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


def is_detected(process: subprocess.CompletedProcess[str]) -> bool:
    return process.returncode == 1 and "simulator:" in process.stdout


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="mutants to run (all)")
    parser.add_argument("--seeds", type=int, default=6_000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = options.names or list(MUTANTS)
    undetected: list[str] = []
    stale: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda name: run_mutant(name, options.seeds), names):
            outcome = "detected  " if result.is_detected else "UNDETECTED"
            text = result.detail.strip()[:100]
            print(f"{outcome}  {result.name:42} {result.seconds:5.1f} s  {text}", flush=True)
            undetected += [] if result.is_detected else [result.name]
            stale += [result.name] if result.is_detected and not result.by_known_seed else []
    print(f"mutants: {len(names) - len(undetected)} of {len(names)} detected")
    if stale:  # the search through all seeds takes up to a minute each
        print(f"tests/simulation/detecting_seeds.py is out of date for: {', '.join(stale)}")
    return 1 if undetected else 0


if __name__ == "__main__":
    sys.exit(main())
