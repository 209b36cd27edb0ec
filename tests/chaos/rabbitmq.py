"""Faults of the broker under a cluster's load, then the verdict:

python -m tests.chaos.rabbitmq --killed 50 --restarted 50 --emptied 10 --deleted 25 --alarm 10 --cut 20 --overlong 2
    [--scale 0.1] [--least 10] [--most 60] [--seed 1]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import aio_pika

from tests.chaos.closing import announced, counting, rested, say, scaled
from tests.chaos.cluster_verdict import Verdict
from tests.chaos.rabbitmq_overlong import CONFIG, overlong
from tests.chaos.stand import Stand, pause, stand
from tests.chaos.wire import Wire, wire
from tests.support.services.rabbitmq import Broker, new_broker

COUNTS = {"killed": 50, "restarted": 50, "emptied": 10, "deleted": 25, "alarm": 10, "cut": 20, "overlong": 2}
QUEUES = (
    "workflow.execution",
    "workflow.execution.high",
    "workflow.execution.retry.5s",
    "workflow.node.status",
)
WORKERS = 2
GOING = 3  # so many executions must end after a fault before the next
BACK = 30.0  # s after a fault is over within which every worker consumes again
STUCK = (
    120.0  # s without an end after a fault: hints that were lost with a queue are sent again after a minute
)
ALARM = 12.0  # s, longer than the deadline of a publish


class Campaign:
    """Faults of one kind after the other. Each answers when it is over."""

    def __init__(
        self, broken: Stand, broker: Broker, line: Wire, rng: Random, cut: tuple[float, float]
    ) -> None:
        self._stand = broken
        self._broker = broker
        self._wire = line
        self._rng = rng
        self._cut_for = cut

    def phase(self, kind: str, count: int) -> Iterator[tuple[str, float]]:
        """One kind, so often; yields a line, and the longest time until all workers consumed again."""
        fault: Callable[[int], None] = getattr(self, f"_{kind}")
        began, ended = time.monotonic(), self._stand.ended()
        slowest = back = 0.0
        for number in range(count):
            pause(self._rng.uniform(0.05, 0.5))
            fault(number)
            over, goal = time.monotonic(), self._stand.ended() + GOING
            back = max(
                back, self._stand.wait_for(self._consume, f"no consumers after {kind} {number + 1}", STUCK)
            )
            self._stand.wait_for(
                lambda goal=goal: self._stand.ended() >= goal,
                f"nothing goes on after {kind} number {number + 1}",
                STUCK,
            )
            slowest = max(slowest, time.monotonic() - over)
        took, ended = time.monotonic() - began, self._stand.ended() - ended
        yield (
            f"{kind}: {count} in {took:.0f} s, {ended} executions ended, consumers were back within {back:.1f} s,"
            f" executions ended again within {slowest:.1f} s",
            back,
        )

    def _consume(self) -> bool:
        """Whether every worker reads its queue."""
        return asyncio.run(_consumers(self._broker.url())) >= WORKERS

    def _killed(self, number: int) -> None:
        self._broker.restart()

    def _restarted(self, number: int) -> None:
        self._broker.control("stop_app")
        self._broker.control("start_app")

    def _emptied(self, number: int) -> None:
        self._broker.restart(empty=True)

    def _deleted(self, number: int) -> None:
        self._broker.api("DELETE", f"queues/%2F/{QUEUES[number % len(QUEUES)]}")

    def _alarm(self, number: int) -> None:
        self._broker.alarm(memory_low=True)
        pause(ALARM)
        self._broker.alarm(memory_low=False)

    def _overlong(self, number: int) -> None:
        overlong(self._stand, number)

    def _cut(self, number: int) -> None:
        self._wire.cut()
        pause(self._rng.uniform(*self._cut_for))
        self._wire.mend()


async def _consumers(url: str) -> int:
    """How many read the main queue; none if it cannot be asked."""
    try:
        async with asyncio.timeout(5.0), await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(QUEUES[0], passive=True)
            return queue.declaration_result.consumer_count or 0
    except (OSError, TimeoutError, aio_pika.exceptions.AMQPError):
        return 0


def campaign(
    folder: Path,
    counts: dict[str, int],
    seed: int,
    cut: tuple[float, float] = (10.0, 60.0),
    *,
    say: Callable[[str], None] = print,
) -> Verdict:
    """Break it, let it come to rest, judge."""
    broker = new_broker(CONFIG)
    with wire(broker.port) as line:
        url = f"amqp://guest:guest@127.0.0.1:{line.port}/%2F?heartbeat=5"
        try:
            with stand(folder, environment={"RUNE_QUEUE": url, "RUNE_HTTP_ALLOW": "127.0.0.1"}) as broken:
                broken.load()
                return _broken(broken, Campaign(broken, broker, line, Random(seed), cut), counts, say)
        finally:
            broker.stop()


def _broken(broken: Stand, run: Campaign, counts: dict[str, int], say: Callable[[str], None]) -> Verdict:
    wrong: list[str] = []
    try:
        for kind, count in counts.items():
            for told, back in run.phase(kind, count) if count else ():
                say(told)
                if back > BACK:
                    wrong.append(f"{kind}: it took {back:.1f} s until the consumers were back")
    except AssertionError as stuck:
        wrong.append(str(stuck))
    return rested(broken, wrong, "rune-chaos-rabbitmq-logs", tidy=0.0)


def main() -> int:
    parser = counting(__doc__, COUNTS)
    parser.add_argument("--least", type=float, default=10.0, help="seconds for which the network is cut")
    parser.add_argument("--most", type=float, default=60.0, help="the same")
    options = parser.parse_args()
    began = time.perf_counter()
    counts = scaled(options, COUNTS)
    with tempfile.TemporaryDirectory(prefix="rune-chaos-") as folder:
        cut = (options.least, options.most)
        found = campaign(Path(folder), counts, options.seed, cut, say=say)
    return announced("chaos-rabbitmq", sum(counts.values()), found, began)


if __name__ == "__main__":
    sys.exit(main())
