"""Finds which expressions of an n8n export read all items at once: `$input.all()`, `$('Node').first()` and the like.

A chain that runs per item has one item at a time, so it ends before a node that reads its whole input, and behind a
node whose items are read as a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_END = r"\s*\??\.\s*(?:all|first|last)\b"
_INPUT = re.compile(r"\$input" + _END)
_QUOTED = r"""(?:'(?:\\.|[^'\\])*+'|"(?:\\.|[^"\\])*+"|`(?:\\.|[^`\\])*+`)"""
_NODE = re.compile(rf"\$(?:\(\s*|node\s*\[\s*)(?P<name>{_QUOTED})\s*[\])]{_END}", re.DOTALL)
_MEMBER = re.compile(r"\$node\s*\.\s*(?P<name>[A-Za-z_$][\w$]*)" + _END)


def reads_input(parameters: Any) -> bool:
    """Return whether an expression reads all items that arrive at the node."""
    return any(_INPUT.search(text) for text in _expressions(parameters))


def nodes_read(parameters: Any) -> set[str]:
    """Return the names of the nodes whose items expressions read as a list."""
    return {
        _unquoted(match["name"])
        for text in _expressions(parameters)
        for pattern in (_NODE, _MEMBER)
        for match in pattern.finditer(text)
    }


def _unquoted(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name[1:-1], flags=re.DOTALL) if name[0] in "'\"`" else name


def _expressions(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if each.startswith("="):
                yield each
        elif isinstance(each, dict):
            waiting += dict.values(each)  # which reads nothing for the report
        elif isinstance(each, list):
            waiting += each
