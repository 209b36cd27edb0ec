"""The table of functions in docs/expressions.md.

`python -m tests.unit.core.expr.function_table` writes it into the page.
"""

from __future__ import annotations

import pathlib

from rune.core.expr import FUNCTIONS

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "expressions.md"
BEGIN, END = "<!-- functions -->", "<!-- /functions -->"


def function_table() -> str:
    """The functions by group, each with an example."""
    groups: dict[str, list[str]] = {}
    for each in FUNCTIONS.values():
        cells = (f"`{each.signature}`", each.doc, f"`{each.example}`", f"`{each.result}`")
        groups.setdefault(each.group, []).append("| " + " | ".join(cells) + " |")
    parts = []
    for group, rows in groups.items():
        heading = group[0].upper() + group[1:]
        parts.append(
            "\n".join([f"### {heading}", "", "| function | | example | gives |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts)


def with_table(page: str) -> str:
    """The page with the current table."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{function_table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
