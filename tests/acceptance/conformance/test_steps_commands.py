"""Cases with steps through `rune` processes: one owns the file, every verb is another."""

from __future__ import annotations

import asyncio
import json
import pathlib

import pytest

from tests.acceptance.conformance.case import Case, load_steps
from tests.acceptance.conformance.command_actor import by_command
from tests.acceptance.conformance.stubs import surroundings
from tests.acceptance.conformance.walk import Walk

CHOSEN = (
    "signal-after-wait",
    "signal-ambiguous",
    "signal-key-conflict",
    "pause-parks",
    "cancel-twice",
    "child-cancelled-with-its-parent",
    "child-waits-for-a-signal",
    "start-by-alias",
    "retry-failed-items",
    "rerun-one-item",
    "retry-refused",
)
CASES = [case for case in load_steps() if case.name in CHOSEN]


async def _walk(case: Case, folder: pathlib.Path) -> None:
    with surroundings(case) as around:
        settings = {"RUNE_DURABILITY": "relaxed", "RUNE_HTTP_ALLOW": "127.0.0.1", "RUNE_GRACE": "0.1"}
        async with by_command(folder, **settings) as actor:
            await Walk(case, actor, around).to_end()
            report = await actor.ask("audit", "--all")
            assert report["violations"] == 0, json.dumps(report)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_case_goes_the_same_way_on_the_command_line(case: Case, tmp_path: pathlib.Path) -> None:
    asyncio.run(_walk(case, tmp_path))


def test_every_chosen_case_is_there() -> None:
    assert len(CASES) == len(CHOSEN)
