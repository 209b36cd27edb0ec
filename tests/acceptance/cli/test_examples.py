"""Every example behaves as its README describes."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.support.cli_process import Rune

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
CUSTOMERS = [
    {"name": "ada", "rebate": 0.5, "orders": [{"pieces": 2, "each": 3}, {"pieces": 1, "each": 4}]},
    {"name": "bob", "orders": []},
]
RUNS: list[tuple[str, Any, Any]] = [
    ("hello", {"name": "Ada"}, "Good morning, Ada!"),
    ("hello", {"name": "Ada", "hour": 20}, "Good evening, Ada!"),
    ("branch-and-merge", {"amount": 1200, "country": "DE"}, {"total": 1285.2, "approval": "manager"}),
    ("branch-and-merge", {"amount": 100, "country": "FR"}, {"total": 114.0, "approval": "none"}),
    ("fan-out", {}, {"count": 10000, "sum": 99990000, "first": 0, "last": 19998}),
    (
        "nested-loops",
        {"customers": CUSTOMERS},
        [
            {"name": "ada", "lines": ["ada/0", "ada/1"], "total": 5.0},
            {"name": "bob", "lines": [], "total": 0},
        ],
    ),
    (
        "errors-and-retries",
        {},
        {
            "rescued": "SERVICE_DOWN: the service is down",
            "good": [2.0, 4.0, 6.0],
            "bad": ["EXPRESSION_ERROR"],
            "warnings": 3,
        },
    ),
]

TESTED_ELSEWHERE = {
    "approval",
    "custom-nodes",
    "fetch-users-report",
    "nightly-report",
    "parent-and-children",
    "race",
}
"""Tested in `test_examples_with_code` and, with the conformance cases, in `test_example_steps`."""


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    return Rune(tmp_path / "home", RUNE_DURABILITY="relaxed")


@pytest.mark.parametrize(("name", "payload", "output"), RUNS, ids=[each[0] for each in RUNS])
def test_example_output_matches_readme(rune: Rune, name: str, payload: Any, output: Any) -> None:
    result = rune.json("run", str(EXAMPLES / name), "--fake-time", "--input", json.dumps(payload))

    assert (result["status"], result["output"]) == ("completed", output)
    assert rune.json("verify", "--all")["violations"] == 0


def test_every_example_is_tested_and_has_readme() -> None:
    folders = {each.name for each in EXAMPLES.iterdir() if each.is_dir()}

    assert folders == {name for name, _, _ in RUNS} | TESTED_ELSEWHERE
    assert all((EXAMPLES / name / "README.md").is_file() for name in folders)


def test_errors_and_retries_example_attempt_counts(rune: Rune) -> None:
    result = rune.json("run", str(EXAMPLES / "errors-and-retries"), "--fake-time")

    attempts = {(each["node_id"], each["status"]): each["attempts"] for each in result["nodes"]}
    assert attempts[("flaky", "failed")] == 3
    assert attempts[("shaky", "failed")] == 2
    assert attempts[("never", "skipped")] == 0
    assert result["total_duration_ms"] >= 3_500
