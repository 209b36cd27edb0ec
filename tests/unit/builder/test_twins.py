"""Every example has a Python twin that builds the same workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.build import Workflow
from tests.support.paths import EXAMPLE_WORKFLOWS, EXAMPLES


@pytest.mark.parametrize("path", EXAMPLE_WORKFLOWS, ids=lambda path: path.stem)
def test_python_twin_of_example_has_the_same_hash(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "custom-nodes" / "src"))

    twin = Workflow.load(path.with_name(f"{path.stem.replace('-', '_')}.py"))

    assert twin.hash == Workflow.load(path).hash
    assert [each for each in twin.check() if each.severity == "error"] == []
