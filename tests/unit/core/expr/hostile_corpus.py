"""The corpus of hostile expressions in hostile.txt.

Each line is one expression, except:

    # …                              a heading
    %json "…"                        an expression with characters that a line cannot hold
    %repeat 9 ["a", "b", "c"]        a, nine times b, c
    %repeat 9 ["a", "b", "c"] ["d", "e"]   the same, then nine times d, then e
"""

from __future__ import annotations

import json
import pathlib

CORPUS = pathlib.Path(__file__).with_name("hostile.txt")


def hostile_expressions() -> list[str]:
    """Every expression of the corpus."""
    lines = CORPUS.read_text(encoding="utf-8").split("\n")
    return [_expression(line) for line in lines if line and not line.startswith("# ")]


def _expression(line: str) -> str:
    if line.startswith("%json "):
        return str(json.loads(line.removeprefix("%json ")))
    if not line.startswith("%repeat "):
        return line
    count, _, rest = line.removeprefix("%repeat ").partition(" ")
    decoder = json.JSONDecoder()
    (before, unit, middle), end = decoder.raw_decode(rest)
    closer, after = [*(json.loads(rest[end:]) if rest[end:].strip() else []), "", ""][:2]
    return str(before + unit * int(count) + middle + closer * int(count) + after)
