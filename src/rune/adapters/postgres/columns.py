"""Facts as columns: what the write-once key is made of, and what is kept beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rune.core.fact import Attempt, Fact, Result, Suspension
from rune.wire.codec import encode_fact, fact_columns

Columns = tuple[int, int, bytes, int, int | None, bytes]
"""Kind, node, path, number, due, body."""


def columns(fact: Fact) -> Columns:
    """The columns of a fact."""
    kind, node, path, number = fact_columns(fact)
    return kind, node, path, number, None if type(fact) is Result else _due(fact), encode_fact(fact)


def _due(fact: Fact) -> int | None:
    """Not later than when the token has to be looked at again. When exactly an attempt is repeated, the plan knows."""
    if isinstance(fact, Suspension):
        times = [each for each in (fact.due, fact.deadline) if each is not None]
        return min(times, default=None)
    if isinstance(fact, Attempt):
        asked: Any = fact.failure.details.get("retry_at")
        return max(fact.at, asked) if type(asked) is int and asked < 1 << 62 else fact.at
    return None


def arrays(rows: Sequence[Columns]) -> list[list[Any]]:
    """The same, column by column."""
    return [list(each) for each in zip(*rows, strict=True)] if rows else [[] for _ in range(6)]
