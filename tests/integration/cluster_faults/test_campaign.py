"""A short form of the chaos campaign against a cluster (`make chaos-cluster`)."""

from __future__ import annotations

import pathlib

import pytest

from tests.chaos.cluster import campaign
from tests.chaos.rebuild import measure_rebuild
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

EACH = 2 if WHOLE else 1
FAULTS = {
    "workers": EACH,
    "schedulers": 1,
    "redis": EACH,
    "wiped": EACH,
    "cut": EACH,
    "postgres": EACH,
    "away": 1,
}
AWAY = 0.05  # minutes; longer than a statement is retried


def test_faults_of_every_kind_lose_and_repeat_nothing(tmp_path: pathlib.Path) -> None:
    lines: list[str] = []
    found = campaign(tmp_path, FAULTS, 1, AWAY, say=lines.append, cleanup_timeout_s=0.0)

    assert found.violations == []
    assert [line.partition(":")[0] for line in lines] == list(FAULTS)
    assert found.executions >= (50 if WHOLE else 20), "too few executions to be meaningful"


def test_running_executions_are_rebuilt_after_wipe(tmp_path: pathlib.Path) -> None:
    found = measure_rebuild(tmp_path, 100)

    assert found.violations == []
    assert found.states < 20
