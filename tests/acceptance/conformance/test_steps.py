"""Every case with steps on an engine in this process, with nodes run inline and queued separately."""

from __future__ import annotations

import asyncio
import json
import pathlib

import pytest

from tests.acceptance.conformance.case import Case, load_steps
from tests.acceptance.conformance.command import command
from tests.acceptance.conformance.service_actor import open_actor
from tests.acceptance.conformance.step_runner import StepRunner
from tests.acceptance.conformance.stubs import stub_servers
from tests.acceptance.conformance.time_scaling import run_in_time

pytestmark = pytest.mark.long

CASES = load_steps()


async def _run(case: Case, home: pathlib.Path, *, in_place: bool) -> None:
    with stub_servers(case) as servers:
        options = {"durability": "relaxed", "http_allow": ("127.0.0.1",), "grace": 0.1}
        async with open_actor(home, in_place=in_place, smtp_url=servers.smtp_url, **options) as actor:
            await StepRunner(case, actor, servers).run()


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "travelling"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case_steps_match_expectations(
    case: Case,
    in_place: bool,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    homes: list[pathlib.Path] = []

    async def run(scaled: Case) -> None:
        homes.append(tmp_path / scaled.name)
        await _run(scaled, homes[-1], in_place=in_place)

    asyncio.run(run_in_time(case, run))

    monkeypatch.setenv("RUNE_HOME", str(homes[-1]))
    report = json.loads(command(["verify", "--all", "--json"], capsys).stdout)
    assert report["violations"] == 0, report


def test_every_case_is_described_and_asserts() -> None:
    assert len(CASES) >= 45
    assert all(case.about and case.covers for case in CASES)
    assert all(any("expect" in step or "refused" in step for step in case.steps) for case in CASES)
