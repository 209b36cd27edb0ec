"""A problem found in a document: where, what, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One finding. `path` addresses the document (`nodes[3].parameters.timeout`)."""

    path: str
    code: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """A hint that names the closest known words, or lists a few of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f"`{prefix}{each}`" for each in close) + "?"
    if not names:
        return ""
    shown = ", ".join(f"`{prefix}{each}`" for each in names[:12])
    return f"known: {shown}" + (", …" if len(names) > 12 else "")
