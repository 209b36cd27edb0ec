"""`rune logs`, and the lines that `rune run` prints."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from tests.support.cli_process import Rune, until
from tests.support.documents import document, node
from tests.support.paths import SOURCE, python_path
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

CODE = """
import logging
from pathlib import Path
from rune import NodeContext, node

@node("shop.send")
async def send(ctx: NodeContext, to: str) -> str:
    ctx.log("sending", to=to)
    logging.getLogger("shop").info("from logging")
    return to

@node("shop.hold")
def hold(ctx: NodeContext, file: str) -> str:
    ctx.log("holding")
    Path(file).read_text()  # a pipe: waits until the test writes
    ctx.log("released", level="warning")
    return "done"
"""


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    (tmp_path / "shop_nodes.py").write_text(CODE)
    return Rune(tmp_path / "home", RUNE_NODES="shop_nodes", PYTHONPATH=python_path(SOURCE, tmp_path))


def written(folder: pathlib.Path, *nodes: dict[str, object], edges: str) -> str:
    path = folder / "shop.json"
    path.write_text(json.dumps(document([node("a", "input"), *nodes], *edges.split(), id="shop")))
    return str(path)


@pytest.fixture
def sends(tmp_path: pathlib.Path) -> str:
    send = node("s", "shop.send", parameters={"to": "Ada"})
    log = node("l", "log", parameters={"message": "sent to {{ $s }}", "level": "warning"})
    return written(tmp_path, send, log, edges="a>s s>l")


def test_run_prints_logged_lines_on_stderr(rune: Rune, sends: str) -> None:
    done = rune("run", sends, "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "completed"
    assert 's: sending to="Ada"' in done.stderr
    assert "s: from logging" in done.stderr
    assert "warning  l: sent to Ada" in done.stderr


def test_run_prints_what_each_log_node_says_once_and_nothing_of_other_executions(
    rune: Rune, tmp_path: pathlib.Path
) -> None:
    """In items, behind a wait, as the last node, as JSON, cut if long; an execution of before resumes beside it."""
    nodes = [
        node("each", "split", parameters={"input_array": "$trigger.names"}),
        node(
            "greet", "log", parameters={"message": "{{ $trigger.who }} greets {{ $item }}", "level": "debug"}
        ),
        node("all", "aggregator"),
        node("later", "wait", parameters={"amount": 0.01, "unit": "seconds"}),
        node("last", "log", parameters={"message": "{{ $trigger.record }}"}),
    ]
    edges = "a>each each>greet greet>all all>later later>last"
    path = written(tmp_path, *nodes, edges=edges)
    nobody = {"who": "nobody", "names": ["Nil"], "record": None}
    other = rune("start", rune.json("deploy", path)["workflow_id"], "-i", json.dumps(nobody))
    assert other.returncode == 0, other.stderr
    eve = {"who": "Eve", "names": [f"n{i}" for i in range(70)], "record": {"long": "x" * 20_000}}

    done = rune("run", path, "-i", json.dumps(eve), "--json")

    assert json.loads(done.stdout)["status"] == "completed", done.stderr
    said = [line.split("  ", 1)[1] for line in done.stderr.splitlines()]
    items = [line for line in said if line.startswith("debug")]
    assert sorted(items) == sorted(f"debug    greet each:{i}: Eve greets n{i}" for i in range(70))
    assert [line[:34] for line in said if line not in items] == ['info     last: {"long":"xxxxxxxxxx']
    assert all(len(line) < 17_000 for line in said)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_following_an_owner_prints_what_log_nodes_say_on_stderr(
    rune: Rune, sends: str, tmp_path: pathlib.Path, request: pytest.FixtureRequest, options: tuple[str, ...]
) -> None:
    server = UpProcess(tmp_path / "home", RUNE_NODES="shop_nodes", PYTHONPATH=python_path(SOURCE, tmp_path))
    request.addfinalizer(server.stop)
    url = server.start("--no-examples")
    remote = Rune(
        tmp_path / "elsewhere",
        RUNE_URL=url,
        RUNE_NODES="shop_nodes",
        PYTHONPATH=python_path(SOURCE, tmp_path),
    )

    for each in (rune, remote):
        done = each("run", sends, *options)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("warning  l: sent to Ada") == 1
        assert done.stderr.count('s: sending to="Ada"') == 1
        assert "info" not in done.stdout


def test_logs_prints_lines_of_all_nodes(rune: Rune, sends: str) -> None:
    id = rune.json("run", sends)["execution_id"]

    shown = [line.split("  ", 1)[1] for line in rune("logs", id[:12]).stdout.splitlines()]

    assert shown == [
        'info     s: sending to="Ada"',
        "info     s: from logging",
        "warning  l: sent to Ada",
    ]


def test_logs_of_one_node_as_json(rune: Rune, sends: str) -> None:
    id = rune.json("run", sends)["execution_id"]

    lines = [json.loads(line) for line in rune("logs", id, "--node", "l", "--json").stdout.splitlines()]

    assert [(each["node_id"], each["level"], each["message"]) for each in lines] == [
        ("l", "warning", "sent to Ada")
    ]
    unknown = rune("logs", id, "--node", "nobody")
    assert unknown.returncode == 2
    assert "nobody" in unknown.stderr


def test_follow_prints_lines_of_running_node_until_the_end(rune: Rune, tmp_path: pathlib.Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    path = written(tmp_path, node("h", "shop.hold", parameters={"file": str(gate)}), edges="a>h")
    running = rune.begin("run", path, "--id", "held", "--json")
    until(lambda: "held" in rune("list").stdout or None, "the execution starts")
    following = rune.begin("logs", "held", "--follow")
    assert following.stdout is not None
    first = following.stdout.readline()
    gate.write_text("")
    rest, _ = following.communicate(timeout=60)
    running.communicate(timeout=60)

    assert first.rstrip().endswith("h: holding")
    assert rest.rstrip().endswith("h: released")
    assert following.returncode == 0


def test_watch_and_explain_tell_running_node(rune: Rune, tmp_path: pathlib.Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    path = written(tmp_path, node("h", "shop.hold", parameters={"file": str(gate)}), edges="a>h")
    running = rune.begin("run", path, "--id", "held", "--json")
    until(lambda: "is running" in rune("explain", "held").stdout or None, "the node runs")
    explained = rune("explain", "held").stdout
    watching = rune.begin("watch", "held")
    assert watching.stdout is not None
    lines = [watching.stdout.readline()]
    while "node.running" not in lines[-1]:
        lines.append(watching.stdout.readline())
    gate.write_text("")
    rest, _ = watching.communicate(timeout=60)
    running.communicate(timeout=60)

    assert f"is running on worker {running.pid} for " in explained
    assert "(attempt 1)" in explained
    assert f"h  on worker {running.pid}" in lines[-1]
    assert "execution.completed" in rest


def test_logs_over_url_equal_those_of_the_stores(
    rune: Rune, sends: str, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    id = rune.json("run", sends)["execution_id"]
    local = rune("logs", id, "--json").stdout
    server = UpProcess(tmp_path / "home", RUNE_NODES="shop_nodes", PYTHONPATH=python_path(SOURCE, tmp_path))
    request.addfinalizer(server.stop)
    url = server.start("--no-examples")
    remote = Rune(tmp_path / "elsewhere", RUNE_URL=url)("logs", id, "--json")

    assert remote.stdout == local
    assert "sent to Ada" in local
