"""Errors after plausible mistakes: what the commands advise."""

from __future__ import annotations

import asyncio
import json
import pathlib
import socket
from collections.abc import Iterator

import pytest

from rune.bootstrap.http import ServerStartError, serve_health
from rune.settings import Settings
from tests.support.cli_process import Rune
from tests.support.documents import document, node
from tests.support.services.listening import refusing_port

HELLO = """\
id: hello
nodes:
  - {id: start, type: input}
  - {id: early, type: conditional, parameters: {expression: "$start.hour < 12"}}
  - {id: morning, type: output, parameters: {value: "Good morning, {{ $start.name }}!"}}
  - {id: evening, type: output, parameters: {value: "Good evening, {{ $start.name }}!"}}
edges:
  - {src: start, dst: early}
  - {src: early, dst: morning, label: "true"}
  - {src: early, dst: evening, label: "false"}
"""


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    return Rune(tmp_path / "home")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("  - {id: early,", " - {id: early,", "indent the entries of one list or object by the same number"),
        ("  - {id: early,", "\t- {id: early,", "indent with spaces, not with tabs"),
        ("{id: start, type: input}", "{id: start, type: input", "close each `{` with `}`"),
        ("nodes:", "nodes", "put a space after the colon of each key"),
        (HELLO, "", "a workflow is an object with `nodes` and `edges`"),
    ],
)
def test_broken_document_is_reported_with_what_to_change(
    rune: Rune, tmp_path: pathlib.Path, right: str, wrong: str, advice: str
) -> None:
    path = tmp_path / "hello.yaml"
    path.write_text(HELLO.replace(right, wrong))

    done = rune("check", str(path))

    assert done.returncode == 2
    assert advice in done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("type: conditional", "type: condition", "did you mean `conditional`?"),
        ("dst: early}", "dst: erly}", "did you mean `early`?"),
    ],
)
def test_one_mistake_is_one_problem(
    rune: Rune, tmp_path: pathlib.Path, right: str, wrong: str, advice: str
) -> None:
    path = tmp_path / "hello.yaml"
    path.write_text(HELLO.replace(right, wrong))

    done = rune("check", str(path))

    assert advice in done.stdout
    assert "invalid: 1 problem\n" in done.stdout


def test_unknown_reference_is_reported_with_the_nodes_first(rune: Rune, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hello.yaml"
    path.write_text(HELLO.replace("$start.hour", "$begin.hour"))

    assert "known here: $early, $evening, $morning, $start, " in rune("check", str(path)).stdout


@pytest.mark.parametrize("command", [("run", "FILE", "--input", "n=1"), ("start", "add", "-i", "{n: 1}")])
def test_input_that_is_not_json_is_reported_with_an_example(
    rune: Rune, tmp_path: pathlib.Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "add.json"
    path.write_text(json.dumps(document([node("a", "input")], id="add")))
    assert rune("deploy", str(path)).returncode == 0

    done = rune(*(str(path) if each == "FILE" else each for each in command))

    assert done.returncode == 2
    assert """write JSON in single quotes, such as '{"name": "Ada"}'""" in done.stderr


def test_file_and_id_of_a_workflow_are_told_apart(rune: Rune, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hello.yaml"
    path.write_text(HELLO)

    assert (
        "this is a workflow, not a test of one" in (tested := rune("test", str(path))).stdout + tested.stderr
    )
    assert "write a file with `workflow`, the path of this one, and `tests`" in tested.stdout + tested.stderr
    assert "`rune start hello` starts a deployed workflow" in rune("run", "hello").stderr
    assert f"`rune run {path}` runs it" in rune("start", str(path)).stderr


def test_taken_port_is_reported_with_what_to_do(rune: Rune, taken: int) -> None:
    done = rune("up", "--port", str(taken))

    assert done.returncode == 2
    assert "stop that process, or choose another port with --port or RUNE_PORT" in done.stderr
    with_setting = Rune(rune.home, RUNE_PORT=str(taken))("up")
    assert with_setting.stderr == done.stderr


def test_taken_health_port_names_its_own_setting(taken: int) -> None:
    async def go() -> None:
        with pytest.raises(ServerStartError, match="with --health-port or RUNE_HEALTH_PORT"):
            async with serve_health(Settings(health_port=taken)):
                pass

    asyncio.run(go())


def test_url_without_a_server_is_reported_with_what_to_check(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing_port() as port:
        monkeypatch.setenv("RUNE_URL", f"http://127.0.0.1:{port}")
        done = Rune(tmp_path / "home")("list")

    assert done.returncode == 3
    assert "no server listens there: compare the URL with the one that `rune up` prints" in done.stderr
