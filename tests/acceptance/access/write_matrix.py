"""Writes the permission matrix to docs/access.md: `python -m tests.acceptance.access.write_matrix`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rune.server.app import make_app
from rune.server.routing import table
from tests.support.api_server import RunningServer, run

DOCS = Path(__file__).parents[3] / "docs" / "access.md"
BEGINNING = "| request | right |"


async def matrix(server: RunningServer) -> str:
    """The permission matrix of all routes."""
    return table(list(make_app(server.master).routes))


def written(text: str, made: str) -> str:
    """The text of the page with the matrix inserted."""
    return f"{text[: text.index(BEGINNING)]}{made}\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = DOCS.read_text(encoding="utf-8")
        DOCS.write_text(written(page, run(Path(folder), matrix)), encoding="utf-8")
