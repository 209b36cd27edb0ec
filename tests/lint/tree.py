"""Files, syntax trees and imports of the repository."""

from __future__ import annotations

import ast
import functools
import os
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "rune"
TESTS = ROOT / "tests"

_GENERATED = {
    ".git",
    ".venv",
    ".cache",
    ".hypothesis",
    ".rune",
    ".services",
    "__pycache__",
    "dist",
    "htmlcov",
    "node_modules",
}
_TEXT_SUFFIXES = {
    ".py",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".lock",
    ".txt",
    ".svg",
    ".sql",
    ".lua",
    ".sh",
    ".cfg",
    "",
}


def files(below: pathlib.Path = ROOT, *suffixes: str) -> list[pathlib.Path]:
    """All files of the project in a folder, without generated ones."""
    found = []
    for folder, names, leaves in os.walk(below):
        names[:] = sorted(name for name in names if name not in _GENERATED and not name.endswith("_cache"))
        if pathlib.Path(folder) == ROOT and "build" in names:
            names.remove("build")
        found += [pathlib.Path(folder, leaf) for leaf in sorted(leaves) if leaf not in _GENERATED]
    return [path for path in found if not suffixes or path.suffix in suffixes]


def texts() -> Iterator[tuple[str, str]]:
    """Every text file: its path in the repository and its content."""
    for path in files():
        if path.suffix in _TEXT_SUFFIXES and path.name != ".git" and not path.name.startswith(".coverage"):
            yield name(path), path.read_text(encoding="utf-8")


def name(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_name(path: pathlib.Path) -> str:
    """`rune.core.plan.model` for its file, `rune.core` for the package's `__init__`."""
    parts = list(path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(package: str = "rune") -> list[pathlib.Path]:
    """The Python files of a package and its subpackages."""
    below = SOURCE.joinpath(*package.split("."))
    return files(below, ".py")


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Imported modules with their lines; `from a import b` yields `a` and `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno
