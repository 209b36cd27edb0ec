"""Type checkers accept the examples and find wrong parameters of the constructors: mypy in strict mode, and pyright."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rune.build import Workflow
from tests.support.in_process_cli import InProcessCli
from tests.support.paths import EXAMPLE_WORKFLOWS, EXAMPLES
from tests.support.static_checks import CUSTOM_NODES, lines_found_by_mypy, lines_found_by_pyright

pytestmark = pytest.mark.long

TWINS = sorted(
    each for each in EXAMPLES.glob("*/*.py") if each.with_name(f"{each.stem.replace('_', '-')}.yaml").exists()
)

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
    monkeypatch.syspath_prepend(str(CUSTOM_NODES))
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
