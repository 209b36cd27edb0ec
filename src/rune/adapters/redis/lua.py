"""The scripts: one file per verb; a file may include others."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "scripts"
_INCLUDE = re.compile(r"^-- include: (\S+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Script:
    """One verb."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str) -> None:
        whole = (FOLDER / f"{name}.lua").read_text()
        while (found := _INCLUDE.search(whole)) is not None:
            whole = whole[: found.start()] + (FOLDER / found[1]).read_text() + whole[found.end() :]
        self.name = name
        self.text = _COMMENT.sub("", whole).encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


@cache
def script(name: str) -> Script:
    """A verb by the name of its file."""
    return Script(name)


VERBS = ("apply", "claim", "control", "end", "fire", "fold", "incarnation", "install", "renew", "signal", "sweep")
