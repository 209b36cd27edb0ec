"""`--key`: under which something is done once. An empty one, as an unset variable gives, would do it each time."""

from __future__ import annotations

from typing import Annotated

import typer


def not_empty(key: str | None) -> str | None:
    """Refuse a key without a character."""
    if key is not None and not key.strip():
        raise typer.BadParameter("a key has at least one character")
    return key


StartKey = Annotated[
    str | None,
    typer.Option("--key", callback=not_empty, help="Start at most once under this key, now and later."),
]
