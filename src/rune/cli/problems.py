"""How a command says no: problems as lines or as one document, and the exit codes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rune.core.problem import Problem
    from rune.errors import RuneError

EXIT = {"completed": 0, "failed": 1, "halted": 1, "cancelled": 1}
FOUND_WRONG, INVALID, UNREACHABLE = 1, 2, 3
INTERRUPTED, TERMINATED = 130, 143


def refuse_error(error: RuneError, *, as_json: bool, hint: str = "") -> int:
    """Say why nothing was done, and answer the exit code."""
    from rune.core.problem import Problem  # noqa: PLC0415 - help must be quick

    unreachable = error.code in {
        "STORE_AWAY",
        "NEWER_FORMAT",
        "BAD_FRAME",
        "NEEDS_MIGRATION",
        "REDIS_UNFIT",
        "UNREACHABLE",
    }
    if as_json:
        refuse((Problem("", error.code, error.message, hint),), as_json=True)
    else:
        print(f"rune: {error.message}{f' ({hint})' if hint else ''}", file=sys.stderr)
    return UNREACHABLE if unreachable else INVALID


def refuse(problems: Sequence[Problem], *, as_json: bool) -> int:
    """Print problems; one document on stdout, or lines on stderr."""
    if as_json:
        import msgspec  # noqa: PLC0415 - help must be quick

        print_json({"status": "invalid", "problems": [msgspec.to_builtins(each) for each in problems]})
    else:
        from rune.cli.text import clean  # noqa: PLC0415

        for each in problems:
            hint = f" ({each.hint})" if each.hint else ""
            print(clean(f"{each.path or 'document'}: {each.message}{hint}"), file=sys.stderr)
    return INVALID


def print_json(document: object) -> None:
    """One document on one line of stdout."""
    import msgspec  # noqa: PLC0415 - help must be quick

    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()
