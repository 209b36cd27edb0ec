"""The tree of exceptions in the docstring of `rune.errors` is that of the package."""

from __future__ import annotations

import ast
import re

from rune import errors
from tests.lint.tree import PACKAGE, files, parsed

ENTRY = re.compile(r"[├└]── ([a-z]\S*) +(.*)")
CLASS_NAME = re.compile(r"\b[A-Z]\w+")


def drawn_tree() -> dict[str, set[str]]:
    """Exceptions by module, as the docstring lists them."""
    found: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in (errors.__doc__ or "").splitlines():
        if entry := ENTRY.match(line):
            names = found.setdefault(entry[1], set())
        elif not line.startswith(("│", "    ")):
            names = set()
        names.update(CLASS_NAME.findall(entry[2] if entry else line))
    return found


def real_tree() -> dict[str, set[str]]:
    """Public classes below RuneError by module, without `rune.errors` itself."""
    classes = [
        (_module(path.relative_to(PACKAGE).as_posix()), node)
        for path in files(PACKAGE, ".py")
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    ]
    known = {"RuneError"}
    while more := {node.name for _, node in classes if known & _bases(node)} - known:
        known |= more
    found: dict[str, set[str]] = {}
    for module, node in classes:
        if known & _bases(node) and not node.name.startswith("_") and module != "errors":
            found.setdefault(module, set()).add(node.name)
    return found


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(each).rpartition(".")[2] for each in node.bases}


def test_docstring_lists_every_exception_in_its_module() -> None:
    assert drawn_tree() == real_tree()
