"""Type checkers accept the examples and find wrong parameters of the constructors: mypy in strict mode, and pyright."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rune.build import Workflow
from tests.support.in_process_cli import InProcessCli
from tests.support.paths import EXAMPLE_WORKFLOWS, EXAMPLES, ROOT, SOURCE

TWINS = sorted(
    each for each in EXAMPLES.glob("*/*.py") if each.with_name(f"{each.stem.replace('_', '-')}.yaml").exists()
)
NODES = EXAMPLES / "custom-nodes" / "src"

MISTAKES = """\
from rune.build import Ref, Retry, Workflow, conditional, http, input, wait

with Workflow("mistakes") as flow:
    start = input("start")
    http("parameter", uri="https://shop.example")
    http("type", url=7)
    http("choice", url="https://shop.example", method="FETCH")
    http("common", url="https://shop.example", retry="often")
    wait("unit", amount=3, unit="fortnights")
    conditional("missing")
    http("right", url=f"https://shop.example/{start.out.sku}", retry=Retry(3), timeout=30)
    conditional("expression", expression=(start.out.amount > 3) & (start.out.name == "a"))
    wait("later", amount=start.out.hours, unit="hours")
    quote = http("quote", url="https://shop.example")
    number: Ref[int] = quote.out.status
    text: Ref[str] = quote.out.status
"""
WRONG_LINES = [5, 6, 7, 8, 9, 10, 16]


def lines_found_by_mypy(*paths: Path) -> list[str]:
    """The errors of `mypy --strict`, as `file:line`."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--no-error-summary",
        "--python-version=3.11",
    ]
    command += [
        "--follow-imports=silent",
        f"--cache-dir={ROOT / '.cache' / 'mypy-examples'}",
        *map(str, paths),
    ]
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MYPYPATH": os.pathsep.join((str(SOURCE), str(NODES)))},
    )
    assert found.returncode in (0, 1), found.stdout + found.stderr
    places = [line.split(": error:")[0] for line in found.stdout.splitlines() if ": error:" in line]
    return [f"{Path(file).name}:{line}" for file, line in (place.rsplit(":", 1) for place in places)]


def lines_found_by_pyright(folder: Path) -> list[str]:
    """The errors of pyright in strict mode in the files of a folder, as `file:line`."""
    configuration = {
        "include": ["."],
        "extraPaths": [str(SOURCE), str(NODES)],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        # An expression statement is how edges are written: `a >> b`.
        "reportUnusedExpression": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(configuration))
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    assert found.returncode in (0, 1), found.stdout + found.stderr
    report = json.loads(found.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    errors = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    return [f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}" for each in errors]


def test_mypy_and_pyright_accept_the_examples(tmp_path: Path) -> None:
    assert len(TWINS) > 10
    assert lines_found_by_mypy(*TWINS) == []
    for each in TWINS:
        shutil.copy(each, tmp_path)
    assert lines_found_by_pyright(tmp_path) == []


def test_mypy_and_pyright_find_wrong_parameters(tmp_path: Path) -> None:
    file = tmp_path / "mistakes.py"
    file.write_text(MISTAKES)
    expected = [f"mistakes.py:{line}" for line in WRONG_LINES]

    assert lines_found_by_mypy(file) == expected
    assert list(dict.fromkeys(lines_found_by_pyright(tmp_path))) == expected


def test_mypy_accepts_the_code_that_is_made_of_the_examples(tmp_path: Path) -> None:
    files: list[Path] = []
    for path in EXAMPLE_WORKFLOWS:
        files.append(tmp_path / f"{path.stem.replace('-', '_')}_made.py")
        files[-1].write_text(Workflow.load(path).to_python(), encoding="utf-8")

    assert len(files) >= 12
    assert lines_found_by_mypy(*files) == []


STUBS_IN_USE = """\
from acme_nodes_build import acme_slug
from rune.build import Workflow, input

with Workflow("titles") as flow:
    start = input("start")
    acme_slug("right", text=start.out.title, longest=10, timeout=3)
    acme_slug("parameter", txt="A title")
    acme_slug("type", text="A title", longest="many")
    acme_slug("common", text="A title", retry="often")
    acme_slug("missing")
"""


def test_mypy_and_pyright_find_wrong_parameters_of_own_nodes_by_their_stubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(NODES))
    InProcessCli(tmp_path / "home").output("stubs", "--nodes", "acme_nodes", "-o", str(tmp_path / "flows"))
    made, used = tmp_path / "flows" / "acme_nodes_build.py", tmp_path / "flows" / "used.py"
    used.write_text(STUBS_IN_USE, encoding="utf-8")
    expected = [f"used.py:{line}" for line in (7, 8, 9, 10)]

    assert list(dict.fromkeys(lines_found_by_mypy(made, used))) == expected
    assert list(dict.fromkeys(lines_found_by_pyright(tmp_path / "flows"))) == expected


OWN_NODES = """\
from rune import node
from rune.build import Workflow, input


@node("acme.score", effectful=False)
def score(customer: str, weight: float = 1.0) -> dict[str, float]:
    return {"score": len(customer) * weight}


with Workflow("scores") as flow:
    start = input("start")
    score("rating", customer=start.out.id, timeout=3)
    score.node("other", customer=start.out.id)
right: dict[str, float] = score("c7", 2.0)
wrong: int = score("c7", 2.0)
score(7, 2.0)
"""


def test_mypy_and_pyright_accept_a_custom_node_that_is_placed_by_a_call(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN_NODES, encoding="utf-8")
    expected = ["own.py:15", "own.py:16"]

    assert list(dict.fromkeys(lines_found_by_mypy(file))) == expected
    assert list(dict.fromkeys(lines_found_by_pyright(tmp_path))) == expected
