"""The examples that are more than a document: a distribution of node types, and a report from servers of its own."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.acceptance.cli.process import Rune
from tests.support.paths import SOURCE

EXAMPLES = SOURCE.parent / "examples"
NOTICE = {"title": "Big News", "lines": ["one", "two"]}


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
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
    """A folder in which the distribution is installed, as pip does it; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("acme")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    python("-m", "pip", "install", *options, "--target", str(folder), str(EXAMPLES / "custom-nodes"))
    return folder


def test_an_installed_distribution_is_found_by_its_entry_point(
    installed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    rune = Rune(tmp_path / "home", PYTHONPATH=f"{SOURCE}{os.pathsep}{installed}")

    told = rune.json("run", str(EXAMPLES / "custom-nodes" / "notice.yaml"), "--input", json.dumps(NOTICE))

    assert told["output"] == {
        "address": "/notices/big-news",
        "file": "big-news.txt",
        "size": 27,
        "checksum": hashlib.sha256(b"Big News\n========\n\none\ntwo\n").hexdigest(),
    }
    assert "acme.checksum" in rune("nodes").stdout


def test_without_it_the_workflow_is_refused(tmp_path: pathlib.Path) -> None:
    rune = Rune(tmp_path / "home")

    told = rune.json("check", str(EXAMPLES / "custom-nodes" / "notice.yaml"), code=2)

    assert {each["code"] for each in told["problems"]} == {"UNKNOWN_TYPE"}


def test_the_distribution_passes_its_own_tests(installed: pathlib.Path) -> None:
    tests = EXAMPLES / "custom-nodes" / "tests"

    done = python(
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


def test_the_distribution_is_typed(installed: pathlib.Path) -> None:
    assert (installed / "acme_nodes" / "py.typed").is_file()


def test_the_report_arrives(tmp_path: pathlib.Path) -> None:
    demo = EXAMPLES / "fetch-users-report" / "demo.py"

    shown = python(str(demo), PYTHONPATH=str(SOURCE), RUNE_HOME=str(tmp_path / "home")).stdout

    assert '"total": 1291.5' in shown
    mail = shown.partition("From: ")[2]
    assert "To: Boss <boss@shop.example>" in mail
    assert "Subject: Orders of 7 users" in mail
    assert "Gina: 6 orders, 522.75" in mail
    assert "[orders.csv]\nname,orders,total\nAda,0,0\n" in mail
    told = Rune(tmp_path / "home").json("list")
    (entry,) = told if isinstance(told, list) else told["executions"]
    assert entry["status"] == "completed"
