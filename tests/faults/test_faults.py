"""The comments beside the hazard tests and the tables of faults say the same."""

from __future__ import annotations

import ast
import re

from tests.faults.change import StaleFaultError, check
from tests.faults.fault import Fault
from tests.faults.hook import ROOT
from tests.faults.registry import ALL_FAULTS, FAULTS

HAZARDS = ROOT / "tests" / "hazards"
LINE = re.compile(r"# fault: ([a-i]\d+(?:-[a-z]+)?): \S")


def _read_comments() -> dict[str, str]:
    """By key: the file and the test beside which the comment stands."""
    found: dict[str, str] = {}
    for path in sorted(HAZARDS.glob("test_hazards_*.py")):
        if path.name.startswith("test_hazards_cluster_"):
            continue  # the same hazards on other backends
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                keys = LINE.findall("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                assert len(keys) == 1, f"{node.name} has {len(keys)} comments that name its fault"
                assert keys[0] not in found, f"{keys[0]} stands twice"
                found[keys[0]] = f"{path.name}::{node.name}"
    return found


def test_every_hazard_test_has_its_fault_and_every_fault_its_test() -> None:
    assert {key: each.test.partition("[")[0] for key, each in FAULTS.items()} == _read_comments()


def test_a_key_is_the_hazard_of_its_test() -> None:
    for key, each in FAULTS.items():
        code = key.partition("-")[0]
        assert f"::test_h_{code}_" in each.test, f"{key}: {each.test}"


def test_every_fault_fits_the_product_as_it_is() -> None:
    def fits(fault: Fault) -> bool:
        try:
            check(fault.changes)
        except (StaleFaultError, ImportError):
            return False
        return True

    stale = [key for key, each in ALL_FAULTS.items() if not fits(each)]

    assert stale == [], "`make faults` cannot install these faults any more"
