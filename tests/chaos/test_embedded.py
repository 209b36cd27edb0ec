"""A short version of the chaos run; `make chaos-embedded` is the long one."""

from __future__ import annotations

import os
import pathlib

from tests.chaos.embedded import chaos

KILLS = int(os.environ.get("RUNE_KILLS", "12"))


def test_random_kills_lose_nothing_and_double_nothing(tmp_path: pathlib.Path) -> None:
    executions, wrong = chaos(tmp_path, KILLS, seed=1)

    assert wrong == []
    assert executions >= KILLS, "too little was going on to mean anything"
