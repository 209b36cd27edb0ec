"""The settings of a workflow, and the workflows that handle its executions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol


class _Named(Protocol):
    @property
    def id(self) -> str: ...


class Handler:
    """The workflow that is started for an execution, given by its id or as a workflow. `statuses`: the ends that it is
    started for, of `on_failure` only."""

    __slots__ = ("_given",)

    def __init__(
        self,
        workflow: str | _Named,
        *,
        version: int | str | None = None,
        statuses: Sequence[Literal["failed", "halted", "cancelled", "failed_items"]] | None = None,
    ) -> None:
        fields: dict[str, Any] = {
            "workflow": workflow if isinstance(workflow, str) else workflow.id,
            "version": version,
            "statuses": None if statuses is None else list(statuses),
        }
        self._given = {name: value for name, value in fields.items() if value is not None}

    def plain(self) -> dict[str, Any]:
        """Return the fields that are given."""
        return dict(self._given)


class Settings:
    """How executions of a workflow run. Times are in seconds; a field that is None has its default. `on_failure`,
    `on_late` and `on_missing` are workflows or their ids; `"none"`: none, also if there is a default."""

    __slots__ = ("_given",)

    def __init__(
        self,
        *,
        timeout: float | None = None,
        join_timeout: float | None = None,
        max_parallel: int | None = None,
        priority: int | None = None,
        executor: Literal["rune", "legacy"] | None = None,
        callable_by: Sequence[str] | None = None,
        on_failure: str | _Named | Handler | None = None,
        expect_within: float | None = None,
        on_late: str | _Named | Handler | None = None,
        expect_every: float | None = None,
        on_missing: str | _Named | Handler | None = None,
    ) -> None:
        fields: dict[str, Any] = {
            "timeout": timeout,
            "join_timeout": join_timeout,
            "max_parallel": max_parallel,
            "priority": priority,
            "executor": executor,
            "callable_by": None if callable_by is None else list(callable_by),
            "on_failure": _handler(on_failure),
            "expect_within": expect_within,
            "on_late": _handler(on_late),
            "expect_every": expect_every,
            "on_missing": _handler(on_missing),
        }
        self._given = {name: value for name, value in fields.items() if value is not None}

    def plain(self) -> dict[str, Any]:
        """Return the fields that are given."""
        return dict(self._given)


def _handler(given: str | _Named | Handler | None) -> str | dict[str, Any] | None:
    if given is None or isinstance(given, str):
        return given
    return given.plain() if isinstance(given, Handler) else given.id
