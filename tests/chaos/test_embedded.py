"""A short form of the chaos run (`make chaos-embedded`)."""

from __future__ import annotations

import os
import pathlib

from tests.chaos.embedded import chaos

KILLS = int(os.environ.get("RUNE_KILLS", "12"))


def test_random_kills_lose_and_repeat_nothing(tmp_path: pathlib.Path) -> None:
    executions, violations = chaos(tmp_path, KILLS, seed=1)

    assert violations == []
    assert executions >= KILLS, "too few executions to be meaningful"
