"""Selected cases with steps through `rune` processes, one of which owns the file."""

from __future__ import annotations

import asyncio
import json
import pathlib

import pytest

from tests.acceptance.conformance.case import Case, load_steps
from tests.acceptance.conformance.command_actor import open_command_actor
from tests.acceptance.conformance.step_runner import StepRunner
from tests.acceptance.conformance.stubs import stub_servers

SELECTED = (
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
CASES = [case for case in load_steps() if case.name in SELECTED]


async def _run(case: Case, folder: pathlib.Path) -> None:
    with stub_servers(case) as servers:
        settings = {"RUNE_DURABILITY": "relaxed", "RUNE_HTTP_ALLOW": "127.0.0.1", "RUNE_GRACE": "0.1"}
        async with open_command_actor(folder, **settings) as actor:
            await StepRunner(case, actor, servers).run()
            report = await actor.command("verify", "--all")
            assert report["violations"] == 0, json.dumps(report)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case_steps_match_expectations_via_commands(case: Case, tmp_path: pathlib.Path) -> None:
    asyncio.run(_run(case, tmp_path))


def test_every_selected_case_exists() -> None:
    assert len(CASES) == len(SELECTED)
