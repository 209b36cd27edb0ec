"""A short version of the cluster's campaign; `make chaos-cluster` is the long one."""

from __future__ import annotations

import pathlib

from tests.chaos.cluster import campaign
from tests.chaos.rebuild import rebuilt

FAULTS = {"workers": 2, "schedulers": 1, "redis": 2, "wiped": 2, "cut": 2, "postgres": 2, "away": 1}
AWAY = 0.05  # minutes: longer than a statement is tried again


def test_faults_of_every_kind_lose_nothing_and_double_nothing(tmp_path: pathlib.Path) -> None:
    lines: list[str] = []
    found = campaign(tmp_path, FAULTS, 1, AWAY, say=lines.append, tidy=0.0)

    assert found.wrong == []
    assert [line.partition(":")[0] for line in lines] == list(FAULTS)
    assert found.executions >= 50, "too little was going on to mean anything"


def test_what_was_running_is_there_again_after_a_wipe(tmp_path: pathlib.Path) -> None:
    found = rebuilt(tmp_path, 100)

    assert found.wrong == []
    assert found.states < 20
