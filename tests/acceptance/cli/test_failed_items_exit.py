"""Failed items end a command that waits with exit code 4, unless the workflow states that it tolerates them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from rune.cli.main import COMMANDS, load_command
from tests.support.cli_process import Rune
from tests.support.documents import document, node
from tests.support.in_process_cli import InProcessCli
from tests.support.up_process import UpProcess


def fan(**aggregator: Any) -> dict[str, Any]:
    """Divides 6 by each item of a list; the division by zero fails its item."""
    value = {"mode": "keep_only", "assignments": [{"name": "x", "value": "{{ 6 / $item }}"}]}
    nodes = [
        node("start", "input"),
        node("parts", "split", {"input_array": "$trigger.list"}),
        node("part", "edit", value),
        node("all", "aggregator", aggregator),
    ]
    return document(nodes, "start>parts", "parts>part", "part>all", id="fan")


def nested(inner: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any]:
    value = {"mode": "keep_only", "assignments": [{"name": "x", "value": "{{ 6 / $item }}"}]}
    nodes = [
        node("start", "input"),
        node("rows", "split", {"input_array": "$trigger.list"}),
        node("cells", "split", {"input_array": "$item"}),
        node("cell", "edit", value),
        node("row", "aggregator", inner),
        node("all", "aggregator", outer),
    ]
    pairs = ("start>rows", "rows>cells", "cells>cell", "cell>row", "row>all")
    return document(nodes, *pairs, id="nested")


@pytest.mark.parametrize(
    ("raw", "given", "code", "untolerated"),
    [
        pytest.param(fan(), [1, 2], 0, 0, id="nothing-failed"),
        pytest.param(fan(), [1, 0, 0], 4, 2, id="no-tolerate"),
        pytest.param(fan(tolerate=1), [1, 0], 0, 0, id="number"),
        pytest.param(fan(tolerate="100%"), [0, 0], 0, 0, id="percentage"),
        pytest.param(fan(tolerate=0), [1, 0], 1, 0, id="more-than-tolerated-fails"),
        pytest.param(nested({"tolerate": 1}, {}), [[1, 0], [0]], 0, 0, id="inner-tolerates"),
        pytest.param(nested({}, {"tolerate": 1}), [[1, 0], [1]], 4, 1, id="only-outer-tolerates"),
        pytest.param(nested({"tolerate": 0}, {}), [[1, 0], [1]], 4, 1, id="inner-fails-its-item"),
        pytest.param(nested({"tolerate": 0}, {"tolerate": 1}), [[0], [1]], 0, 0, id="outer-tolerates-inner"),
    ],
)
def test_run_exits_4_for_items_that_the_workflow_does_not_tolerate(
    tmp_path: pathlib.Path, raw: dict[str, Any], given: list[Any], code: int, untolerated: int
) -> None:
    rune = InProcessCli(tmp_path / "home")
    (tmp_path / "w.json").write_text(json.dumps(raw))

    result = rune.json("run", str(tmp_path / "w.json"), "--input", json.dumps({"list": given}), code=code)

    assert result["untolerated_items"] == untolerated
    assert rune.json("show", result["execution_id"])["untolerated_items"] == untolerated
    again = ("run", str(tmp_path / "w.json"), "--input", json.dumps({"list": given}), "--ignore-failed-items")
    assert rune.json(*again, code=0 if code == 4 else code)["status"] == result["status"]


def waiting_commands() -> list[Any]:
    found = []
    for name in COMMANDS:
        command = load_command(name)
        found += [command, *getattr(command, "commands", {}).values()]
    return [each for each in found if any("--wait" in parameter.opts for parameter in each.params)]


def test_every_command_that_waits_can_ignore_failed_items() -> None:
    options = {
        each.name: {opt for parameter in each.params for opt in parameter.opts} for each in waiting_commands()
    }

    assert len(options) >= 4
    assert [name for name, opts in options.items() if "--ignore-failed-items" not in opts] == []


@pytest.mark.parametrize("url", [False, True], ids=["beside-owner", "over-url"])
def test_start_and_rerun_that_wait_exit_4(tmp_path: pathlib.Path, url: bool) -> None:
    rune, up = Rune(tmp_path / "home"), UpProcess(tmp_path / "home")
    (tmp_path / "fan.json").write_text(json.dumps(fan()))
    address = up.start("--no-examples")
    try:
        outside = Rune(tmp_path / "outside", RUNE_URL=address) if url else rune
        outside.json("deploy", str(tmp_path / "fan.json"))
        start = ("start", "fan", "--input", '{"list": [1, 0]}', "--wait")
        failed = outside(*start)
        ignored = outside(*start, "--ignore-failed-items")
        name = outside.json(*start, code=4)["execution_id"]
        rerun = outside("rerun", name, "--from", "all", "--wait")
    finally:
        up.stop()

    assert (failed.returncode, ignored.returncode, rerun.returncode) == (4, 0, 4)
    assert failed.stdout.splitlines()[-1] == "completed, 1 item failed"


def test_former_option_changes_nothing(tmp_path: pathlib.Path) -> None:
    rune = InProcessCli(tmp_path / "home")
    (tmp_path / "fan.json").write_text(json.dumps(fan()))
    run = ("run", str(tmp_path / "fan.json"), "--fail-on-items", "--input")

    assert rune.json(*run, '{"list": [0]}', code=4)["failed_items"] == 1
    assert rune.json(*run, '{"list": [1]}', code=0)["failed_items"] == 0
    assert "--fail-on-items" not in rune.output("run", "--help")
