"""What timing decided, given to the oracle, and what the oracle answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.oracle.model import Path, TokenKey

Result = tuple[str, Any]
"""("success", value), ("failed", {"error": {"code": ...}}), ("skipped", None) or ("cancelled", None)."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The part of an execution that no definition decides.

    `opened` names, per `any` or `at_least` join token, the edges that opened it (or, where the join
    failed, those that had arrived); `unstarted` holds the paths of items that a closed aggregator or a
    cancelled region never let begin.
    """

    opened: Mapping[TokenKey, tuple[str, ...]] = field(default_factory=dict)
    timed_out: frozenset[TokenKey] = frozenset()
    cancelled: frozenset[TokenKey] = frozenset()
    unstarted: frozenset[Path] = frozenset()


@dataclass(slots=True)
class Expected:
    """What must come out.

    For an execution that ends early `results` holds what every token would be if nothing were stopped;
    `endings` then lists each (status, code) that is right, `shadow` the nodes behind a halting one, and
    `undecided` the tokens that depend on a race of which no choice is known.
    """

    status: str = "completed"
    error_code: str | None = None
    results: dict[TokenKey, Result] = field(default_factory=dict)
    attempts: dict[TokenKey, int] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    halting: set[TokenKey] = field(default_factory=set)
    endings: set[tuple[str, str]] = field(default_factory=set)
    items_failed: list[TokenKey] = field(default_factory=list)
    parties: dict[TokenKey, dict[str, bool | None]] = field(default_factory=dict)
    undecided: set[TokenKey] = field(default_factory=set)
    shadow: frozenset[str] = frozenset()
