"""The lines beside the tests and the table of changes say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.hazards.red import EVERYWHERE, TABLE, TOP
from tests.hazards.reds.patch import Patch

HERE = Path(__file__).parent
LINE = re.compile(r"# red: ([a-i]\d+(?:-[a-z]+)?): \S")


def _lines() -> dict[str, str]:
    """By key: the file and the test beside which the line stands."""
    found: dict[str, str] = {}
    for path in sorted(HERE.glob("test_hazards_*.py")):
        if path.name.startswith("test_hazards_cluster_"):
            continue  # the same hazards on other backends
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                keys = LINE.findall("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                assert len(keys) == 1, f"{node.name} has {len(keys)} lines that say what turns it red"
                assert keys[0] not in found, f"{keys[0]} stands twice"
                found[keys[0]] = f"{path.name}::{node.name}"
    return found


def test_every_hazard_test_has_its_change_and_every_change_its_test() -> None:
    assert {key: each.test.partition("[")[0] for key, each in TABLE.items()} == _lines()


def test_a_key_is_the_hazard_of_its_test() -> None:
    for key, each in TABLE.items():
        code = key.partition("-")[0]
        assert f"::test_h_{code}_" in each.test, f"{key}: {each.test}"


def test_every_change_fits_the_sources_as_they_are() -> None:
    def fits(patch: Patch) -> bool:
        text = (TOP / "src" / "rune" / patch.file).read_text(encoding="utf-8")
        return text.count(patch.old) == 1 and patch.old != patch.new

    unfit = [key for key, each in EVERYWHERE.items() for patch in each.patches if not fits(patch)]

    assert unfit == [], "`make reds` cannot make these changes any more"
