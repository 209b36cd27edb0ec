"""What the suites of a journal share: where to open one, and rows that are told apart."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from rune.codec.facts import Inline
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import Path as Lineage
from rune.ports.journal import ExecutionRecord, Journal, Parent
from rune.ports.queries import Store

WRITERS = 50


def accepted(execution: str = "x", **given: object) -> ExecutionRecord:
    """An execution as it may be accepted."""
    fields: dict[str, object] = {
        "id": execution,
        "workflow": "w",
        "hash": "h",
        "at": 1,
        "input": b"{}",
        **given,
    }
    return ExecutionRecord(**fields)  # type: ignore[arg-type]


TOKEN: tuple[int, Lineage] = (1, (2, 0))
"""The token that starts a child here."""


def child(execution: str, parent: str = "x", **given: object) -> ExecutionRecord:
    """An execution whose end another one waits for."""
    return accepted(execution, parent=Parent(parent, *TOKEN, 1), depth=1, **given)


def result(node: int, value: bytes = b"1", path: Lineage = (), at: int = 2) -> NodeResult:
    """A result whose value is told apart."""
    return NodeResult(node, path, at, "ok", value=Inline(value))


class JournalSuite:
    """Opens a journal in a folder; opened again there, it holds what it held."""

    def make_journal(self, folder: Path) -> AbstractAsyncContextManager[Journal]:
        raise NotImplementedError

    def make_store(self, folder: Path) -> AbstractAsyncContextManager[Store]:
        """Somebody who looks at what the journal of this folder holds, while it is open."""
        raise NotImplementedError

    def crashed(self, folder: Path) -> Path:
        """A folder with what a crash at this instant would leave on disk; the journal stays open."""
        raise NotImplementedError
