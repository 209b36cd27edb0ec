"""Records and facts used by the journal suites, and their base class."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from rune.core.execution.fact import NodeResult
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import Path as Lineage
from rune.ports.journal import ExecutionRecord, Journal, Parent
from rune.ports.queries import Store

WRITERS = 50


def execution_record(execution: str = "x", **overrides: object) -> ExecutionRecord:
    """Return a record with defaults for everything not given."""
    fields: dict[str, object] = {
        "id": execution,
        "workflow": "w",
        "hash": "h",
        "at": 1,
        "input": Inline(b"{}"),
        **overrides,
    }
    return ExecutionRecord(**fields)  # type: ignore[arg-type]


TOKEN: tuple[int, Lineage] = (1, (2, 0))
"""The token of the parent that starts the child."""


def child_record(execution: str, parent: str = "x", **overrides: object) -> ExecutionRecord:
    """Return the record of a child execution."""
    return execution_record(execution, parent=Parent(parent, *TOKEN, 1), depth=1, **overrides)


def result(node: int, value: bytes = b"1", path: Lineage = (), at: int = 2) -> NodeResult:
    """Return a successful result."""
    return NodeResult(node, path, at, "ok", value=Inline(value))


class JournalContractBase:
    """Opens a journal in a folder; opened again there, it has the same content."""

    def make_journal(self, folder: Path) -> AbstractAsyncContextManager[Journal]:
        raise NotImplementedError

    def make_store(self, folder: Path) -> AbstractAsyncContextManager[Store]:
        """Open a reader of the same folder while the journal is open."""
        raise NotImplementedError

    def make_crash_copy(self, folder: Path) -> Path:
        """Copy what a crash at this moment would leave on disk to a new folder; the journal stays open."""
        raise NotImplementedError
