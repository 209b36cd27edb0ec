"""Input and output of the oracle: the choices that timing made, and the expected results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.oracle.model import Path, TokenKey

Result = tuple[str, Any]
"""("success", value), ("failed", {"error": {"code": ...}}), ("skipped", None) or ("cancelled", None)."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The outcomes of an execution that depend on timing.

    `opened` names, per `any` or `at_least` join token, the edges that opened it (or, where the join
    failed, those that had arrived); `unstarted` holds the paths of items that were not started because their
    aggregator closed or their region was cancelled.
    """

    opened: Mapping[TokenKey, tuple[str, ...]] = field(default_factory=dict)
    timed_out: frozenset[TokenKey] = frozenset()
    cancelled: frozenset[TokenKey] = frozenset()
    unstarted: frozenset[Path] = frozenset()


@dataclass(slots=True)
class Expected:
    """The expected results of an execution.

    For an execution that ends early `results` holds the results without the halt, `endings` the allowed
    (status, code) pairs, `downstream` the nodes after a halting node, and `undecided` the tokens that depend on
    a race without a recorded choice.
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
    downstream: frozenset[str] = frozenset()
