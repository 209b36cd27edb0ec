"""Status values of nodes and executions, and the legal moves between them."""

from __future__ import annotations

from typing import get_args

import pytest

from rune.core.definition.model import HookHandler
from rune.core.execution.state import (
    EXECUTION_MOVES,
    NODE_MOVES,
    TERMINAL,
    ExecutionStatus,
    NodeStatus,
    may_move,
)

LEGAL: set[tuple[NodeStatus, NodeStatus]] = {
    ("pending", "queued"),
    ("pending", "skipped"),
    ("pending", "cancelled"),
    ("queued", "running"),
    ("queued", "failed"),
    ("queued", "cancelled"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "waiting"),
    ("running", "queued"),
    ("running", "cancelled"),
    ("waiting", "queued"),
    ("waiting", "failed"),
    ("waiting", "cancelled"),
}


@pytest.mark.parametrize("before", get_args(NodeStatus))
@pytest.mark.parametrize("after", get_args(NodeStatus))
def test_legal_node_status_moves(before: NodeStatus, after: NodeStatus) -> None:
    assert may_move(before, after) == ((before, after) in LEGAL)


def test_move_tables_hold_every_status() -> None:
    assert set(NODE_MOVES) == set(get_args(NodeStatus))
    assert set(EXECUTION_MOVES) == set(get_args(ExecutionStatus))


def test_terminal_status_has_no_moves() -> None:
    assert {"completed", "failed", "halted", "cancelled"} == TERMINAL
    assert all(not EXECUTION_MOVES[each] for each in TERMINAL)


def test_paused_execution_may_resume_or_end() -> None:
    assert EXECUTION_MOVES["paused"] == {"running", *TERMINAL}


@pytest.mark.parametrize(
    ("named", "handled"),
    [("failed", {"failed", "halted"}), ("halted", {"halted"}), ("cancelled", {"cancelled"})],
)
def test_handler_of_failed_executions_handles_halted_ones(named: str, handled: set[str]) -> None:
    handler = HookHandler(workflow="w", statuses=(named,))  # type: ignore[arg-type]
    assert {each for each in get_args(ExecutionStatus) if handler.handles(each)} == handled
