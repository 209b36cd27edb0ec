"""What judges the rules must not contain them: no rule in the simulator, no line of Rune in the oracle."""

from __future__ import annotations

import ast

from tests.lint.tree import TESTS, files, imports, name, parsed

SIMULATOR = TESTS / "sim"
ORACLE = TESTS / "oracle"
RULE_MATERIAL = {
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


def rules_read(tree: ast.AST) -> list[str]:
    """Where code looks at what only rules may look at."""
    return [
        f"line {node.lineno}: .{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in RULE_MATERIAL
    ]


def test_the_world_of_the_simulator_contains_no_rule() -> None:
    worlds = [path for path in files(SIMULATOR, ".py") if path.name.startswith("world")]

    found = {name(path): rules_read(parsed(path)) for path in worlds}

    assert {where: lines for where, lines in found.items() if lines} == {}
    assert worlds or not SIMULATOR.exists(), (
        "the simulator's world moved: this test looks at tests/simulation/world*.py"
    )


def test_the_oracle_imports_nothing_of_rune() -> None:
    found = [
        f"{name(path)}:{line}: {target}"
        for path in files(ORACLE, ".py")
        if not path.name.startswith("test_")
        for target, line in imports(parsed(path))
        if target.split(".")[0] == "rune" or target.startswith("tests.simulation")
    ]

    assert found == []


def test_the_check_sees_a_rule() -> None:
    assert rules_read(ast.parse("for edge in plan.edges: pass")) == ["line 1: .edges"]
    assert rules_read(ast.parse("state, opened = apply(plan, state, decision)")) == []
