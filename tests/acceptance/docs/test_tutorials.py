"""README, tutorials and guides work as they are written, from an empty folder."""

from __future__ import annotations

import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rune.build import Workflow
from tests.lint.tree import ROOT, name
from tests.support.followed_page import TUTORIAL_S, check_limit, follow, matches
from tools.docs.markdown import front_matter

pytestmark = pytest.mark.long

HTTP = {
    "docs/start/with-curl.md",
    "docs/guides/author/keys-hooks-schedules.md",
    "docs/triggers.md",
    "docs/guides/operate/what-to-do-when.md",  # shows no commands to follow
}  # the others are followed by test_http_pages
PLACES = (
    "docs/start/*.md",
    "docs/guides/*/*.md",
    "docs/backup.md",
    "docs/cluster.md",
    "docs/credentials.md",
    "docs/custom-nodes.md",
    "docs/deploy.md",
    "docs/from-n8n.md",
    "docs/import.md",
    "docs/retention.md",
    "docs/scale.md",
    "docs/testing.md",
    "docs/upgrade.md",
    "docs/workflows.md",
)
PAGES = sorted({name(path) for place in PLACES for path in ROOT.glob(place)} - HTTP)


@pytest.mark.parametrize("page", PAGES)
def test_page_works_as_written(page: str, tmp_path: Path) -> None:
    assert follow(page, tmp_path)


def _pages_of(kind: str) -> dict[str, str]:
    texts = {name(path): path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    return {page: text for page, text in texts.items() if front_matter(text)[0].get("kind") == kind}


def test_every_tutorial_is_followed_within_the_limit_of_a_tutorial() -> None:
    tutorials = _pages_of("tutorial")
    programs = {
        page for page, text in tutorials.items() if "```python\n" in text
    }  # run by test_python_fences

    assert len(tutorials) >= 10
    assert tutorials.keys() - {*PAGES} - HTTP - programs == set()


def test_every_page_with_commands_to_follow_is_followed() -> None:
    pages = {**_pages_of("tutorial"), **_pages_of("guide")}
    commands = {page for page, text in pages.items() if re.search(r"^```(console|sh)\n", text, re.MULTILINE)}

    assert commands - {*PAGES} - HTTP == set()
    assert [page for page, text in pages.items() if re.search(r"^```(text)?\n\$ ", text, re.MULTILINE)] == []


@pytest.mark.parametrize(("kind", "allowed"), [("tutorial", False), ("guide", True)])
def test_only_a_tutorial_has_the_limit(kind: str, allowed: bool) -> None:
    text = f"---\nkind: {kind}\nfor: author\n---\n\n# A page\n"

    check_limit("page.md", text, TUTORIAL_S)
    with nullcontext() if allowed else pytest.raises(AssertionError, match="121 s of a processor"):
        check_limit("page.md", text, TUTORIAL_S + 1)


def test_readme_works_as_written(tmp_path: Path) -> None:
    seen = follow("README.md", tmp_path)

    assert [each.output[-1] for each in seen if each.output] == ['"Good morning, Ada!"', "Good evening, Ada!"]
    written = Workflow.load((tmp_path / "hello.yaml").read_text(encoding="utf-8"))
    built: dict[str, Any] = {"__name__": "readme"}
    exec(compile((tmp_path / "hello.py").read_text(encoding="utf-8"), "hello.py", "exec"), built)
    assert built["flow"].hash == written.hash, "the YAML and the Python are the same workflow"


def test_readme_commands_of_make_start_the_server() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^make (\S+)", text, re.MULTILINE)
    steps = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *commands],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert commands == ["run"]
    assert steps.rstrip().endswith("/rune up")
    elsewhere = ["make", "--dry-run", "--no-print-directory", "run", "PORT=9000"]
    chosen = subprocess.run(elsewhere, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert chosen.rstrip().endswith("/rune up --port 9000")


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (["a", "…", "z"], ["a", "b", "c", "z"], True),
        (["took … ms"], ["took 12 ms"], True),
        (["took … ms"], ["took 12 s"], False),
        (["a"], ["a", "b"], False),
    ],
)
def test_output_is_compared_with_wildcards(expected: list[str], found: list[str], same: bool) -> None:
    assert matches(expected, found) is same
