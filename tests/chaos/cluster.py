"""Faults of a cluster under load, then the verdict:

python -m tests.chaos.cluster --workers 200 --schedulers 50 --redis 50 --wiped 25 --cut 25 --postgres 50 --away 3
    [--scale 0.1] [--minutes 3] [--rebuild 2000] [--seed 1]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.chaos.closing import announced, counting, rested, say, scaled
from tests.chaos.cluster_verdict import TIDY, Verdict
from tests.chaos.rebuild import rebuilt
from tests.chaos.stand import Stand, pause, stand
from tests.support.services.fleet import Role

KINDS = ("workers", "schedulers", "redis", "wiped", "cut", "postgres", "away")
COUNTS = dict(zip(KINDS, (200, 50, 50, 25, 25, 50, 3), strict=True))
ROLES: tuple[Role, ...] = ("worker", "scheduler")
EACH = 2  # so many of each role
GOING = 3  # so many executions must end after a fault before the next
REBUILT_WITHIN = 20.0  # s
STUCK = 90.0  # s without an end after a fault: that is no recovery


class Campaign:
    """Faults of one kind after the other."""

    def __init__(self, broken: Stand, rng: Random, minutes: float) -> None:
        self._stand = broken
        self._rng = rng
        self._minutes = minutes

    def phase(self, kind: str, count: int) -> Iterator[str]:
        """One kind, so often; yields what is worth a line."""
        fault: Callable[[int], None] = getattr(self, f"_{kind}")
        began, ended = time.monotonic(), self._stand.ended()
        slowest = 0.0
        for number in range(count):
            pause(self._rng.uniform(0.05, 0.5))
            broke = time.monotonic()
            fault(number)
            goal = self._stand.ended() + GOING
            self._stand.wait_for(
                lambda goal=goal: self._stand.ended() >= goal,
                f"nothing goes on after {kind} number {number + 1}",
                STUCK,
            )
            slowest = max(slowest, time.monotonic() - broke)
        self._stand.complete()  # who comes while a store is away is turned away
        self._check_complete(kind)
        took, ended = time.monotonic() - began, self._stand.ended() - ended
        yield f"{kind}: {count} in {took:.0f} s, {ended} executions ended, at most {slowest:.1f} s until it went on"

    def _check_complete(self, kind: str) -> None:
        """Nobody leaves because of a fault: who does would leave the rest of the campaign easier than it says."""
        for role in ROLES:
            there = len(self._stand.fleet.of(role))
            assert there == EACH, f"after {kind} {there} of {EACH} are there as {role}"

    def _workers(self, number: int) -> None:
        self._stand.kill("worker", self._rng.randrange(EACH))

    def _schedulers(self, number: int) -> None:
        self._stand.kill("scheduler", self._rng.randrange(EACH))

    def _redis(self, number: int) -> None:
        self._stand.redis.restart()

    def _wiped(self, number: int) -> None:
        if number % 2:
            self._stand.redis.ask("FLUSHALL")
        else:
            self._stand.redis.wipe()

    def _cut(self, number: int) -> None:
        self._stand.redis.cut(self._rng.uniform(0.8, 1.5))

    def _postgres(self, number: int) -> None:
        self._stand.database.down()
        self._stand.database.up()

    def _away(self, number: int) -> None:
        self._stand.database.down()
        pause(self._minutes * 60)
        self._stand.database.up()


def campaign(
    folder: Path,
    counts: dict[str, int],
    seed: int,
    minutes: float,
    *,
    say: Callable[[str], None] = print,
    tidy: float = TIDY,
) -> Verdict:
    """Break it, let it come to rest, judge."""
    with stand(folder, workers=EACH, schedulers=EACH) as broken:
        broken.load()
        run = Campaign(broken, Random(seed), minutes)
        wrong: list[str] = []
        try:
            for kind in KINDS:
                for line in run.phase(kind, counts[kind]) if counts[kind] else ():
                    say(line)
        except AssertionError as stuck:
            wrong.append(str(stuck))
        return rested(broken, wrong, "rune-chaos-logs", tidy=tidy)


def main() -> int:
    parser = counting(__doc__, COUNTS)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long PostgreSQL is away")
    parser.add_argument(
        "--rebuild", type=int, default=0, help="only: so many running executions after a wipe"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rune-chaos-") as folder:
        if options.rebuild:
            return _rebuild(Path(folder), options.rebuild)
        began = time.perf_counter()
        counts = scaled(options, COUNTS)
        found = campaign(Path(folder), counts, options.seed, options.minutes, say=say)
    return announced("chaos-cluster", sum(counts.values()), found, began)


def _rebuild(folder: Path, count: int) -> int:
    found = rebuilt(folder, count)
    for each in found.wrong[:20]:
        print(each)
    print(
        f"rebuild: {count:,} running executions are there again {found.states:.1f} s after the wipe, and had ended"
        f" after {found.ended:.1f} s; {len(found.wrong)} violations"
    )
    return 1 if found.wrong or found.states > REBUILT_WITHIN else 0


if __name__ == "__main__":
    sys.exit(main())
