"""Actions on many executions."""

from __future__ import annotations

from typing import Annotated, Literal

from rune.api.base import Known, View, absent


class BulkView(View, frozen=True, kw_only=True):
    """A bulk job. `done` executions were changed, `unchanged` ones were in that state before, `refused` ones cannot be
    changed so; `pending` ones are not processed yet, and never will be if the job is aborted."""

    id: str
    action: Annotated[
        str, Known(Literal["cancel", "pause", "resume", "retry", "retry_failed_items", "requeue"])
    ]
    status: Annotated[str, Known(Literal["running", "completed", "aborted"])]
    created_at: str
    principal: str
    total: int
    done: int
    unchanged: int
    refused: int
    pending: int


class BulkList(View, frozen=True, kw_only=True):
    """The newest bulk jobs."""

    jobs: list[BulkView]


class BulkOutcomeView(View, frozen=True, kw_only=True):
    """What became of one execution. `started` is the new execution of a retry; `code` and `detail` tell why it was
    refused."""

    execution_id: str
    outcome: Annotated[str, Known(Literal["done", "unchanged", "refused"])]
    started: str | None = absent(None)
    code: str = absent("")
    detail: str = absent("")


class BulkOutcomePage(View, frozen=True, kw_only=True):
    """Outcomes of a bulk job in its order."""

    outcomes: list[BulkOutcomeView]
    next: str | None = absent(None)


class BulkPreview(View, frozen=True, kw_only=True):
    """What a bulk job would do: how many executions it would process, and how many of them can be changed so by their
    status now and the node types of the server. `more`: further ones match, beyond `limit`."""

    total: int
    eligible: int
    by_status: dict[str, int]
    more: bool
