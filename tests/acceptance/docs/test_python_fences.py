"""The Python of a page runs as one module, against a server where the page uses one.

Fences that are files are run by the commands of their page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.lint.tree import ROOT, files, name
from tests.support.api_server import HELLO, RunningServer, in_thread
from tests.support.followed_page import check_limit, cpu_time

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [path for path in files(ROOT, ".md") if BLOCK.search(path.read_text(encoding="utf-8"))]


async def _fill(server: RunningServer) -> None:
    await server.deploy(HELLO)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_of_page_runs_as_one_module(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text(encoding="utf-8")
    module: dict[str, Any] = {"__name__": page.stem}
    monkeypatch.chdir(tmp_path)

    before = cpu_time()
    with in_thread(tmp_path, _fill) as url:
        monkeypatch.setenv("RUNE_URL", url)
        for block in BLOCK.findall(text):
            exec(compile(block, str(page), "exec"), module)
    check_limit(name(page), text, cpu_time() - before)

    if page.name == "api.md":
        assert capsys.readouterr().out.endswith("Hello, World!\n")


def test_pages_with_python_are_found() -> None:
    assert {"docs/api.md", "docs/language.md", "docs/python.md"} <= {name(page) for page in PAGES}
