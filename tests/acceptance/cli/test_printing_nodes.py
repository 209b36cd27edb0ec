"""What custom nodes print: in the log of the attempt, never in the output of the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rune.nodes.attempt_log import AttemptLog, attempt_log, decode_log
from rune.nodes.redaction import Redactor
from tests.support.cli_process import Rune
from tests.support.paths import ROOT
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
    rune = Rune(tmp_path / "home", PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}")

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
