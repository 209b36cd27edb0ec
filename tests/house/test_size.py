"""One noun a file, one thought a function."""

from __future__ import annotations

import ast
import pathlib

import pytest

from tests.house.tree import modules, name, parsed

FILE_LINES = 400
FUNCTION_LINES = 60


@pytest.mark.parametrize("path", modules(), ids=name)
def test_files_are_short(path: pathlib.Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < FILE_LINES


@pytest.mark.parametrize("path", modules(), ids=name)
def test_functions_are_short(path: pathlib.Path) -> None:
    long = {
        f"{node.name} at line {node.lineno}": size
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (size := (node.end_lineno or node.lineno) - node.lineno + 1) >= FUNCTION_LINES
    }

    assert long == {}
