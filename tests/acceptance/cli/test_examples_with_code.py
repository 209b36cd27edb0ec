"""The examples with Python code: a distribution of node types, and a report with its own servers."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.support.cli_process import Rune
from tests.support.paths import SOURCE

EXAMPLES = SOURCE.parent / "examples"
NOTICE = {"title": "Big News", "lines": ["one", "two"]}


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder into which pip has installed the distribution, without downloads."""
    folder = tmp_path_factory.mktemp("acme")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    run_python("-m", "pip", "install", *options, "--target", str(folder), str(EXAMPLES / "custom-nodes"))
    return folder


def test_installed_nodes_are_found_by_entry_point(installed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    rune = Rune(tmp_path / "home", PYTHONPATH=f"{SOURCE}{os.pathsep}{installed}")

    result = rune.json("run", str(EXAMPLES / "custom-nodes" / "notice.yaml"), "--input", json.dumps(NOTICE))

    assert result["output"] == {
        "address": "/notices/big-news",
        "file": "big-news.txt",
        "size": 27,
        "checksum": hashlib.sha256(b"Big News\n========\n\none\ntwo\n").hexdigest(),
    }
    assert "acme.checksum" in rune("nodes").stdout


def test_workflow_without_distribution_is_invalid(tmp_path: pathlib.Path) -> None:
    rune = Rune(tmp_path / "home")

    result = rune.json("check", str(EXAMPLES / "custom-nodes" / "notice.yaml"), code=2)

    assert {each["code"] for each in result["problems"]} == {"UNKNOWN_TYPE"}


def test_custom_nodes_distribution_passes_its_tests(installed: pathlib.Path) -> None:
    tests = EXAMPLES / "custom-nodes" / "tests"

    done = run_python(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tests),
        "-c",
        os.devnull,
        str(tests),
        PYTHONPATH=f"{SOURCE}{os.pathsep}{installed}",
    )

    assert "7 passed" in done.stdout


def test_custom_nodes_distribution_is_typed(installed: pathlib.Path) -> None:
    assert (installed / "acme_nodes" / "py.typed").is_file()


def test_fetch_users_report_demo_sends_report(tmp_path: pathlib.Path) -> None:
    demo = EXAMPLES / "fetch-users-report" / "demo.py"

    shown = run_python(str(demo), PYTHONPATH=str(SOURCE), RUNE_HOME=str(tmp_path / "home")).stdout

    assert '"total": 1291.5' in shown
    mail = shown.partition("From: ")[2]
    assert "To: Boss <boss@shop.example>" in mail
    assert "Subject: Orders of 7 users" in mail
    assert "Gina: 6 orders, 522.75" in mail
    assert "[orders.csv]\nname,orders,total\nAda,0,0\n" in mail
    result = Rune(tmp_path / "home").json("list")
    (entry,) = result if isinstance(result, list) else result["executions"]
    assert entry["status"] == "completed"
