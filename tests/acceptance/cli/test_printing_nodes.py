"""What custom nodes print: in the log of the attempt, never in the output of the command. What the processes and
threads that they start print: on standard error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rune.nodes.attempt_log import AttemptLog, attempt_log, decode_log
from rune.nodes.redaction import Redactor
from tests.support.cli_process import Rune
from tests.support.paths import SOURCE, python_path
from tests.support.workflows import of_type, workflow

NODES = """
from rune import NodeContext, node

@node("shout.sync")
def sync(text: str) -> str:
    print("from a thread:", text)
    print("no", end=" ")
    print("newline", end="")
    return text

@node("shout.asynchronous")
async def asynchronous(ctx: NodeContext, text: str) -> str:
    print("from a task:", text)
    return text

@node("shout.pure", effectful=False)
def pure(text: str) -> str:
    print("from a pure node:", text)
    return text
"""


def test_print_of_custom_nodes_is_in_their_logs_and_not_in_json(tmp_path: Path) -> None:
    (tmp_path / "shouting_nodes.py").write_text(NODES)
    document = workflow(
        "start>a a>b b>c",
        a=of_type("shout.sync", text="one"),
        b=of_type("shout.asynchronous", text="two"),
        c=of_type("shout.pure", text="three"),
    )
    file = tmp_path / "shout.json"
    file.write_text(json.dumps(document))
    rune = Rune(tmp_path / "home", PYTHONPATH=python_path(SOURCE, tmp_path))

    done = rune("run", str(file), "--nodes", "shouting_nodes", "--json")

    result = json.loads(done.stdout)
    assert result["status"] == "completed", done.stderr
    logs = rune("logs", result["execution_id"]).stdout
    for line in ("from a thread: one", "no newline", "from a task: two", "from a pure node: three"):
        assert logs.count(line) == 1, logs
    shown = rune("run", str(file), "--nodes", "shouting_nodes").stdout
    assert "from a" not in shown


def test_standard_output_is_given_back_after_the_run() -> None:
    lines: list[str] = []
    before = sys.stdout
    with attempt_log(lambda level, line: lines.append(line)):
        sys.stdout.write("one\ntwo")
        with attempt_log(None):
            sys.stdout.write("of a run without a log\n")
    assert sys.stdout is before
    assert lines == ["one", "two"]


def test_printed_lines_are_bounded_and_redacted_like_logged_ones() -> None:
    log = AttemptLog(lambda line: None)
    secret = "open-sesame-4711"
    with attempt_log(log.write):
        sys.stdout.write("a" * 40_000)
        sys.stdout.write(f"\nwith {secret}\n")
    log.redactor = Redactor((secret,))
    lines = decode_log(log.encoded()).lines
    assert len(lines) > 1
    assert all(len(each.message) < 20_000 for each in lines)
    assert secret not in log.encoded().decode()


STARTING_NODES = """
import os
import subprocess
import sys
import threading

from rune import node

print("imported")
os.system("echo imported by a shell")


@node("start.processes")
def processes(text: str) -> str:
    os.system("echo from a shell")
    subprocess.run(["echo", "from a process"], check=True)
    os.write(1, b"from a descriptor\\n")
    sys.__stdout__.write("from the first stdout\\n")
    sys.__stdout__.flush()
    thread = threading.Thread(target=lambda: print("from another thread"))
    thread.start()
    thread.join()
    return text


@node("start.pure", effectful=False)
def pure(text: str) -> str:
    os.system("echo from a pure node")
    return text
"""
PRINTED = (
    "from a shell",
    "from a process",
    "from a descriptor",
    "from the first stdout",
    "from another thread",
    "from a pure node",
)


def test_processes_and_threads_of_custom_nodes_print_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "starting_nodes.py").write_text(STARTING_NODES)
    document = workflow(
        "start>a a>b", a=of_type("start.processes", text="one"), b=of_type("start.pure", text="two")
    )
    file = tmp_path / "starts.json"
    file.write_text(json.dumps(document))
    rune = Rune(tmp_path / "home", PYTHONPATH=python_path(SOURCE, tmp_path))

    for options in (("--json",), ()):
        done = rune("run", str(file), "--nodes", "starting_nodes", *options)
        assert done.returncode == 0, done.stderr
        for line in ("imported\n", "imported by a shell\n", *PRINTED):
            assert done.stderr.count(line) == 1, done.stderr
            assert line.strip() not in done.stdout
    assert (
        json.loads(rune("run", str(file), "--nodes", "starting_nodes", "--json").stdout)["status"]
        == "completed"
    )


def test_modules_of_node_types_print_on_standard_error_whatever_imports_them(tmp_path: Path) -> None:
    (tmp_path / "starting_nodes.py").write_text(STARTING_NODES)
    file = tmp_path / "starts.json"
    file.write_text(json.dumps(workflow("start>a", a=of_type("start.pure", text="one"))))
    rune = Rune(tmp_path / "home", PYTHONPATH=python_path(SOURCE, tmp_path), RUNE_NODES="starting_nodes")

    for command in (
        ("check", str(file), "--json"),
        ("nodes", "start.pure", "--nodes", "starting_nodes", "--json"),
        ("deploy", str(file), "--json"),
    ):
        done = rune(*command)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
        assert "imported by a shell" in done.stderr


def test_command_whose_standard_output_is_closed_works(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.close(1); sys.argv = ['rune', 'settings']; from rune.cli.main import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        cwd=tmp_path, env={"PYTHONPATH": python_path(SOURCE)},
    )  # fmt: skip

    assert "Traceback" not in done.stderr
