"""The examples and the YAML blocks of the documentation are valid workflows."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from tests.acceptance.conformance.command import check
from tests.support.paths import EXAMPLE_WORKFLOWS, ROOT

DOCUMENTED = [
    pytest.param(block, id=f"{page}-{number}")
    for page in ("README.md", "docs/language.md")
    for number, block in enumerate(
        re.findall(
            r"^```yaml[^\n]*\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    )
]


@pytest.mark.parametrize("path", EXAMPLE_WORKFLOWS, ids=lambda path: path.name)
def test_example_is_valid(
    path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.parent.name == "custom-nodes":
        monkeypatch.syspath_prepend(str(path.parent / "src"))
        monkeypatch.setenv("RUNE_NODES", "acme_nodes")

    seen = check(path, capsys)

    assert (seen.exit_code, json.loads(seen.stdout)["status"]) == (0, "valid"), seen.stdout


@pytest.mark.parametrize("block", DOCUMENTED)
def test_documented_workflow_is_valid(
    block: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "documented.yaml"
    path.write_text(block, encoding="utf-8")

    seen = check(path, capsys)

    assert (seen.exit_code, json.loads(seen.stdout)["status"]) == (0, "valid"), seen.stdout
