"""The states of nodes and executions, and the moves that are legal."""

from __future__ import annotations

from typing import get_args

import pytest

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
def test_the_moves_of_a_node(before: NodeStatus, after: NodeStatus) -> None:
    assert may_move(before, after) == ((before, after) in LEGAL)


def test_every_state_is_in_the_table() -> None:
    assert set(NODE_MOVES) == set(get_args(NodeStatus))
    assert set(EXECUTION_MOVES) == set(get_args(ExecutionStatus))


def test_nothing_leaves_a_terminal_state() -> None:
    assert {"completed", "failed", "halted", "cancelled"} == TERMINAL
    assert all(not EXECUTION_MOVES[each] for each in TERMINAL)


def test_a_paused_execution_may_end_in_every_way() -> None:
    assert EXECUTION_MOVES["paused"] == {"running", *TERMINAL}
