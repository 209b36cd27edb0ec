"""Names of modules, classes and functions are words of the field."""

from __future__ import annotations

import ast
import pathlib
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


def test_module_has_one_logger() -> None:
    """A second one belongs to a second story."""
    loggers = {
        str(path.relative_to(PACKAGE)): [
            part
            for part in parsed(path).body
            if isinstance(part, ast.Assign) and "getLogger" in ast.dump(part.value)
        ]
        for path in modules()
    }
    assert {path for path, assigned in loggers.items() if len(assigned) > 1} == set()


def test_module_has_one_loop() -> None:
    """A loop is what `run` of a class repeats until it is cancelled, itself or in tasks that it creates."""
    assert {str(path.relative_to(PACKAGE)) for path in modules() if len(_loops(path)) > 1} == set()


def _loops(path: pathlib.Path) -> list[str]:
    return [
        part.name
        for part in parsed(path).body
        if isinstance(part, ast.ClassDef)
        if any(
            isinstance(inner, ast.While) and any(isinstance(each, ast.Await) for each in ast.walk(inner))
            for method in _behind_run(part)
            for inner in ast.walk(method)
        )
    ]


def _behind_run(kind: ast.ClassDef) -> list[ast.AsyncFunctionDef]:
    """Return `run` of a class and the coroutines of the class that it names, directly or through other methods."""
    methods = {
        each.name: each for each in kind.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    if not isinstance(methods.get("run"), ast.AsyncFunctionDef):
        return []
    reached, waiting = {"run"}, ["run"]
    while waiting:
        named = {
            part.attr
            for part in ast.walk(methods[waiting.pop()])
            if isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name)
            and part.value.id == "self"
        }
        new = (named & methods.keys()) - reached
        reached |= new
        waiting += new
    return [each for name in reached if isinstance(each := methods[name], ast.AsyncFunctionDef)]
