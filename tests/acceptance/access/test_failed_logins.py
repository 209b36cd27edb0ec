"""Wrong API keys are slowed down by address."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from rune.server.auth import (
    MAX_ADDRESSES,
    MAX_DELAY_S,
    MAX_DELAYED_PER_ADDRESS,
    MAX_FAILED_LOGINS,
    WINDOW_S,
    FailedLogins,
)
from rune.server.responses import TooManyLoginsError
from tests.support.api_server import API, RunningServer, run
from tests.support.waiting import until

KEY = "correct-horse-battery-staple"
WRONG = {"Authorization": "Bearer wrong"}


class Delays:
    """A clock and a sleep that record the delays; a sleep ends when it is released."""

    def __init__(self) -> None:
        self.now = 0.0
        self.given: list[float] = []
        self.released = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.given.append(seconds)
        await self.released.wait()

    async def begun(self) -> bool:
        return self.given == [1.0]

    def counter(self, limit: int = MAX_FAILED_LOGINS) -> FailedLogins:
        return FailedLogins(limit, clock=lambda: self.now, sleep=self.sleep)


def test_valid_key_is_accepted_while_wrong_key_of_same_address_is_delayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = Delays()
    monkeypatch.setattr("rune.bootstrap.http.FailedLogins", partial(FailedLogins, sleep=delays.sleep))

    async def work(server: RunningServer) -> None:
        path = f"{API}/executions"
        assert (await server.http.get(path, headers=WRONG)).status_code == 401
        slow = asyncio.create_task(server.http.get(path, headers=WRONG))
        await until(delays.begun)
        for _ in range(5):
            assert (await server.http.get(path)).status_code == 200
        assert (await server.http.get("/healthz")).status_code == 200
        assert not slow.done()
        delays.released.set()
        assert (await slow).status_code == 401

    run(tmp_path, work, key=KEY, api_failed_logins=1)


@pytest.mark.parametrize("trusted", [True, False])
def test_address_forwarded_by_trusted_proxy_counts(
    trusted: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(server: RunningServer) -> None:
        for _ in range(2):
            sent = {**WRONG, "X-Forwarded-For": "198.51.100.1, 192.0.2.7"}
            assert (await server.http.get(f"{API}/executions", headers=sent)).status_code == 401
        named = [
            each.getMessage().split()[0] for each in caplog.records if "wrong API keys" in each.getMessage()
        ]
        assert named == ["192.0.2.7" if trusted else "127.0.0.1"]

    proxies = ("127.0.0.0/8",) if trusted else ()
    run(tmp_path, work, key=KEY, api_failed_logins=2, trusted_proxies=proxies)


def test_delay_doubles_with_each_wrong_key_and_ends_with_window() -> None:
    async def work() -> None:
        delays = Delays()
        delays.released.set()
        failed = delays.counter()
        for _ in range(MAX_FAILED_LOGINS + 6):
            await failed.record("192.0.2.1")
        await failed.record("192.0.2.2")
        assert delays.given == [1.0, 2.0, 4.0, 8.0, MAX_DELAY_S, MAX_DELAY_S]
        delays.now += WINDOW_S
        await failed.record("192.0.2.1")
        assert len(delays.given) == 6

    asyncio.run(work())


def test_delay_stays_at_its_maximum_after_thousands_of_wrong_keys() -> None:
    async def work() -> None:
        delays = Delays()
        delays.released.set()
        failed = delays.counter()
        for _ in range(3_000):
            await failed.record("192.0.2.1")
        assert len(delays.given) == 3_000 - MAX_FAILED_LOGINS
        assert set(delays.given[4:]) == {MAX_DELAY_S}

    asyncio.run(work())


def test_every_wrong_key_of_a_flood_is_refused_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delays = Delays()
    delays.released.set()
    monkeypatch.setattr("rune.bootstrap.http.FailedLogins", partial(FailedLogins, sleep=delays.sleep))

    async def work(server: RunningServer) -> None:
        statuses = {
            (await server.http.get(f"{API}/executions", headers=WRONG)).status_code for _ in range(1_100)
        }
        assert statuses == {401}
        assert [each for each in caplog.records if each.levelname == "ERROR"] == []

    run(tmp_path, work, key=KEY, api_failed_logins=1)


def test_address_with_many_delayed_responses_is_rejected_until_they_are_sent() -> None:
    async def work() -> None:
        delays = Delays()
        failed = delays.counter(limit=1)
        await failed.record("2001:db8::1")
        waiting = [
            asyncio.create_task(failed.record(f"2001:db8::{number:x}"))
            for number in range(MAX_DELAYED_PER_ADDRESS)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooManyLoginsError) as rejected:
            await failed.record("2001:db8::ffff")
        assert rejected.value.retry_after == MAX_DELAY_S
        await failed.record("2001:db8:0:1::1")
        delays.released.set()
        await asyncio.gather(*waiting)
        await failed.record("2001:db8::1")

    asyncio.run(work())


def test_number_of_counted_addresses_is_bounded() -> None:
    async def work() -> None:
        failed = Delays().counter()
        for number in range(MAX_ADDRESSES + 10):
            await failed.record(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        assert len(failed._failed) == MAX_ADDRESSES

    asyncio.run(work())


def test_limit_of_zero_delays_nothing() -> None:
    async def work() -> None:
        delays = Delays()
        failed = delays.counter(limit=0)
        for _ in range(100):
            await failed.record("192.0.2.1")
        assert delays.given == []

    asyncio.run(work())
