"""Reading executions whose custom node types are not loaded in the reading process."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.support.api_server import RunningServer, run
from tests.support.documents import node
from tests.support.in_process_cli import InProcessCli

MODULE = """
from rune import node
from rune.core.execution.outcome import Output


@node("away.choose", outlets=lambda parameters: ("left", "right"))
def choose(side: str, note: str = "") -> Output:
    return Output({"side": side}, side)


@node("away.twice", effectful=False)
def twice(number: int) -> int:
    return 2 * number
"""
CHOOSES: dict[str, Any] = {
    "id": "chooses",
    "nodes": [
        node("start", "input"),
        node("pick", "away.choose", parameters={"side": "$trigger.side", "note": "not {{ an expression"}),
        node("left", "log", parameters={"message": "left"}),
        node("ask", "wait", parameters={"resume": "signal"}),
    ],
    "edges": [
        {"src": "start", "dst": "pick"},
        {"src": "pick", "dst": "left", "label": "left"},
        {"src": "start", "dst": "ask"},
    ],
}


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A file with two executions of a custom type: `ended`, and `waits`, which waits for a signal."""
    (tmp_path / "away_nodes.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    chooses = json.loads(json.dumps(CHOOSES))
    del chooses["nodes"][1]["parameters"]["note"]
    (tmp_path / "waits.json").write_text(json.dumps({**chooses, "id": "waits"}))
    ends = {**chooses, "id": "ends", "nodes": chooses["nodes"][:3], "edges": chooses["edges"][:2]}
    (tmp_path / "ends.json").write_text(json.dumps(ends))
    rune = InProcessCli(tmp_path / "home", RUNE_NODES="away_nodes")
    rune.json("run", str(tmp_path / "ends.json"), "--id", "left", "-i", '{"side": "left"}')
    rune.json("run", str(tmp_path / "ends.json"), "--id", "right", "-i", '{"side": "right"}')
    rune.json("deploy", str(tmp_path / "waits.json"))
    rune.json("start", "waits", "--key", "waiting", "-i", '{"side": "left"}')
    return tmp_path / "home"


def test_commands_read_execution_of_missing_type(home: pathlib.Path) -> None:
    rune = InProcessCli(home)

    listed = {each["workflow_id"]: each["execution_id"] for each in rune.json("list")["executions"]}
    assert rune.json("show", "left")["context"]["$pick"] == {"side": "left"}
    assert rune.json("explain", listed["waits"])["waiting"] != []
    assert "execution.completed" in rune.output("watch", "left", "--json")
    assert "0 open" in rune.output("verify", "left", "right")


def test_node_of_missing_type_is_shown_with_what_it_was_called_with(home: pathlib.Path) -> None:
    rune = InProcessCli(home)

    called = rune.json("show", "left", "--node", "pick")["input"]

    assert called["payload"] == {"side": "left"}
    assert called["parameters"] == {"side": "left"}
    assert '"side": "left"' in rune.output("show", "left", "--node", "pick")


def test_outlet_of_missing_type_decides_what_was_skipped(home: pathlib.Path) -> None:
    rune = InProcessCli(home)

    ran = {
        name: {each["node_id"]: each["status"] for each in rune.json("show", name)["nodes"]}
        for name in ("left", "right")
    }

    assert ran == {
        "left": {"start": "success", "pick": "success", "left": "success"},
        "right": {"start": "success", "pick": "success", "left": "skipped"},
    }


def test_api_reads_execution_of_missing_type(home: pathlib.Path) -> None:
    async def work(server: RunningServer) -> None:
        assert (await server.client.execution("left")).status == "completed"
        nodes = [each async for each in server.client.nodes("left")]
        assert {each.node_id for each in nodes} == {"start", "pick", "left"}
        events = [each.kind async for each in server.client.watch("left")]
        assert events[-1] == "execution.completed"

    run(home, work)


def test_verify_finds_nothing_wrong_with_pure_node_of_missing_type(
    home: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    nodes = [node("start", "input"), node("double", "away.twice", parameters={"number": 21})]
    doubles = {"id": "doubles", "nodes": nodes, "edges": [{"src": "start", "dst": "double"}]}
    (tmp_path / "doubles.json").write_text(json.dumps(doubles))
    InProcessCli(home, RUNE_NODES="away_nodes").json("run", str(tmp_path / "doubles.json"), "--id", "pure")

    for nodes_setting in ({}, {"RUNE_NODES": "away_nodes"}):
        report = InProcessCli(home, **nodes_setting).json("verify", "pure", "left")
        effects = {each["execution_id"]: (each["effects"], each["claims"]) for each in report["audits"]}
        assert (report["status"], effects) == ("sound", {"pure": (0, 0), "left": (1, 1)})


def test_retry_and_rerun_without_a_server_name_the_setting(home: pathlib.Path) -> None:
    rune = InProcessCli(home)

    for command in (("retry", "left"), ("rerun", "left", "--from", "pick")):
        refused = rune(*command)
        assert refused.exit_code == 2
        assert "this command was started without the node type `away.choose`" in refused.output
        assert "set RUNE_NODES=MODULE to the module that has it" in refused.output
    assert InProcessCli(home, RUNE_NODES="away_nodes").json("rerun", "left", "--from", "pick")
