"""The difference between two definitions, as text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rune.cli.text import clean, paint
from rune.core.difference import Change, Field

MARKS = {"added": "+", "removed": "-", "changed": "~", "reordered": "~"}
COLOURS = {"added": "green", "removed": "red", "changed": "yellow", "reordered": "yellow"}
LONG = 100

_SECTIONS = {"document": "workflow", "settings": "settings", "node": "nodes", "edge": "edges"}
_HEADED = frozenset({"id", "type", "src", "dst", "label", "is_error"})


def print_changes(changes: Sequence[Change]) -> None:
    """One section each for the workflow itself, settings, nodes and edges."""
    for what, found in groupby(changes, lambda each: each.what):
        print(paint(_SECTIONS[what], "bold"))
        for change in found:
            for line, kind in _lines(change):
                print(paint(clean(line) if line.strip() else "", COLOURS.get(kind, "")))


def _lines(change: Change) -> Iterator[tuple[str, str]]:
    """Lines without colours, and of which kind each is."""
    if change.what in {"document", "settings"}:
        for field in change.fields:
            yield from _field(field, "  ")
        return
    yield f"  {MARKS[change.kind]} {_heading(change)}", change.kind
    fields = change.fields or tuple(_whole(change))
    for field in fields:
        yield from _field(field, "      ")


def _heading(change: Change) -> str:
    thing = change.after or change.before or {}
    if change.what == "node":
        return f"{change.id} ({thing['type']})"
    named = "" if change.id == f"{thing['src']}-{thing['dst']}" else f"{change.id}: "
    traits = [f"`{thing['label']}`"] if "label" in thing else []
    traits += ["on error"] if thing.get("is_error") else []
    behind = f" ({', '.join(traits)})" if traits else ""
    return f"{named}{thing['src']} → {thing['dst']}{behind}"


def _whole(change: Change) -> Iterator[Field]:
    """What was added or removed with a node, parameter by parameter."""
    for key, value in (change.after or change.before or {}).items():
        if key in _HEADED:
            continue
        inner = value.items() if key == "parameters" else [("", value)]
        for name, each in inner:
            path = f"{key}.{name}" if name else key
            if change.kind == "added":
                yield Field(path, "added", None, each)
            else:
                yield Field(path, "removed", each)


def _field(field: Field, indent: str) -> Iterator[tuple[str, str]]:
    head = f"{indent}{MARKS[field.kind]} {field.path}"
    if field.kind == "reordered":
        yield f"{head}: in another order: {', '.join(field.after)}", field.kind
    elif field.kind == "added":
        yield f"{head}: {_shown(field.after)}", field.kind
    elif field.kind == "removed":
        yield f"{head}: {_shown(field.before)}", field.kind
    elif _is_text(field.before) and _is_text(field.after):
        yield f"{head}:", field.kind
        yield from _text(field.before, field.after, f"{indent}    ")
    else:
        yield f"{head}: {_shown(field.before)} → {_shown(field.after)}", field.kind


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\n" in value.rstrip("\n")


def _text(before: str, after: str, indent: str) -> Iterator[tuple[str, str]]:
    """Longer texts are compared line by line."""
    kinds = {"+": "added", "-": "removed"}
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=1)
    for number, line in enumerate(lines):
        if number >= 2:
            yield f"{indent}{line}", kinds.get(line[:1], "")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONG else f"{text[:LONG]}… ({len(text):,} characters)"
