"""The core is pure: no I/O, no clock, no global state, no asynchronous code."""

from __future__ import annotations

import ast
import pathlib
import sys
from collections.abc import Iterator

import pytest

from tests.lint.tree import imports, modules, name, parsed
from tests.support.each import for_each

THIRD_PARTY = {"msgspec", "re2"}
IMPURE = {
    "asyncio",
    "atexit",
    "builtins",
    "concurrent",
    "contextvars",
    "ctypes",
    "gc",
    "getpass",
    "glob",
    "importlib",
    "io",
    "locale",
    "logging",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "pickle",
    "platform",
    "queue",
    "random",
    "sched",
    "secrets",
    "select",
    "selectors",
    "shelve",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "traceback",
    "warnings",
    "weakref",
}
IMPURE_MEMBERS = {"uuid.uuid1", "uuid.uuid4", "urllib.request"}
IMPURE_BUILTINS = {
    "open",
    "print",
    "input",
    "eval",
    "exec",
    "__import__",
    "globals",
    "breakpoint",
    "hash",
}
CLOCKS = {"now", "today", "utcnow"}
ALLOWED_MEMBERS = {"sys.intern"}


def impurities(tree: ast.Module) -> Iterator[str]:
    """Impure imports, statements and calls of a module, with their lines."""
    for target, line in imports(tree):
        top = target.split(".")[0]
        if top in IMPURE and target not in ALLOWED_MEMBERS and not (top == "sys" and target == "sys"):
            yield f"line {line}: imports {target}"
        if target in IMPURE_MEMBERS:
            yield f"line {line}: imports {target}"
        if top not in sys.stdlib_module_names and top not in THIRD_PARTY | {"rune"}:
            yield f"line {line}: imports the third party {target}"
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"line {node.lineno}: {type(node).__name__}"
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield f"line {node.lineno}: {type(node).__name__.lower()} state"
        if isinstance(node, ast.Call):
            yield from _impure_call(node)


def _impure_call(node: ast.Call) -> Iterator[str]:
    called = node.func
    if isinstance(called, ast.Name) and called.id in IMPURE_BUILTINS:
        yield f"line {node.lineno}: calls {called.id}()"
    if isinstance(called, ast.Attribute) and called.attr in CLOCKS:
        owner = called.value
        owner_name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
        if owner_name in {"datetime", "date", "dt"}:
            yield f"line {node.lineno}: reads the clock with {owner_name}.{called.attr}()"
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        dotted = f"{called.value.id}.{called.attr}"
        if dotted in IMPURE_MEMBERS or (called.value.id == "sys" and dotted not in ALLOWED_MEMBERS):
            yield f"line {node.lineno}: calls {dotted}()"


@for_each("path", modules("rune.core"), ids=name)
def test_core_module_is_pure(path: pathlib.Path) -> None:
    assert list(impurities(parsed(path))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import path",
        "import asyncio.tasks",
        "from logging import getLogger",
        "import pydantic",
        "from ruamel.yaml import YAML",
        "async def f(): pass",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import date\ndate.today()",
        "from uuid import uuid4",
        "import uuid\nuuid.uuid4()",
        "import sys\nsys.exit()",
        "open('x')",
        "eval('1')",
        "def f():\n    global x\n    x = 1",
        "hash('text is salted per process')",
    ],
)
def test_impure_code_is_detected(source: str) -> None:
    assert list(impurities(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec, re2, ast, json",
        "import datetime\nx = datetime.datetime.fromisoformat('2026-01-01')",
        "def f(now: int) -> int: return now",
        "import sys\nsys.intern('x')",
        "from rune.core.plan.model import Plan",
        "class Clock:\n    def now(self): ...\ndef f(clock): clock.now()",
    ],
)
def test_pure_code_is_accepted(source: str) -> None:
    assert list(impurities(ast.parse(source))) == []
