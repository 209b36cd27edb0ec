"""Lines of coloured text for the reports of documents."""

from __future__ import annotations

from rich.text import Text

from rune.cli.output import clean


def line_of(*parts: str | tuple[str, str]) -> Text:
    """Return one line from texts and from pairs of text and style, without control characters."""
    return Text.assemble(
        *(clean(each) if isinstance(each, str) else (clean(each[0]), each[1]) for each in parts)
    )
