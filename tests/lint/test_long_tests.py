"""Tests that only `make test-long` runs are none of those that must detect a fault."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.faults.__main__ import path_of
from tests.faults.registry import ALL_FAULTS
from tests.support.paths import ROOT


def _is_long(expression: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "long" for part in ast.walk(expression))


def _long_tests(path: Path) -> Iterator[str]:
    """Yield the ids of the marked modules, classes and functions of a file."""
    file = str(path.relative_to(ROOT))
    module = ast.parse(path.read_text(encoding="utf-8"))
    for statement in ast.walk(module):
        match statement:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value) if _is_long(value):
                yield file
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if any(_is_long(decorator) for decorator in statement.decorator_list):
                    yield f"{file}::{statement.name}"


def test_tests_that_detect_faults_are_not_long() -> None:
    marked = {test for path in (ROOT / "tests").rglob("*.py") for test in _long_tests(path)}
    detecting = {path_of(fault.test).partition("[")[0] for fault in ALL_FAULTS.values()}

    assert len(marked) > 50
    for test in detecting:
        file, *names = test.split("::")
        assert not marked & {file, *(f"{file}::{name}" for name in names)}, test
