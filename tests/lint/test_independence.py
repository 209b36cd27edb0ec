"""The simulator contains no rules of the core, and the oracle imports nothing from Rune."""

from __future__ import annotations

import ast

from tests.lint.tree import TESTS, files, imports, name, parsed

SIMULATOR = TESTS / "simulation" / "simulator.py"
ORACLE = TESTS / "simulation" / "oracle"
ORACLE_PACKAGE = "tests.simulation.oracle"
RULE_ATTRIBUTES = {
    "edges",
    "outlets",
    "in_edges",
    "out_edges",
    "barriers",
    "barrier",
    "arrivals",
    "parties",
    "outlet",
}


def rule_accesses(tree: ast.AST) -> list[str]:
    """Attribute accesses that only rules need."""
    return [
        f"line {node.lineno}: .{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in RULE_ATTRIBUTES
    ]


def test_simulator_contains_no_rule() -> None:
    assert rule_accesses(parsed(SIMULATOR)) == []


def test_oracle_imports_nothing_of_rune() -> None:
    modules = [path for path in files(ORACLE, ".py") if not path.name.startswith("test_")]
    found = [
        f"{name(path)}:{line}: {target}"
        for path in modules
        for target, line in imports(parsed(path))
        if target.split(".")[0] == "rune"
        or (target.startswith("tests.") and not f"{target}.".startswith(f"{ORACLE_PACKAGE}."))
    ]

    assert modules
    assert found == []


def test_rule_access_is_detected() -> None:
    assert rule_accesses(ast.parse("for edge in plan.edges: pass")) == ["line 1: .edges"]
    assert rule_accesses(ast.parse("state, opened = apply(plan, state, decision)")) == []
