"""The tables of faults agree with the comments in the hazard tests and with the product."""

from __future__ import annotations

import ast
import re

from tests.faults.change import StaleFaultError, check
from tests.faults.fault import Fault
from tests.faults.hook import ROOT
from tests.faults.registry import ALL_FAULTS, FAULTS

HAZARDS = ROOT / "tests" / "hazards"
LINE = re.compile(r"# fault: ([a-i]\d+(?:-[a-z]+)*): \S")


def _read_comments() -> dict[str, str]:
    """Return the file and the test of each comment by key."""
    found: dict[str, str] = {}
    for path in sorted(HAZARDS.glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                keys = LINE.findall("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                assert keys, f"{node.name} has no comment that names its fault"
                for key in keys:
                    assert key not in found, f"{key} is used twice"
                    found[key] = f"{path.name}::{node.name}"
    return found


def test_comments_of_hazard_tests_match_fault_tables() -> None:
    assert {key: each.test.partition("[")[0] for key, each in FAULTS.items()} == _read_comments()


def test_key_starts_with_hazard_of_its_test() -> None:
    for key, each in FAULTS.items():
        code = key.partition("-")[0]
        assert f"::test_h_{code}_" in each.test, f"{key}: {each.test}"


def test_faults_fit_current_product() -> None:
    def fits(fault: Fault) -> bool:
        try:
            check(fault.changes)
        except (StaleFaultError, ImportError):
            return False
        return True

    stale = [key for key, each in ALL_FAULTS.items() if not fits(each)]

    assert stale == [], "`make faults` cannot install these faults"
