"""Workflows that are started for executions that fail, are late or are missing."""

from __future__ import annotations

from typing import Annotated, Literal

from rune.api.base import Known, View, absent


class LateHandlerView(View, frozen=True, kw_only=True):
    workflow: str
    version: int | str | None = absent(default=None)


class HandlerView(LateHandlerView, frozen=True, kw_only=True):
    statuses: tuple[Annotated[str, Known(Literal["failed", "halted", "cancelled", "failed_items"])], ...] = (
        absent(default=("failed", "halted"))
    )


class HandlersView(View, frozen=True, kw_only=True):
    """The handlers of deployed workflows that name none."""

    on_failure: HandlerView | None = absent(default=None)
    on_late: LateHandlerView | None = absent(default=None)
    on_missing: LateHandlerView | None = absent(default=None)


class FailedHandlerView(View, frozen=True, kw_only=True):
    """A handler that could not be started. Without `given_up_at` its start is repeated. For an execution that is
    missing, `workflow` is set instead of its id."""

    execution_id: str | None = absent(None)
    workflow: str | None = absent(None)
    kind: Annotated[str, Known(Literal["failure", "late", "missing"])]
    at: str
    tries: int
    error: str
    given_up_at: str | None = absent(None)


class FailedHandlers(View, frozen=True, kw_only=True):
    handlers: list[FailedHandlerView]
