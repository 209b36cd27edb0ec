"""A short form of the chaos campaign against the broker (`make chaos-rabbitmq`)."""

from __future__ import annotations

import pathlib

import pytest

from tests.chaos.rabbitmq import campaign

pytestmark = pytest.mark.long

FAULTS = {"killed": 1, "emptied": 1, "deleted": 1, "cut": 1}


def test_broker_faults_lose_and_repeat_nothing(tmp_path: pathlib.Path) -> None:
    lines: list[str] = []
    found = campaign(tmp_path, FAULTS, 1, (10.0, 12.0), say=lines.append)

    assert found.violations == []
    assert [line.partition(":")[0] for line in lines] == list(FAULTS)
    assert found.executions >= 20, "too few executions to be meaningful"
