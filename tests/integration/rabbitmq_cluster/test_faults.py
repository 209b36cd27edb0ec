"""A short version of the broker's campaign; `python -m tests.chaos.rabbitmq` is the long one."""

from __future__ import annotations

import pathlib

from tests.chaos.rabbitmq import campaign

FAULTS = {"killed": 1, "emptied": 1, "deleted": 1, "cut": 1}


def test_faults_of_the_broker_lose_nothing_and_double_nothing(tmp_path: pathlib.Path) -> None:
    lines: list[str] = []
    found = campaign(tmp_path, FAULTS, 1, (10.0, 12.0), say=lines.append)

    assert found.wrong == []
    assert [line.partition(":")[0] for line in lines] == list(FAULTS)
    assert found.executions >= 20, "too little was going on to mean anything"
