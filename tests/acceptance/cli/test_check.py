"""`rune check`: output, JSON reports and exit codes."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rune import __version__
from rune.cli.main import app
from tests.support.cli_process import interpreted
from tests.support.documents import document, node

GOOD = document([node("a", "input"), node("b")], "a>b")
WARNED = document([node("a", "input"), node("b", join="any")], "a>b")
BAD = document([node("a", "teleport"), node("b", colour="red")], "a>c")


def rune(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Any:
    def write_file(name: str, raw: Any) -> str:
        path = tmp_path / name
        path.write_text(raw if isinstance(raw, str) else json.dumps(raw), encoding="utf-8")
        return str(path)

    return write_file


def test_valid_file_prints_summary(write: Any) -> None:
    result = rune("check", write("good.json", GOOD))

    assert result.exit_code == 0
    assert "valid: 2 nodes, 1 edge, " in result.output


def test_invalid_file_lists_every_problem(write: Any) -> None:
    result = rune("check", write("bad.json", BAD))

    assert result.exit_code == 2
    assert "nodes[0].type: no node type is called `teleport`" in result.output
    assert "nodes[1].colour: unknown field `colour`" in result.output
    assert "edges[0].dst: no node is called `c`" in result.output
    assert "[UNKNOWN_NODE]" in result.output
    assert "invalid: 3 problems" in result.output


def test_warnings_do_not_fail_check(write: Any) -> None:
    result = rune("check", write("warned.json", WARNED))

    assert result.exit_code == 0
    assert "warning nodes[1].join" in result.output
    assert "1 warning" in result.output


def test_several_files_print_total(write: Any) -> None:
    result = rune("check", write("good.json", GOOD), write("bad.json", BAD))

    assert result.exit_code == 2
    assert "2 files: 1 valid, 1 invalid" in result.output


def test_json_of_one_file_is_one_document(write: Any) -> None:
    path = write("warned.json", WARNED)

    report = json.loads(rune("check", path, "--json").stdout)

    assert report["status"] == "valid"
    assert report["file"] == path
    assert len(report["hash"]) == 64
    assert (report["workflow_id"], report["nodes"], report["edges"]) == ("test", 2, 1)
    fields = {"path", "code", "message", "hint", "severity", "line", "column"}
    assert [set(each) for each in report["problems"]] == [fields]


def test_json_of_several_files_lists_reports(write: Any) -> None:
    result = rune("check", "--json", write("good.json", GOOD), write("bad.json", BAD))

    report = json.loads(result.stdout)
    assert result.exit_code == 2
    assert report["status"] == "invalid"
    assert [each["status"] for each in report["files"]] == ["valid", "invalid"]


@pytest.mark.parametrize("text", [json.dumps(GOOD), "nodes:\n  - {id: a, type: noop}\n"])
def test_stdin_accepts_json_and_yaml(text: str) -> None:
    result = rune("check", "-", stdin=text)

    assert result.exit_code == 0
    assert "stdin valid" in result.output


def test_missing_file_is_reported(tmp_path: pathlib.Path) -> None:
    result = rune("check", str(tmp_path / "none.json"))

    assert result.exit_code == 2
    assert "cannot be read: no such file or directory" in result.output


def test_file_without_suffix_is_read_as_json(write: Any) -> None:
    assert rune("check", write("workflow", GOOD)).exit_code == 0


def test_version_option_prints_version() -> None:
    assert rune("--version").output.strip() == f"rune {__version__}"


def test_cli_import_loads_no_slow_modules() -> None:
    code = (
        "import sys, rune.cli.main; print(sorted({'ruamel', 'jsonschema', 'rich.table'} & set(sys.modules)))"
    )

    assert interpreted(code).stdout.strip() == "[]"


PARENT = document(
    [
        node("in", "input"),
        node("one", "workflow", {"workflow": "child"}),
        node("two", "workflow", {"workflow": "child", "version": 7}),
        node("three", "workflow", {"workflow": "{{ $trigger.name }}"}),
    ],
    "in>one",
    "one>two",
    "two>three",
    id="parent",
)
CHILD = document([node("a", "input")], id="child")


def unknown_children(report: Any) -> list[tuple[str, str]]:
    assert all(each["severity"] == "warning" for each in report["problems"])
    return [(each["path"], each["message"]) for each in report["problems"] if each["code"] == "UNKNOWN_CHILD"]


def test_child_that_is_not_deployed_is_a_warning(
    write: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNE_HOME", str(tmp_path / "home"))
    parent, child, plain = (
        write("parent.json", PARENT),
        write("child.json", CHILD),
        write("good.json", GOOD),
    )
    old = "nodes[2].parameters.workflow", "`two` starts `child@7`, which is not deployed"
    both = [("nodes[1].parameters.workflow", "`one` starts `child`, which is not deployed"), old]

    assert unknown_children(json.loads(rune("check", parent, "--json").stdout)) == [], "there is no store"
    deployed = json.loads(rune("deploy", plain, "--json").stdout)
    assert deployed["status"] == "deployed"
    assert unknown_children(json.loads(rune("check", parent, "--json").stdout)) == both
    files = json.loads(rune("check", parent, child, "--json").stdout)["files"]
    assert unknown_children(files[0]) == [old], "the other is one of the documents"
    assert unknown_children(json.loads(rune("deploy", parent, "--json").stdout)) == both
    assert rune("deploy", child).exit_code == 0
    result = rune("check", parent)
    assert result.exit_code == 0
    assert "`two` starts `child@7`, which is not deployed" in result.output
    assert "1 warning" in result.output


def test_workflow_that_starts_itself_needs_no_earlier_version(
    write: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNE_HOME", str(tmp_path / "home"))
    assert rune("deploy", write("good.json", GOOD)).exit_code == 0
    loop = document([node("a", "input"), node("b", "workflow", {"workflow": "self"})], "a>b", id="self")

    assert unknown_children(json.loads(rune("check", write("self.json", loop), "--json").stdout)) == []


def test_unreachable_server_leaves_children_unknown(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNE_URL", "http://127.0.0.1:9")
    result = rune("check", write("parent.json", PARENT))

    assert result.exit_code == 0
    assert "whether child workflows are deployed is unknown: " in result.stderr
