"""Mutants: one wrong line each, in the rules or in the order of a commit. The simulator must notice all.

python -m tests.sim.mutants [--seeds 4000] [--jobs 2] [NAME…]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[2]
CORE = "src/rune/core/"


class Patch(NamedTuple):
    file: str
    old: str
    new: str


MUTANTS: dict[str, tuple[Patch, ...]] = {
    "no dedupe": (
        Patch(
            CORE + "apply.py",
            "    if decision.node in scope.done and (live is None or fact is not None):\n",
            "    if decision.node in scope.done and live is None and fact is None:\n",
        ),
        Patch(
            CORE + "apply.py", "        if not _gives_up(node, scope, fact):\n            return False\n", ""
        ),
    ),
    "counter for set": (
        Patch(
            CORE + "apply.py",
            "    if decision.node in scope.done and (live is None or fact is not None):\n"
            "        return _unchanged(act)\n",
            "    if decision.node in scope.done and (live is None or fact is not None):\n"
            "        arrivals = [each for each in decision.effects if type(each).__name__ == 'Arrive']\n"
            "        act.perform(scope, arrivals)\n"
            "        act.settle(scope)\n"
            "        return act.applied\n",
        ),
        Patch(
            CORE + "transition.py",
            "        if effect.edge in barrier.arrivals:\n            return\n"
            "        barrier.arrivals[effect.edge] = ",
            "        edge = next((e for e in node.in_edges if e not in barrier.arrivals), effect.edge)\n"
            "        barrier.arrivals[edge] = ",
        ),
    ),
    "key without lineage": (
        Patch(CORE + "fact.py", 'return ("result", node, path)', 'return ("result", node, path[:-1])'),
        Patch("tests/sim/journal.py", '("result", node, path)', '("result", node, path[:-1])'),
    ),
    "delete on fire": (
        Patch(
            CORE + "transition.py",
            "        barrier.opened = True\n",
            "        del scope.barriers[node.index]\n",
        ),
        Patch(
            CORE + "transition.py",
            "        if node.index in scope.done:\n            return\n        barrier = ",
            "        barrier = ",
        ),
    ),
    "no dead edges": (
        Patch(
            CORE + "routing.py", "        bury(plan, effects, found.dead, found.cause)\n", "        pass\n"
        ),
    ),
    "state before journal": (
        Patch(
            "tests/sim/worker.py",
            "        decisions = [follow(world.plan, stored)] if stored is not None else self._journal(run)\n"
            "        yield\n        applied = world.store.apply(decisions, world.now)\n        yield\n",
            "        decisions = [follow(world.plan, stored)] if stored is not None else run.decisions\n"
            "        applied = world.store.apply(decisions, world.now)\n        yield\n"
            "        decisions = decisions if stored is not None else self._journal(run)\n        yield\n",
        ),
    ),
    "ack before publish": (
        Patch(
            "tests/sim/worker.py",
            "        yield\n        world.completions.append(row)\n",
            "        world.journal.outbox.remove(row)\n"
            "        yield\n        world.completions.append(row)\n",
        ),
    ),
    "no timer": (
        Patch(
            CORE + "apply.py",
            "    if due is not None:\n        act.applied.armed.append((own_timer(live), due))\n",
            "",
        ),
    ),
    "no fence": (
        Patch(
            "tests/sim/store.py",
            "        if held is not lease or held.until <= now:\n            return False\n",
            "",
        ),
        Patch("tests/sim/store.py", "        held.until = now + LEASE\n", ""),
    ),
    "no finish timer": (
        Patch(
            CORE + "transition.py",
            '            self.applied.armed.append((Timer("finish"), self._at + FINISH_GRACE))\n',
            "",
        ),
    ),
    "run without head check": (
        Patch(
            "tests/sim/worker.py", "world.journal.record(facts)", "world.journal.record(facts, head=False)"
        ),
    ),
    "timeout without row": (
        Patch(
            "tests/sim/worker.py",
            "        facts = [each.fact for each in run.decisions if each.fact is not None]\n",
            "        found = [each.fact for each in run.decisions if each.fact is not None]\n"
            "        failures = [getattr(each, 'failure', None) for each in found]\n"
            "        codes = [getattr(each, 'code', '') for each in failures]\n"
            "        facts = [each for each, code in zip(found, codes) if code != 'TIMEOUT']\n",
        ),
    ),
    "loser visible behind a race": (
        Patch(
            CORE + "context.py",
            "    if not plan.nodes[token.node].raced:\n        return None\n",
            "    return None\n",
        ),
    ),
    "window never slides": (
        Patch(
            CORE + "transition.py",
            "            if refill and fan.next < fan.count:\n",
            "            if False:\n",
        ),
    ),
    "error edge on success": (
        Patch(CORE + "compile.py", "    normal = (success, errors)\n", "    normal = (out, ())\n"),
    ),
    "marks count arrivals, not items": (
        Patch(
            CORE + "transition.py",
            "place = item * edges + self._plan",
            "place = fan.resolved + 0 * self._plan",
        ),
    ),
    "fold forgets pauses": (Patch(CORE + "fold.py", "            self._park(fact)\n", "            pass\n"),),
}


def hunt(name: str, seeds: int) -> tuple[str, bool, float, str]:
    """Put one mutant into a copy of the project and let the simulator look for it."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rune-mutant-") as folder:
        copy = Path(folder)
        for part in ("src", "tests"):
            shutil.copytree(TOP / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for patch in MUTANTS[name]:
            target = copy / patch.file
            text = target.read_text()
            if text.count(patch.old) != 1:
                return name, False, 0.0, f"the patch no longer fits {patch.file}"
            target.write_text(text.replace(patch.old, patch.new))
        command = [sys.executable, "-m", "tests.sim", "--seeds", str(seeds), "--jobs", "1", "--stop"]
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    caught = done.returncode == 1 and "simulator:" in done.stdout
    detail = next((line for line in done.stdout.splitlines() if "Violation" in line or "Error" in line), "")
    return name, caught, time.perf_counter() - began, detail or done.stderr[-300:]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="mutants to try (all)")
    parser.add_argument("--seeds", type=int, default=4_000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = options.names or list(MUTANTS)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda name: hunt(name, options.seeds), names))
    for name, caught, took, detail in results:
        print(f"{'caught' if caught else 'ALIVE '}  {name:32} {took:5.1f} s  {detail.strip()[:100]}")
    alive = [name for name, caught, _, _ in results if not caught]
    print(f"mutants: {len(results) - len(alive)} of {len(results)} caught")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
