"""Statuses: the states of nodes and executions, and the moves that are legal."""

from __future__ import annotations

from typing import Literal

NodeStatus = Literal["pending", "queued", "running", "waiting", "completed", "failed", "skipped", "cancelled"]
ExecutionStatus = Literal["accepted", "running", "paused", "completed", "failed", "halted", "cancelled"]

NODE_MOVES: dict[NodeStatus, frozenset[NodeStatus]] = {
    "pending": frozenset({"queued", "skipped", "cancelled"}),
    "queued": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"completed", "failed", "waiting", "queued", "cancelled"}),
    "waiting": frozenset({"queued", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "skipped": frozenset(),
    "cancelled": frozenset(),
}

EXECUTION_MOVES: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    "accepted": frozenset({"running", "paused", "completed", "failed", "halted", "cancelled"}),
    "running": frozenset({"paused", "completed", "failed", "halted", "cancelled"}),
    "paused": frozenset({"running", "completed", "failed", "halted", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "halted": frozenset(),
    "cancelled": frozenset(),
}

TERMINAL: frozenset[ExecutionStatus] = frozenset(
    status for status, moves in EXECUTION_MOVES.items() if not moves
)


def may_move(before: NodeStatus, after: NodeStatus) -> bool:
    """Whether a node may go from one state to another."""
    return after in NODE_MOVES[before]
