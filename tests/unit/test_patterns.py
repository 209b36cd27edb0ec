"""Every regular expression of the package takes time in proportion to the text, whatever the text is.

The texts that a backtracking search handles worst are derived from each pattern: what its repetitions match, many
times, after the beginning that leads there and before a character that ends the match.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from re import _constants as ops
from re import _parser as parser
from typing import Any, NamedTuple

import pytest

import rune

SOURCE = Path(rune.__file__).parent
# Quadratic work takes at least 0.3 s at the last size, linear work a millisecond.
SIZES = (30, 1_000, 12_000)
LIMIT_S = 0.1
MAX_CALLS = 3
SEARCHES = frozenset({"search", "sub", "subn", "split", "findall", "finditer"})
WHOLE = frozenset({"match", "fullmatch"})
CHARACTERS = [chr(code) for code in (9, 10, 13, *range(32, 127))]


class Used(NamedTuple):
    """A pattern and how it is used."""

    place: str
    pattern: re.Pattern[Any]
    method: str


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def is_call_of_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
    )


def named_patterns(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(map(is_call_of_re, ast.walk(node.value))):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))


def compiled(found: Any) -> list[re.Pattern[Any]]:
    values = found.values() if isinstance(found, dict) else [found]
    return [each for each in values if isinstance(each, re.Pattern)]


def literal_calls(name: str, tree: ast.Module) -> Iterator[Used]:
    """Yield the patterns that are written in a call such as `re.sub("…", …)`."""
    for node in ast.walk(tree):
        if is_call_of_re(node) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = node.args[0]
            if node.func.attr in SEARCHES | WHOLE and isinstance(first, ast.Constant):
                yield Used(f"{name}:{node.lineno}", re.compile(first.value, flags(node)), node.func.attr)


def flags(call: ast.Call) -> int:
    names = [each.attr for each in ast.walk(call) if isinstance(each, ast.Attribute) and each.attr.isupper()]
    return sum(int(getattr(re, each)) for each in names if hasattr(re, each))


def used_methods(tree: ast.Module) -> dict[str, set[str]]:
    """Return the attributes that are used of each name, or of an element of it."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            if isinstance(owner, ast.Name):
                found.setdefault(owner.id, set()).add(node.attr)
    return found


def used_patterns() -> list[Used]:
    trees = dict(modules())
    methods = {name: used_methods(tree) for name, tree in trees.items()}
    found = [each for name, tree in trees.items() for each in literal_calls(name, tree)]
    for name, tree in trees.items():
        for pattern_name in named_patterns(tree):
            for pattern in compiled(getattr(importlib.import_module(name), pattern_name)):
                users = [name] if pattern_name.startswith("_") else list(methods)
                used = set[str]().union(*(methods[each].get(pattern_name, set()) for each in users))
                method = (
                    "search" if used & SEARCHES else "match" if used & WHOLE == {"match"} else "fullmatch"
                )
                found.append(Used(f"{name}.{pattern_name}", pattern, method))
    return found


def members(op: Any, argument: Any) -> list[str]:
    """Return some characters that one position of a pattern matches."""
    if op is ops.LITERAL:
        return [chr(argument)]
    if op is ops.ANY:
        return ["a", "\n", " "]
    if op is ops.NOT_LITERAL:
        return [each for each in CHARACTERS if ord(each) != argument]
    if op is ops.IN:
        negated = argument[0][0] is ops.NEGATE
        inside = [each for each in CHARACTERS if any(in_class(each, *item) for item in argument)]
        return [each for each in CHARACTERS if each not in inside] if negated else inside
    return []


def in_class(character: str, op: Any, argument: Any) -> bool:
    if op is ops.LITERAL:
        return bool(ord(character) == argument)
    if op is ops.RANGE:
        return bool(argument[0] <= ord(character) <= argument[1])
    if op is ops.CATEGORY:
        kinds = {
            ops.CATEGORY_SPACE: r"\s", ops.CATEGORY_NOT_SPACE: r"\S", ops.CATEGORY_WORD: r"\w",
            ops.CATEGORY_NOT_WORD: r"\W", ops.CATEGORY_DIGIT: r"\d", ops.CATEGORY_NOT_DIGIT: r"\D",
        }  # fmt: skip
        return bool(re.match(kinds[argument], character))
    return False


def inner(op: Any, argument: Any) -> list[Any]:
    """Return the alternatives inside a part of a pattern."""
    if op is ops.SUBPATTERN:
        return [argument[3]]
    if op is ops.BRANCH:
        return list(argument[1])
    if op is ops.ATOMIC_GROUP:
        return [argument]
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        return [argument[2]]
    return []


def sample(pattern: Any, *, least: bool) -> str:
    """Return a text that a pattern matches; `least`: without what is optional."""
    text = ""
    for op, argument in pattern:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            count = min(argument[0], 50) if least else max(1, min(argument[0], 50))
            text += sample(argument[2], least=least) * count
        elif alternatives := inner(op, argument):
            text += sample(alternatives[0], least=least)
        else:
            text += next(iter(members(op, argument)), "")
    return text


def repetitions(pattern: Any, before: tuple[str, str] = ("", "")) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield what leads to each unbounded repetition, and texts that it matches."""
    done: list[Any] = []
    for op, argument in pattern:
        here = (
            before[0] + sample(done, least=True),
            before[1] + sample(done, least=False),
        )
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT) and argument[1] is ops.MAXREPEAT:
            body = argument[2]
            singles = members(*body[0]) if len(body) == 1 else []
            for text in {*singles[:6], *singles[-4:], sample(body, least=True), sample(body, least=False)}:
                yield here, text
        for each in inner(op, argument):
            yield from repetitions(each, here)
        done.append((op, argument))


def units(pattern: re.Pattern[Any]) -> set[tuple[str, str]]:
    """Return beginnings of texts, each with what is to be repeated after it."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    found = {("", each) for each in {*text, *" \n\ta0"}}
    for before, repeated in repetitions(parser.parse(text, pattern.flags & ~re.UNICODE & ~re.DEBUG)):
        for start in {"", *before}:
            found |= {(start, repeated), ("", start + repeated), ("", start)}
    return {(start, repeated) for start, repeated in found if repeated}


def slow_text(used: Used) -> tuple[str, str, str, int, float] | None:
    call = getattr(used.pattern, used.method if used.method in WHOLE else "search")
    encode = isinstance(used.pattern.pattern, bytes)
    for start, repeated in units(used.pattern):
        for end in ("", "\0"):
            for size in SIZES:
                text: Any = start + repeated * (size // len(repeated)) + end
                took = cpu_seconds(call, text.encode("latin-1") if encode else text)
                if took > LIMIT_S:
                    return start, repeated, end, size, took
    return None


def cpu_seconds(call: Any, text: Any) -> float:
    """Return the CPU time of a call, the shortest of several that exceed the limit: other processes make it longer."""
    found: list[float] = []
    while len(found) < MAX_CALLS and min(found, default=LIMIT_S + 1) > LIMIT_S:
        began = time.thread_time()
        call(text)
        found.append(time.thread_time() - began)
    return min(found)


# Applied only to files of the package.
OWN_FILES = {"rune.adapters.redis.client._COMMENT"}


@functools.cache  # on demand: every test process imports this module, and parsing the package takes seconds
def patterns() -> list[Used]:
    return [each for each in used_patterns() if each.place not in OWN_FILES]


def test_patterns_are_found() -> None:
    places = {each.place for each in patterns()}

    assert len(patterns()) > 100
    assert {"rune.nodes.redaction._PAIR", "rune.core.expr.lexer._QUOTED"} <= places


@pytest.mark.long
@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"\\+[uU]([0-9A-Fa-f]{4})", "search"),
        (r"[?&;#]([^=&;#]*)=([^&;#]*)", "search"),
        (r"\s*```[A-Za-z0-9]*\s*\n(.*)\n\s*```\s*", "fullmatch"),
    ],
)
def test_slow_pattern_is_detected(pattern: str, method: str) -> None:
    assert slow_text(Used("", re.compile(pattern), method)) is not None


def test_time_is_proportional_to_text() -> None:
    found = {used.place: slow_text(used) for used in patterns()}

    assert {place: slow for place, slow in found.items() if slow is not None} == {}
