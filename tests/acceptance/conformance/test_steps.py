"""Every case with steps, through the services of an engine in this process, in place and each node on its own."""

from __future__ import annotations

import asyncio
import json
import pathlib

import pytest

from tests.acceptance.conformance.case import Case, load_steps
from tests.acceptance.conformance.command import command
from tests.acceptance.conformance.service_actor import open_actor
from tests.acceptance.conformance.slowing import in_time
from tests.acceptance.conformance.stubs import surroundings
from tests.acceptance.conformance.walk import Walk

CASES = load_steps()


async def _walk(case: Case, home: pathlib.Path, *, in_place: bool) -> None:
    with surroundings(case) as around:
        options = {"durability": "relaxed", "http_allow": ("127.0.0.1",), "grace": 0.1}
        async with open_actor(home, in_place=in_place, smtp_url=around.smtp_url, **options) as actor:
            await Walk(case, actor, around).to_end()


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "travelling"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_case_goes_as_it_must(
    case: Case,
    in_place: bool,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    homes: list[pathlib.Path] = []

    async def walk(paced: Case) -> None:
        homes.append(tmp_path / paced.name)
        await _walk(paced, homes[-1], in_place=in_place)

    asyncio.run(in_time(case, walk))

    monkeypatch.setenv("RUNE_HOME", str(homes[-1]))
    report = json.loads(command(["audit", "--all", "--json"], capsys).stdout)
    assert report["violations"] == 0, report


def test_every_case_says_what_it_shows() -> None:
    assert len(CASES) >= 45
    assert all(case.about and case.covers for case in CASES)
    assert all(any("expect" in step or "refused" in step for step in case.steps) for case in CASES)
