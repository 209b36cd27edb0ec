"""Facts as columns: what the write-once key is made of, and what is kept beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rune.core.fact import Attempt, Fact, Result, Suspension
from rune.wire.codec import encode_fact, fact_columns

Columns = tuple[int, int, int, int | None, bytes, bytes]
"""Kind, node, number, due, path, body."""


def columns(fact: Fact) -> Columns:
    """The columns of a fact."""
    kind, node, path, number = fact_columns(fact)
    return kind, node, number, None if type(fact) is Result else _due(fact), path, encode_fact(fact)


def _due(fact: Fact) -> int | None:
    """Not later than when the token has to be looked at again. When exactly an attempt is repeated, the plan knows."""
    if isinstance(fact, Suspension):
        times = [each for each in (fact.due, fact.deadline) if each is not None]
        return min(times, default=None)
    if isinstance(fact, Attempt):
        asked: Any = fact.failure.details.get("retry_at")
        return max(fact.at, asked) if type(asked) is int and asked < 1 << 62 else fact.at
    return None


def arrays(rows: Sequence[Columns]) -> list[str | list[bytes]]:
    """The same, column by column: kinds, nodes, numbers, dues, paths, bodies."""
    if not rows:
        return ["{}", "{}", "{}", "{}", [], []]
    kinds, nodes, numbers, dues, paths, bodies = zip(*rows, strict=True)
    return [integers(kinds), integers(nodes), integers(numbers), integers(dues), list(paths), list(bodies)]


def integers(values: Iterable[int | None]) -> str:
    """Numbers as the database reads a list of them."""
    return f"{{{','.join(map(str, values))}}}".replace("None", "NULL")
