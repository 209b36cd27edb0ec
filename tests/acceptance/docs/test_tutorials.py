"""README, tutorials and guides work as they are written, from an empty folder."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rune.build import Workflow
from tests.lint.tree import ROOT, name
from tests.support.followed_page import follow, matches

HTTP = {
    "docs/start/with-curl.md",
    "docs/guides/author/keys-hooks-schedules.md",
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
