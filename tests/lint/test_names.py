"""Names of modules, classes and functions are words of the field."""

from __future__ import annotations

import ast
import re

from tests.lint.tree import PACKAGE, module_name, modules, name, parsed

ACTIVITIES = {
    "encoding",
    "messaging",
    "routing",
    "testing",
    "tracing",
}
"""Modules and packages in -ing that are terms of the field, not activities."""

FORMER = re.compile(
    r"(?:^|_)(?:bury|crowd|crowded|desk|fleet_follower|give_back|heard|herald|logbook|nap|owed|planbook|telling|told"
    r"|twin|twins|vault|witness)(?:$|_)"
    r"|^(?:Intake|Letter|Vault|Desk|Herald|Planbook|Witness|Logbook)$",
)
"""Names that were replaced; the architecture and its glossary use others."""

DYNAMIC = {
    "rune.build.expressions.Expr": "`node.field` in a workflow is an expression, whatever the field is called",
    "rune.build.expressions.Ref": "the same, with the type of the field",
}
"""Classes that may define `__getattr__`, with the reason. All others spell out their methods."""


def test_modules_are_nouns_or_verbs() -> None:
    names = {part for path in modules() for part in path.relative_to(PACKAGE).with_suffix("").parts}

    assert {each for each in names if each.endswith("ing")} - ACTIVITIES == set()


def test_former_names_do_not_occur() -> None:
    found = [
        f"{name(path)}:{line}: {each}"
        for path in modules()
        for node in ast.walk(parsed(path))
        for each, line in _defined(node)
        if FORMER.search(each)
    ]

    assert found == []


def test_classes_spell_out_their_methods() -> None:
    found = {
        f"{module_name(path)}.{node.name}"
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(each, ast.FunctionDef) and each.name == "__getattr__" for each in node.body)
    }

    assert found == set(DYNAMIC)


def _defined(node: ast.AST) -> list[tuple[str, int]]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [(node.name, node.lineno)]
        case ast.arg():
            return [(node.arg, node.lineno)]
        case ast.Name(ctx=ast.Store()):
            return [(node.id, node.lineno)]
        case ast.Attribute(ctx=ast.Store()):
            return [(node.attr, node.lineno)]
    return []
