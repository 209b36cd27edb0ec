"""The reference of the Python packages, made from the names in `__all__`."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import rune
from tools.docs.markdown import code, fence, page, table

FOLDER = "reference/python"
PACKAGES = (
    "rune",
    "rune.build",
    "rune.build.results",
    "rune.client",
    "rune.testing.engine",
    "rune.testing.mocks",
    "rune.testing.crash",
    "rune.testing.mocks",
    "rune.testing.expectations",
    "rune.testing.cases",
    "rune.documents.importers",
)
PLUGIN = "rune.testing.plugin"


def pages() -> dict[str, str]:
    """Return one page per package, and the page that lists them."""
    made = {f"{FOLDER}/{name}.md": _package(import_module(name)) for name in PACKAGES}
    made[f"{FOLDER}/{PLUGIN}.md"] = _fixtures()
    rows = [(f"[`{name}`]({name}.md)", _first_line(import_module(name))) for name in PACKAGES]
    rows.append((f"[`{PLUGIN}`]({PLUGIN}.md)", "The fixtures of the pytest plugin."))
    blocks = [
        "The public packages. Only the names listed here are part of the interface; other modules may change.",
        table(("package", ""), rows),
    ]
    made[f"{FOLDER}/index.md"] = page("Python", blocks, audience="developer")
    return made


def _fixtures() -> str:
    """Return the page of the fixtures, read from the source: pytest is no requirement of the site."""
    source = Path(rune.__file__).parent.joinpath(*PLUGIN.split(".")[1:]).with_suffix(".py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    blocks = [(ast.get_docstring(tree) or "").partition("\n\n")[0]]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("rune_"):
            kind = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            blocks += [
                f"## `{node.name}`",
                fence("python", f"{node.name}{kind}"),
                ast.get_docstring(node) or "",
            ]
    return page(f"`{PLUGIN}`", blocks, audience="developer")


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


def public_names(module: ModuleType) -> list[str]:
    """Return what a package exports: its `__all__`, or what it imports on first use, or what it defines."""
    if module is rune:
        return list(rune._MODULES)
    return getattr(module, "__all__", None) or [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and getattr(thing, "__module__", "") == module.__name__
        and (inspect.isclass(thing) or inspect.isfunction(thing))
    ]


def _package(module: ModuleType) -> str:
    blocks = [_first_line(module)]
    for name in sorted(public_names(module), key=str.lower):
        blocks += [f"## `{name}`", *_describe(name, getattr(module, name))]
    return page(f"`{module.__name__}`", blocks, audience="developer")


def _describe(name: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing):
        yield fence("python", f"class {name}{_signature(thing)}")
        yield _prose(_own_doc(thing))
        yield from _members(thing)
    elif callable(thing) and hasattr(thing, "__name__"):
        yield fence("python", f"{_prefix(thing)}{name}{_signature(thing)}")
        yield _prose(inspect.getdoc(thing) or "")
    else:
        yield f"`{name}`: {code(type(thing).__name__)}. {_prose(inspect.getdoc(type(thing)) or '')}"


def _members(thing: type) -> Iterator[str]:
    if issubclass(thing, enum.Enum) or dataclasses.is_dataclass(thing):
        return
    for name, member in inspect.getmembers_static(thing):
        if name.startswith("_") or getattr(getattr(thing, name, None), "__qualname__", thing.__name__).split(
            "."
        )[0] in {
            "BaseException",
            "Exception",
            "Struct",
            "object",
        }:
            continue
        if isinstance(member, property):
            yield f"### `{name}`"
            yield _prose(inspect.getdoc(member) or "") or "A property."
        elif inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
            bound = getattr(thing, name)
            yield f"### `{name}()`"
            yield fence("python", f"{_prefix(bound)}{name}{_signature(bound)}")
            yield _prose(inspect.getdoc(bound) or "")


def _prefix(thing: Any) -> str:
    return "async def " if inspect.iscoroutinefunction(thing) else "def "


def _signature(thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    parts: list[str] = []
    last: Any = None
    for each in found.parameters.values():
        if last is each.POSITIONAL_ONLY and each.kind is not each.POSITIONAL_ONLY:
            parts.append("/")
        if each.kind is each.KEYWORD_ONLY and last not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
            parts.append("*")
        last = each.kind
        if each.name not in ("self", "cls"):
            parts.append(_parameter(each))
    end = "" if found.return_annotation is found.empty else f" -> {_annotation(found.return_annotation)}"
    line = f"({', '.join(parts)}){end}"
    return line if len(line) < 90 else "(\n" + "".join(f"    {each},\n" for each in parts) + f"){end}"


def _parameter(each: inspect.Parameter) -> str:
    kinds: dict[Any, str] = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}
    stars = kinds.get(each.kind, "")
    kind = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
    if each.default is each.empty:
        return f"{stars}{each.name}{kind}"
    default = "..." if type(each.default) is object else re.sub(r" at 0x\w+", "", repr(each.default))
    return f"{each.name}{kind} = {default}"


def _annotation(given: Any) -> str:
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    return text.strip("'\"")


def _own_doc(thing: type) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _prose(text: str) -> str:
    """Return a docstring; lines of the form `name: meaning` become a list."""
    parts = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if len(lines) > 1 and all(re.match(r"\w+: ", line) for line in lines):
            parts.append("\n".join(re.sub(r"^(\w+): ", r"- `\1`: ", line) for line in lines))
        elif any(line.startswith("    ") for line in lines):
            parts.append(fence("text", block))
        elif block:
            parts.append(block)
    return "\n\n".join(parts)
