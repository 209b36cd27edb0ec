"""`rune bench` reports every measure beside the limit of the machine, and says which interpreter was measured."""

from __future__ import annotations

import pathlib

import pytest

from rune.bootstrap.interpreter import describe
from rune.cli.bench.jobs import JOBS
from rune.cli.bench.measures import MEASURES
from tests.support.cli_process import Rune
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

SMALLEST = "0.001"
WITHOUT_LIMIT = frozenset({"waits-1m", "waits-burst", "retention-1m", "http-1000"})
"""Measures whose goals are bounds of memory and lateness, for which a loop without an engine has no figure."""

OF_EACH_KIND = (
    "chain-effectful",
    "chain-async",
    "fan-10k",
    "fan-effect-10k",
    "webhook-retry",
    "sharing-5mb",
    "latency-http-1",
    "waits-burst",
    "http-64",
    "cold-start",
)
"""In the gate: a measure of each kind of work."""


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    return Rune(tmp_path / "home")


@pytest.mark.parametrize("name", MEASURES if WHOLE else OF_EACH_KIND)
def test_measure_is_reported_with_its_limit_and_the_interpreter(rune: Rune, name: str) -> None:
    (report,) = rune.json("bench", name, "--scale", SMALLEST)

    assert report["name"] == name, report
    assert report["interpreter"] == describe()
    if name in JOBS:
        assert report["cpu_us"] > report["limit_cpu_us"] > 0
    else:
        assert report["goal"]
    assert isinstance(report.get("met"), bool if report.get("goal") else type(None))
    assert any(report.get(figure, 0) > 0 for figure in ("rate", "p50_ms"))
    if name not in WITHOUT_LIMIT:
        assert report["limit"] > 0
        assert report["ratio"] > 0
    assert not list(rune.home.iterdir()), "a measure uses files of its own"


def test_list_names_every_measure_with_what_it_runs(rune: Rune) -> None:
    listed = rune.json("bench", "--list")

    assert list(listed) == list(MEASURES)
    assert all(listed.values())
    assert "chain-async" in rune("bench", "--list").stdout


def test_table_names_the_interpreter_and_the_measure(rune: Rune) -> None:
    done = rune("bench", "latency-1", "--scale", SMALLEST)

    assert done.returncode == 0, done.stderr
    assert describe() in done.stderr
    assert "latency-1" in done.stdout
    assert "p50 <= 3 ms" in done.stdout
