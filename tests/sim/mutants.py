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

from tests.sim.noticed import NOTICED

TOP = Path(__file__).resolve().parents[2]
CORE = "src/rune/core/"
SIM = "tests/sim/"


class Patch(NamedTuple):
    file: str
    old: str
    new: str


RULES: dict[str, tuple[Patch, ...]] = {
    "no dedupe": (
        Patch(
            CORE + "apply.py",
            "    if decision.node in scope.done and (live is None or fact is not None):\n",
            "    if decision.node in scope.done and live is None and fact is None:\n",
        ),
        Patch(
            CORE + "apply.py",
            "        if not _gives_up(node, scope, fact) and not _was_made(act.state, node, scope, fact):\n"
            "            return False\n",
            "",
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
        Patch(SIM + "journal.py", '("result", node, path)', '("result", node, path[:-1])'),
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
            SIM + "worker.py",
            "        decisions = [follow(plan, stored)] if stored is not None else self._journal(run)\n"
            "        yield\n        applied = store.apply(decisions, world.now)\n"
            "        self.running = None\n        yield\n",
            "        decisions = [follow(plan, stored)] if stored is not None else run.decisions\n"
            "        applied = store.apply(decisions, world.now)\n        self.running = None\n        yield\n"
            "        decisions = decisions if stored is not None else self._journal(run)\n        yield\n",
        ),
    ),
    "ack before publish": (
        Patch(
            SIM + "worker.py",
            "        yield\n        execution.completions.append(row)\n",
            "        execution.journal.outbox.remove(row)\n"
            "        yield\n        execution.completions.append(row)\n",
        ),
    ),
    "no timer": (
        Patch(
            CORE + "transition.py",
            "        if due is not None:\n            self.applied.armed.append((own_timer(live), due))\n",
            "",
        ),
    ),
    "no fence": (
        Patch(
            SIM + "store.py",
            "        if held is not lease or held.until <= now:\n            return False\n",
            "",
        ),
        Patch(SIM + "store.py", "        held.until = now + LEASE\n", ""),
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
            SIM + "worker.py",
            "execution.journal.record([*facts, *end])",
            "execution.journal.record([*facts, *end], head=False)",
        ),
    ),
    "timeout without row": (
        Patch(
            SIM + "worker.py",
            "        facts: list[Fact] = [each.fact for each in run.decisions if each.fact is not None]\n",
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

SIGNALS: dict[str, tuple[Patch, ...]] = {
    "signal heard twice": (
        Patch(
            CORE + "control.py", "    if fact.id in state.heard or state.ended:\n", "    if state.ended:\n"
        ),
    ),
    "signal taken twice": (
        Patch(SIM + "journal.py", "                raise Spent\n", "                pass\n"),
    ),
    "fold drops unheeded signals": (
        Patch(
            CORE + "fold.py", "                hear(self._plan, self.state, fact)\n", "                pass\n"
        ),
    ),
    "fold gives signals out again": (
        Patch(CORE + "fold.py", "            if fact.id in self._taken:\n", "            if False:\n"),
    ),
    "signal for an item goes to any": (
        Patch(CORE + "transition.py", "            if signal.path is None or path == signal.path\n", ""),
    ),
    "signal goes to the youngest": (Patch(CORE + "transition.py", "min(waiting)", "max(waiting)"),),
    "early signal is not looked for": (
        Patch(
            CORE + "transition.py",
            "        for signal in self.state.unheeded:\n",
            "        for signal in ():\n",
        ),
    ),
    "given signal is not given back": (
        Patch(CORE + "apply.py", "        act.hand_on(given)", "        pass"),
    ),
    "failed wait listens on": (
        Patch(
            CORE + "apply.py",
            "    if live.waiting:\n        _stop_waiting(act, live)\n    live.token",
            "    live.token",
        ),
    ),
    "timeout after the signal": (
        Patch(
            CORE + "transition.py",
            "        live.waiting, live.due, live.signal, live.deadline = False, None, None, None\n",
            "        live.waiting, live.due, live.signal = False, None, None\n",
        ),
        Patch(
            CORE + "transition.py",
            "        self.disarm(live)\n        live.token = ",
            "        live.token = ",
        ),
        Patch(
            CORE + "wake.py",
            "    if live is None or not live.waiting or live.wakes_at is None or own_timer(live) != timer:\n",
            "    if live is not None and not live.waiting and live.wakes_at and live.token.signal:\n"
            "        live.token = replace(live.token, fate=Fate.OVERDUE)\n"
            "    if live is None or not live.waiting or live.wakes_at is None or own_timer(live) != timer:\n",
        ),
    ),
    "cancelled region lets waits be": (
        Patch(
            CORE + "transition.py",
            "                if live.waiting and live.token.node in node.region:\n",
            "                if live.waiting and live.signal is None and live.token.node in node.region:\n",
        ),
    ),
}

ACTS: dict[str, tuple[Patch, ...]] = {
    "pause does not park": (
        Patch(
            CORE + "transition.py",
            "        paused = self.state.paused_at is not None\n",
            "        paused = False\n",
        ),
    ),
    "woken in a pause": (
        Patch(
            CORE + "transition.py",
            "        live.parked = self.state.paused_at is not None\n",
            "        live.parked = False\n",
        ),
    ),
    "resume forgets what was parked": (
        Patch(CORE + "control.py", "                live.parked = False\n", ""),
    ),
    "time stands not still in a pause": (
        Patch(
            CORE + "wake.py",
            "    due = state.started_at + (plan.timeout or 0) + paused_since(state, state.started_at)\n"
            "    if state.paused_at is not None:\n        return\n",
            "    due = state.started_at + (plan.timeout or 0)\n",
        ),
    ),
    "begun is ignored": (
        Patch(SIM + "worker.py", "        return stored is mine\n", "        return True\n"),
    ),
    "unknown outcome is tried again": (
        Patch(CORE + "retry.py", '    if error.code == "UNKNOWN_OUTCOME":\n        return False\n', ""),
    ),
    "no limit": (Patch(SIM + "store.py", "len(memory.claims) >= most", "len(memory.claims) > most"),),
    "held back for good": (
        Patch(
            SIM + "store.py", "            if len(found) >= free:\n", "            if found or free > 0:\n"
        ),
    ),
    "child end not told after a crash": (
        Patch(SIM + "family.py", "    over = each.journal.end is not None or world", "    over = world"),
    ),
    "child of an ended parent": (
        Patch(SIM + "family.py", "    if parent.journal.end is not None or", "    if"),
    ),
    "child of an ended token": (
        Patch(SIM + "family.py", " or _is_over(parent, token) or child in world.refused:", ":"),
    ),
    "abandoned child goes on": (
        Patch(
            SIM + "worker.py",
            "            yield from abandon(world, self.execution, token)\n",
            "            pass\n",
        ),
    ),
    "kept stands on what runs again": (
        Patch(
            CORE + "rerun.py",
            "        return any((self._plan.src[edge], path) in self._stale for edge in self._opened_by(node, path))\n",
            "        return False\n",
        ),
    ),
    "list kept although an item runs again": (
        Patch(CORE + "rerun.py", "            self._tell_aggregators(node)\n", ""),
    ),
    "kept runs again": (Patch(CORE + "apply.py", " and not _was_made(act.state, node, scope, fact)", ""),),
    "end before the end": (Patch(CORE + "ending.py", "root.count != 1 or len(state.scopes) != 1", "False"),),
}

MUTANTS = {**RULES, **SIGNALS, **ACTS}
SHY = (
    "signal taken twice",
    "given signal is not given back",
    "kept runs again",
    "child of an ended token",
    "time stands not still in a pause",
)
"""Those that show only where a definition made by hand provokes them."""


def copied(where: Path) -> Path:
    """The project as far as the simulator needs it, compiled, so that no hunt has to do it again."""
    for part in ("src", "tests"):
        shutil.copytree(TOP / part, where / part, ignore=shutil.ignore_patterns("__pycache__"))
    compiling = [sys.executable, "-m", "compileall", "-q", "src", "tests/sim", "tests/oracle"]
    subprocess.run(compiling, cwd=where, check=True)
    return where


def hunt(name: str, seeds: int, base: Path) -> tuple[str, bool, float, str]:
    """Put one mutant into a copy of the project and let the simulator look for it."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=base.parent) as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(base, copy, copy_function=os.link)
        for patch in MUTANTS[name]:
            target = copy / patch.file
            text = target.read_text()
            if text.count(patch.old) != 1:
                return name, False, 0.0, f"the patch no longer fits {patch.file}"
            target.unlink()  # its text is shared with the other copies
            target.write_text(text.replace(patch.old, patch.new))
            for stale in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
                stale.unlink()
        done = _look(copy, name, NOTICED.get(name, 0), 1)
        if not _caught(done):
            done = _look(copy, name, 0, seeds)
    lines = done.stdout.splitlines()
    seed = next((line.partition(":")[0] for line in lines if line.startswith("seed ")), "")
    detail = next((line.strip() for line in lines if "Violation" in line or "Error" in line), "")
    return name, _caught(done), time.perf_counter() - began, f"{seed}: {detail or done.stderr[-300:]}"


def _look(copy: Path, name: str, first: int, seeds: int) -> subprocess.CompletedProcess[str]:
    """Run some seeds, to the first that breaks a promise."""
    command = [sys.executable, "-m", "tests.sim", "--seeds", str(seeds), "--first", str(first), "--jobs", "1"]
    command += ["--stop", *(["--known"] if name in SHY else [])]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


def _caught(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 1 and "simulator:" in done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="mutants to try (all)")
    parser.add_argument("--seeds", type=int, default=6_000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = options.names or list(MUTANTS)
    alive = []
    with (
        tempfile.TemporaryDirectory(prefix="rune-mutants-") as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        base = copied(Path(folder) / "base")
        for name, caught, took, detail in pool.map(lambda name: hunt(name, options.seeds, base), names):
            verdict = "caught" if caught else "ALIVE "
            print(f"{verdict}  {name:38} {took:5.1f} s  {detail.strip()[:100]}", flush=True)
            alive += [] if caught else [name]
    print(f"mutants: {len(names) - len(alive)} of {len(names)} caught")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
