"""`rune` commands against a server named by RUNE_URL."""

from __future__ import annotations

import asyncio
import http.server
import json
import pathlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from tests.support.api_server import WAITS, RunningServer, run
from tests.support.cli_process import Rune, until
from tests.support.cluster_cli import GATED, HALTS, with_id
from tests.support.in_process_cli import InProcessCli
from tests.support.up_process import UpProcess

KEY = "s3cret"


class RemoteCli:
    """A server with a key, and a command line that uses it with an empty home."""

    def __init__(self, url: str, home: pathlib.Path) -> None:
        self.url = url
        self.home = home
        self.rune = InProcessCli(home, RUNE_URL=url, RUNE_API_KEY=KEY)

    def file(self, raw: dict[str, Any], name: str) -> str:
        """Write a document with this id to a file."""
        self.home.mkdir(exist_ok=True)
        path = self.home / f"{name}.json"
        path.write_text(json.dumps(with_id(raw, name)))
        return str(path)

    def started(self, name: str, *arguments: str) -> str:
        """Start an execution and wait until it waits for its signal."""
        self.rune.json("deploy", self.file(GATED, name))
        id = str(self.rune.json("start", name, "-i", '{"n": 7}', *arguments)["execution_id"])
        until(lambda: "signal" in self.rune.output("explain", id) or None, f"{id} waits")
        return id


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteCli]:
    up = UpProcess(
        tmp_path_factory.mktemp("server"), RUNE_API_KEY=KEY, RUNE_NODES="tests.support.ledger_nodes"
    )
    url = up.start("--no-examples")
    yield RemoteCli(url, tmp_path_factory.mktemp("nothing"))
    up.stop(signal.SIGKILL)


def test_execution_commands_from_start_to_end(remote: RemoteCli) -> None:
    rune = remote.rune
    id = remote.started("ends", "--label", "customer=7", "--priority", "3")
    assert rune.json("list", "--workflow", "ends")["executions"][0]["labels"] == {"customer": "7"}
    assert (
        rune.json("list", "--status", "running", "--workflow", "ends")["executions"][0]["execution_id"] == id
    )
    assert rune.json("explain", id)["waiting"][0]["node"] == "gate"
    assert "waits for signal `go`" in rune.output("show", id)
    heard = rune.json("signal", id, "go", "-v", '{"by": "Ada"}')
    assert heard["resumed"] is True
    lines = [json.loads(line) for line in rune.output("watch", id, "--json").splitlines()]
    assert [each["number"] for each in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["kind"] == "execution.completed"
    assert isinstance(lines[0]["at"], int)
    again = rune.output("watch", id, "--after", str(len(lines) - 1), "--json").splitlines()
    assert [json.loads(line) for line in again] == lines[-1:]
    assert rune.output("watch", id, "--after", str(len(lines))) == ""
    shown = rune.json("show", id)
    assert (shown["status"], shown["output"]) == ("completed", [7, {"by": "Ada"}])
    assert "completed" in rune.output("explain", id)


def test_ids_can_be_abbreviated_and_unknown_ids_fail(remote: RemoteCli) -> None:
    id = remote.started("short")
    assert remote.rune.json("show", id[:-1])["execution_id"] == id
    for wrong in ("x0nothing", "not an id", "x" * 300):
        assert remote.rune("show", wrong).exit_code == 2
        assert remote.rune("cancel", wrong).exit_code == 2
    remote.rune.output("cancel", id)


def test_pause_resume_cancel_retry_and_rerun(remote: RemoteCli) -> None:
    rune = remote.rune
    id = remote.started("steered")
    assert rune.json("pause", id) == {"execution_id": id, "status": "paused", "changed": True}
    assert rune.json("pause", id)["changed"] is False
    assert rune.json("explain", id)["status"] == "paused"
    assert rune.json("resume", id)["changed"] is True
    assert rune.json("cancel", id, "--reason", "twice")["status"] == "cancelled"
    assert rune("cancel", id).exit_code == 1
    retried = rune.json("retry", id, "--key", "once")
    assert retried["retry_of"] == id
    assert rune.json("retry", id, "--key", "once")["execution_id"] == retried["execution_id"]
    rerun = rune.json("rerun", id, "--from", "first")
    assert rerun["retry_of"] == id
    for each in (retried, rerun):
        rune.output("cancel", each["execution_id"])
    assert rune("rerun", id, "--from", "nowhere").exit_code == 2


def test_start_wait_exits_like_run(remote: RemoteCli) -> None:
    rune = remote.rune
    rune.json("deploy", remote.file(HALTS, "halts"))
    failed = rune.json("start", "halts", "--wait", code=1)
    assert failed["status"] in {"failed", "halted"}
    assert "no luck" in rune.output("start", "halts", "--wait", code=1)
    ran = rune.json("run", remote.file(HALTS, "runs"), code=1)
    assert ran["workflow_id"] == "runs"
    refused = rune("run", remote.file(HALTS, "runs"), "--id", "mine")
    assert (refused.exit_code, "RUNE_URL" in refused.stderr) == (2, True)


def test_interrupting_start_wait_leaves_execution_running(remote: RemoteCli) -> None:
    remote.rune.json("deploy", remote.file(GATED, "goeson"))
    outside = Rune(remote.home, RUNE_URL=remote.url, RUNE_API_KEY=KEY)
    process = outside.begin("start", "goeson", "-i", '{"n": 1}', "--wait")
    found = until(
        lambda: remote.rune.json("list", "--workflow", "goeson")["executions"] or None, "it has started"
    )
    id = found[0]["execution_id"]
    until(lambda: "signal" in remote.rune.output("explain", id) or None, f"{id} waits")
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"{id} runs at {remote.url}" in output
    assert remote.rune.json("show", id)["status"] == "running"
    remote.rune.output("cancel", id)


def test_workflows_versions_and_aliases(remote: RemoteCli) -> None:
    rune = remote.rune
    first = rune.json("deploy", remote.file(GATED, "versions"))
    assert (first["version"], first["change"]) == (1, "created")
    assert rune.json("deploy", remote.file(GATED, "versions"))["change"] == "none"
    second = rune.json("deploy", remote.file({**GATED, "name": "Two"}, "versions"), "--alias", "stable")
    assert (second["version"], sorted(second["aliases"])) == (2, ["latest", "stable"])
    assert rune.json("workflows", "alias", "versions", "stable", "1")["change"] == "moved"
    assert rune.json("workflows", "alias", "versions", "stable", "1")["change"] == "none"
    assert rune.json("workflows", "show", "versions@stable")["version"] == 1
    assert rune.json("workflows", "show", "versions")["definition"]["name"] == "Two"
    changes = rune.json("workflows", "diff", "versions", "1", "2")["changes"]
    assert changes
    assert rune.json("workflows", "restore", "versions@1")["aliases"] == ["latest", "stable"]
    assert rune.json("workflows", "remove", "versions")["changed"] is True
    assert "versions" not in [each["workflow_id"] for each in rune.json("workflows")["workflows"]]
    hidden = rune.json("workflows", "list", "--all")["workflows"]
    assert {each["workflow_id"]: each["hidden"] for each in hidden}["versions"] is True
    unknown = rune("start", "nobody")
    assert (unknown.exit_code, "no workflow `nobody`" in unknown.stderr) == (2, True)
    assert rune("workflows", "show", "nobody").exit_code == 2


def test_dead_letter_commands(tmp_path: pathlib.Path) -> None:
    async def work(server: RunningServer) -> None:
        rune = InProcessCli(tmp_path / "nothing", RUNE_URL=server.url)

        async def result(*arguments: str) -> Any:
            return await asyncio.to_thread(rune.json, *arguments)

        assert await result("dlq") == {"dead_letters": [], "more": False}
        await server.deploy(WAITS)
        one, two, alive = [(await server.client.start("waits")).execution_id for _ in range(3)]
        for id in (one, two):
            finish = FinishExecution("failed", Error("DEAD_LETTERED", "given up"))
            await server.engine.finisher.finish(id, finish, server.engine.backend.clock.now())
        assert [each["id"] for each in (await result("dlq", "--limit", "1"))["dead_letters"]] == [two]
        assert (await result("dlq", "show", one))["message"] == "given up"
        assert (await result("dlq", "requeue", one))["retry_of"] == one
        assert await result("dlq", "drop", two) == {"id": two, "dropped": True}
        assert await result("dlq") == {"dead_letters": [], "more": False}
        refused = await asyncio.to_thread(rune, "dlq", "requeue", alive)
        assert (refused.exit_code, "is not a dead letter" in refused.stderr) == (2, True)

    run(tmp_path, work)


def test_invalid_input_is_reported_with_paths(remote: RemoteCli) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    remote.rune.json("deploy", remote.file({**GATED, "inputs": schema}, "typed"))
    result = remote.rune.json("start", "typed", "-i", '{"n": "seven"}', code=2)
    assert result["status"] == "invalid"
    assert "n" in result["problems"][0]["path"]


def test_wrong_key_and_unreachable_server_exit_differently(remote: RemoteCli) -> None:
    wrong = InProcessCli(remote.home, RUNE_URL=remote.url, RUNE_API_KEY="other")("list")
    assert (wrong.exit_code, "RUNE_API_KEY" in wrong.stderr) == (2, True)
    nobody = InProcessCli(remote.home, RUNE_URL="http://127.0.0.1:9")("list")
    assert (nobody.exit_code, "127.0.0.1:9" in nobody.stderr) == (3, True)
    senseless = InProcessCli(remote.home, RUNE_URL="elsewhere")("list")
    assert (senseless.exit_code, "RUNE_URL" in senseless.stderr) == (2, True)


def test_foreign_server_is_reported_with_its_address(tmp_path: pathlib.Path) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = InProcessCli(tmp_path, RUNE_URL=url)("list")
        server.shutdown()

    assert done.exit_code == 3
    assert done.stderr == f"rune: {url} does not respond like a Rune server: status 404\n"


@pytest.mark.parametrize("body", [b"<html>", b'{"executions": "\xff"}', b'{"executions": 1}', b"[" * 100_000])
def test_response_of_foreign_server_is_reported(body: bytes, tmp_path: pathlib.Path) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = InProcessCli(tmp_path, RUNE_URL=url)("list")
        server.shutdown()

    assert done.exit_code == 3
    assert done.stderr.startswith(f"rune: {url} does not respond like a Rune server: ")


def test_url_with_path_reports_unmatched_route(remote: RemoteCli) -> None:
    done = InProcessCli(remote.home, RUNE_URL=f"{remote.url}/rune", RUNE_API_KEY=KEY)("list")

    assert (done.exit_code, done.stderr) == (2, "rune: no route matches /rune/api/v1/executions\n")


def test_url_with_the_path_of_the_api_is_refused_with_the_form_that_works(remote: RemoteCli) -> None:
    done = InProcessCli(remote.home, RUNE_URL=f"{remote.url}/api/v1", RUNE_API_KEY=KEY)("list")

    assert (done.exit_code, done.stderr) == (
        2,
        "rune: RUNE_URL: omit `/api/v1`, which the commands add: `http://host:port`\n",
    )


def test_deploy_is_checked_against_node_types_of_server(remote: RemoteCli) -> None:
    custom = {"nodes": [{"id": "do", "type": "ledger.effect", "parameters": {"did": "it"}}]}
    wrong = {"nodes": [{"id": "do", "type": "ledger.efect"}]}

    assert remote.rune.json("deploy", remote.file(custom, "custom"))["version"] == 1
    (problem,) = remote.rune.json("deploy", remote.file(wrong, "wrong"), code=2)["problems"]
    assert problem["code"] == "UNKNOWN_TYPE"
    assert "ledger.effect" in problem["hint"]
