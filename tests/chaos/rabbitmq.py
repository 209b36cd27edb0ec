"""Faults of the broker under load, then checks:

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

from tests.chaos.breakable_cluster import BreakableCluster, breakable_cluster, pause
from tests.chaos.campaigns import campaign_parser, print_line, report, scaled_counts, settle_and_check
from tests.chaos.cluster_checks import Findings
from tests.chaos.cuttable_proxy import CuttableProxy, running_proxy
from tests.chaos.rabbitmq_overlong import CONFIG, run_overlong_node
from tests.support.services.rabbitmq import Broker, new_broker

COUNTS = {"killed": 50, "restarted": 50, "emptied": 10, "deleted": 25, "alarm": 10, "cut": 20, "overlong": 2}
QUEUES = (
    "workflow.execution",
    "workflow.execution.high",
    "workflow.execution.retry.5s",
    "workflow.node.status",
)
WORKERS = 2
MIN_ENDED = 3  # executions that must end between two faults
RECONNECT_TIMEOUT_S = 30.0  # until every worker consumes again
# Until executions end again after a fault: tokens that were lost with a queue are sent again after a minute.
RECOVERY_TIMEOUT_S = 120.0
ALARM_S = 12.0  # longer than the timeout of a publish


class Campaign:
    """Causes faults of one kind after the other. Each method returns when its fault is over."""

    def __init__(
        self,
        cluster: BreakableCluster,
        broker: Broker,
        proxy: CuttableProxy,
        rng: Random,
        cut: tuple[float, float],
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._proxy = proxy
        self._rng = rng
        self._cut_for = cut

    def phase(self, kind: str, count: int) -> Iterator[tuple[str, float]]:
        """Cause faults of one kind; yield a summary and the longest time until all workers consumed again."""
        fault: Callable[[int], None] = getattr(self, f"_{kind}")
        began, ended = time.monotonic(), self._cluster.ended()
        slowest = back = 0.0
        for number in range(count):
            pause(self._rng.uniform(0.05, 0.5))
            fault(number)
            over, goal = time.monotonic(), self._cluster.ended() + MIN_ENDED
            back = max(
                back,
                self._cluster.wait_for(
                    self._consume, f"no consumers after {kind} {number + 1}", RECOVERY_TIMEOUT_S
                ),
            )
            self._cluster.wait_for(
                lambda goal=goal: self._cluster.ended() >= goal,
                f"no execution ended after {kind} number {number + 1}",
                RECOVERY_TIMEOUT_S,
            )
            slowest = max(slowest, time.monotonic() - over)
        took, ended = time.monotonic() - began, self._cluster.ended() - ended
        yield (
            f"{kind}: {count} in {took:.0f} s, {ended} executions ended, consumers were back within {back:.1f} s,"
            f" executions ended again within {slowest:.1f} s",
            back,
        )

    def _consume(self) -> bool:
        """Return whether every worker consumes."""
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
        pause(ALARM_S)
        self._broker.alarm(memory_low=False)

    def _overlong(self, number: int) -> None:
        run_overlong_node(self._cluster, number)

    def _cut(self, number: int) -> None:
        self._proxy.cut()
        pause(self._rng.uniform(*self._cut_for))
        self._proxy.restore()


async def _consumers(url: str) -> int:
    """Count the consumers of the main queue; 0 if the broker does not respond."""
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
) -> Findings:
    """Cause the faults, wait for the end of all executions, and check."""
    broker = new_broker(CONFIG)
    with running_proxy(broker.port) as proxy:
        url = f"amqp://guest:guest@127.0.0.1:{proxy.port}/%2F?heartbeat=5"
        try:
            with breakable_cluster(
                folder, environment={"RUNE_QUEUE": url, "RUNE_HTTP_ALLOW": "127.0.0.1"}
            ) as cluster:
                cluster.load()
                return _run_phases(cluster, Campaign(cluster, broker, proxy, Random(seed), cut), counts, say)
        finally:
            broker.stop()


def _run_phases(
    cluster: BreakableCluster, run: Campaign, counts: dict[str, int], say: Callable[[str], None]
) -> Findings:
    violations: list[str] = []
    try:
        for kind, count in counts.items():
            for summary, back in run.phase(kind, count) if count else ():
                say(summary)
                if back > RECONNECT_TIMEOUT_S:
                    violations.append(f"{kind}: it took {back:.1f} s until the consumers were back")
    except AssertionError as error:
        violations.append(str(error))
    return settle_and_check(cluster, violations, "rune-chaos-rabbitmq-logs", cleanup_timeout_s=0.0)


def main() -> int:
    parser = campaign_parser(__doc__, COUNTS)
    parser.add_argument("--least", type=float, default=10.0, help="seconds for which the network is cut")
    parser.add_argument("--most", type=float, default=60.0, help="the same")
    options = parser.parse_args()
    began = time.perf_counter()
    counts = scaled_counts(options, COUNTS)
    with tempfile.TemporaryDirectory(prefix="rune-chaos-") as folder:
        cut = (options.least, options.most)
        found = campaign(Path(folder), counts, options.seed, cut, say=print_line)
    return report("chaos-rabbitmq", sum(counts.values()), found, began)


if __name__ == "__main__":
    sys.exit(main())
