"""Reports to the state which tokens the queue has confirmed, in batches and after the fact.

A token that a process has to send is due for a resend after a few seconds, in case the process dies before it sends it.
Once the queue has confirmed the token, the resend is moved to the time after which an unclaimed token counts as lost.
Nothing waits for the report: a token whose report is late or lost is sent twice, and its second delivery finds it
claimed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.encoding import KeySpace, encode_path
from rune.core.execution.token import Token
from rune.ports.clock import Clock
from rune.ports.journal import StoreUnavailableError

log = logging.getLogger("rune.state")

REPORT_DELAY_S = 1.0
"""How long confirmed tokens are collected. Most have been claimed and completed by then, and cost one lookup."""

MAX_REPORTED = 250
"""Tokens in one call: a longer function would block the server."""


def unsent_mark(attempt: int, *, resumed: bool) -> float:
    """Return the fraction of the resend time of a token that a process has to send, as `store.unsent` computes it."""
    return 0.5 + (2 * attempt + resumed) % 32 / 64


class SendConfirmations:
    """Collects the tokens that the queue has confirmed and reports them once a second."""

    def __init__(self, client: Client, keys: KeySpace, clock: Clock | None) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._confirmed: list[tuple[str, Sequence[Token], float]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._report: asyncio.Task[None] | None = None

    def add(self, execution: str, tokens: Sequence[Token]) -> None:
        """Note that the queue has confirmed these tokens."""
        self._confirmed.append((execution, tokens, time.monotonic()))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORT_DELAY_S, self._start_report)

    def _start_report(self) -> None:
        self._report = asyncio.ensure_future(self.report())

    async def report(self) -> None:
        """Report the collected tokens now. While the server is unavailable they are dropped, and sent again later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        confirmed, self._confirmed = self._confirmed, []
        reports: dict[int, list[str | int]] = {}
        reported_at = time.monotonic()
        for execution, tokens, at in confirmed:
            report = reports.setdefault(self._keys.partition(execution), [])
            age = round((reported_at - at) * 1000)
            for each in tokens:
                member = f"{execution}|{each.node}|{encode_path(each.path)}"
                report += (str(unsent_mark(each.attempt, resumed=each.resumed)), age, member)
        now = 0 if self._clock is None else self._clock.now()
        calls = (
            self._client.run("sent", [self._keys.held(part)], now, *report[first : first + 3 * MAX_REPORTED])
            for part, report in reports.items()
            for first in range(0, len(report), 3 * MAX_REPORTED)
        )
        for reply in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(reply, BaseException) and not isinstance(reply, StoreUnavailableError | RedisError):
                raise reply

    async def close(self) -> None:
        """Report what is left."""
        if self._report is not None:
            await asyncio.gather(self._report, return_exceptions=True)
        await self.report()
