"""Finding the end of an expression inside text."""

from __future__ import annotations

import re

_MARK = re.compile(r"""["'{}]""")
# Possessive, so that a long text which is not closed costs no memory.
_QUOTED = {
    '"': re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL),
    "'": re.compile(r"'[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL),
}


def expression_end(text: str, start: int) -> int:
    """Where the `}}` stands that closes an expression beginning at `start`; -1 if it is not closed.

    Braces of objects and whatever stands in quotes do not close it.
    """
    depth = 0
    mark = _MARK.search(text, start)
    while mark:
        char, at = mark[0], mark.start()
        if char == "{":
            depth += 1
        elif char == "}":
            if depth == 0 and text.startswith("}}", at):
                return at
            depth -= 1
        else:
            quoted = _QUOTED[char].match(text, at)
            if quoted is None:
                return -1
            at = quoted.end() - 1
        mark = _MARK.search(text, at + 1)
    return -1
