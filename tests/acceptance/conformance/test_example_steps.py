"""The examples that need signals, reruns or child executions behave as their READMEs describe."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.service_actor import open_actor
from tests.acceptance.conformance.step_runner import StepRunner
from tests.acceptance.conformance.stubs import StubServers

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def _read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(EXAMPLES / name)


ORDER = {"order": 7, "amount": 1200}
LINES = [
    {"article": "pen", "pieces": 3},
    {"article": "car", "pieces": 1},
    {"article": "book", "pieces": 2},
]
FIGURES = [{"shop": "north", "sales": [10, 20]}, {"shop": "south", "sales": [5]}]


def _report(total: int, missing: list[str]) -> dict[str, Any]:
    return {"day": "2030-01-31", "written_at": "<string>", "total": total, "missing": missing}


def _ended(output: Any, name: str = "it", **fields: Any) -> dict[str, Any]:
    return {"expect": {"status": "completed", "output": output, **fields}, "as": name}


def _approval(order: int, shipped: bool, because: str) -> dict[str, Any]:
    return _ended({"order": order, "shipped": shipped, "because": because})


SCENARIOS: dict[str, tuple[list[str], list[dict[str, Any]]]] = {
    "approval granted": (
        ["approval/approval.yaml"],
        [
            {"start": {"workflow": "approval", "input": ORDER}},
            {"signal": {"name": "decision", "value": {"approved": True, "by": "Ada"}}},
            _approval(7, True, "approved by Ada"),
            {"signal": "decision", "refused": "ENDED"},
        ],
    ),
    "approval refused": (
        ["approval/approval.yaml"],
        [
            {"start": {"workflow": "approval", "input": ORDER}},
            {"await": {"waiting": "ask"}},
            {"signal": {"name": "decision", "value": {"approved": False, "by": "Bob"}}, "answers": True},
            _approval(7, False, "refused by Bob"),
        ],
    ),
    "approval not needed": (
        ["approval/approval.yaml"],
        [
            {"start": {"workflow": "approval", "input": {"order": 8, "amount": 20}}},
            _approval(8, True, "small"),
        ],
    ),
    "approval not given": (
        ["approval/approval.yaml"],
        [
            {
                "start": {
                    "workflow": "approval",
                    "input": {"order": 9, "amount": 5000},
                    "fake_time": True,
                }
            },
            _approval(9, False, "nobody answered"),
        ],
    ),
    "race": (
        ["race/race.yaml"],
        [
            {"start": {"workflow": "race", "fake_time": True}},
            _ended(
                {"from": "near"},
                nodes=[
                    {"node_id": "far", "status": "cancelled"},
                    {"node_id": "answer", "status": "cancelled"},
                    {"node_id": "from_far", "status": "skipped"},
                ],
            ),
        ],
    ),
    "race won by a person": (
        ["race/race.yaml"],
        [
            {"start": {"workflow": "race", "input": {"near": 600}}},
            {"await": {"waiting": "answer"}},
            {"await": {"waiting": "near"}},
            {"signal": {"name": "answer", "value": {"from": "Ada"}}, "answers": True},
            _ended({"from": "Ada"}, absent_nodes=["near", "far"]),
        ],
    ),
    "parent and children": (
        ["parent-and-children/price-line.yaml", "parent-and-children/order.yaml"],
        [
            {"start": {"workflow": "order", "input": {"lines": LINES}}},
            _ended(
                {"total": 36, "refused": ["UNKNOWN_ARTICLE"]},
                nodes=[{"node_id": "price", "index": [1], "status": "failed", "error_code": "CHILD_FAILED"}],
            ),
            {"find": {"workflow": "price-line", "number": 2}, "as": "line"},
            {"expect": {"parent_id": "it"}, "as": "line"},
            {"start": {"workflow": "order", "input": {"lines": [{"article": "pen", "pieces": 0}]}}},
            {
                "expect": {
                    "nodes": [{"node_id": "price", "index": [0], "error_code": "INVALID_INPUT"}],
                }
            },
        ],
    ),
    "nightly report": (
        ["nightly-report/nightly-report.yaml"],
        [
            {"start": {"workflow": "nightly-report", "input": {"day": "2030-01-31"}, "key": "2030-01-31"}},
            {"signal": {"name": "figures", "value": FIGURES}},
            _ended(_report(35, [])),
            {"rerun": {"from": "written"}, "as": "rewritten"},
            _ended(_report(35, []), "rewritten", retry_of="it"),
            {"rerun": {"from": "turnover", "item": "shops:1"}, "as": "summed"},
            _ended(_report(35, []), "summed"),
            {"rerun": {"from": "figures"}, "as": "anew"},
            {"await": {"waiting": "figures"}, "as": "anew"},
            {
                "signal": {"name": "figures", "value": [FIGURES[0], {"shop": "south", "sales": "closed"}]},
                "as": "anew",
            },
            _ended(_report(30, ["south"]), "anew"),
            {"retry": {"failed_items": True}, "of": "anew", "as": "again"},
            _ended(_report(30, ["south"]), "again", retry_of="anew"),
        ],
    ),
}


async def _run(case: Case, home: pathlib.Path) -> None:
    async with open_actor(home, durability="relaxed", grace=0.1) as actor:
        await StepRunner(case, actor, StubServers(case)).run()


@pytest.mark.parametrize("name", SCENARIOS)
def test_example_steps_match_readme(name: str, tmp_path: pathlib.Path) -> None:
    files, steps = SCENARIOS[name]
    workflows = tuple(_read(file) for file in files)

    asyncio.run(_run(Case(name, "", (), workflows=workflows, steps=tuple(steps)), tmp_path))


def test_every_example_has_readme() -> None:
    for files, _ in SCENARIOS.values():
        assert (EXAMPLES / files[0]).with_name("README.md").is_file()
