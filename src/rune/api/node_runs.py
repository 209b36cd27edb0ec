"""Node runs with their attempts, logs and inputs."""

from __future__ import annotations

from typing import Any

from rune.api.base import View, absent
from rune.api.executions import ErrorView
from rune.core.execution.token import Frame


class RunView(View, frozen=True, kw_only=True):
    """A node run in one lineage. `output` is null if it is too large for a list; `output_bytes` is its size. `pinned`:
    the output was given, and the node was not called."""

    node_id: str
    lineage: tuple[Frame, ...] = absent(())
    status: str
    attempts: int = absent(0)
    output: Any = absent(None)
    output_bytes: int = absent(0)
    error: ErrorView | None = absent(None)
    started_at: str | None = absent(None)
    duration_ms: int = absent(0)
    pinned: bool = absent(False)


class RunPage(View, frozen=True, kw_only=True):
    """A page of node runs in the order they ended; skipped nodes come last."""

    nodes: list[RunView]
    next: str | None = absent(None)


class AttemptView(View, frozen=True, kw_only=True):
    """One attempt of a node run. `ended_at` is null while it runs or waits; `worker` is empty for nodes without
    effects, and so is `idempotency_key`, the key that every attempt sends with its effect."""

    attempt: int
    status: str
    started_at: str
    ended_at: str | None = absent(None)
    duration_ms: int | None = absent(None)
    error: ErrorView | None = absent(None)
    worker: str = absent("")
    idempotency_key: str = absent("")
    logged: bool = absent(False)


class AttemptList(View, frozen=True, kw_only=True):
    """The attempts of a node run, oldest first."""

    node_id: str
    lineage: tuple[Frame, ...] = absent(())
    attempts: list[AttemptView]


class LogLineView(View, frozen=True, kw_only=True):
    """A line of a log."""

    at: str
    level: str
    message: str


class LogView(View, frozen=True, kw_only=True):
    """The newest lines of an attempt, at most 64 KB, oldest first. `dropped` older ones are not kept."""

    node_id: str
    lineage: tuple[Frame, ...] = absent(())
    attempt: int
    dropped: int = absent(0)
    lines: list[LogLineView]
    position: int = absent(0)  # orders the logs of an execution


class NodeLogPage(View, frozen=True, kw_only=True):
    """A page of logs; `next` is the value of `after` for the next page."""

    logs: list[LogView]
    next: int | None = absent(None)


class InputView(View, frozen=True, kw_only=True):
    """What a node was called with, redacted. `parameters` is null if they cannot be resolved, `error` tells why."""

    node_id: str
    lineage: tuple[Frame, ...] = absent(())
    attempt: int
    payload: Any = absent(None)
    parameters: dict[str, Any] | None = absent(None)
    error: ErrorView | None = absent(None)
