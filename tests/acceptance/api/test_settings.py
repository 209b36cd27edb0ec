"""The settings of a server and previews of schedules over HTTP."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import RunningServer, run


def test_settings_tell_their_source_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNE_SLOTS", "7")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rune.toml").write_text('prefix = "mine"\n', encoding="utf-8")

    async def work(server: RunningServer) -> None:
        found = {each.name: each for each in await server.client.settings()}
        assert (found["slots"].value, found["slots"].source) == (7, "environment")
        assert (found["prefix"].source, found["grace"].source) == ("file", "default")
        assert (found["api_key"].value, found["api_key"].secret) == (True, True)
        answer = await server.http.get("/api/v1/settings")
        assert BOOTSTRAP not in answer.text
        async with AsyncExitStack() as stack:
            editor = await RoleClients(server, stack).connect("ed", "editor")
            assert (await editor.get("/api/v1/settings")).status_code == 403

    run(tmp_path, work, key=BOOTSTRAP, api_key=BOOTSTRAP, slots=7, prefix="mine")


def test_schedule_preview_lists_next_times_or_problems(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        found = await server.client.preview_schedule(cron="0 9 * * *", timezone="Asia/Tokyo", count=3)
        times = [datetime.fromisoformat(each) for each in found.ticks]
        assert [(each.astimezone(UTC).hour, each.minute) for each in times] == [(0, 0)] * 3
        assert times == sorted(set(times))
        assert times[0] > datetime.now(UTC)
        every = await server.client.preview_schedule(amount=2, unit="hours")
        assert len(every.ticks) == 5
        wrong = await server.client.preview_schedule(cron="61 * * * *")
        assert wrong.ticks == []
        assert [each.path for each in wrong.problems]
        none = await server.client.preview_schedule()
        assert none.problems

    run(tmp_path, work)
