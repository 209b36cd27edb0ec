"""What waits for a signal."""

from __future__ import annotations

from typing import Any

from rune.api.base import View, absent


class WaitingView(View, frozen=True, kw_only=True):
    """A node that waits for a signal. `until` is when it stops waiting; null: never. `item` is null outside of splits.
    `schema` and `choices` describe the value of the signal: with `choices` it is an object with one of them as
    `choice`."""

    execution_id: str
    workflow_id: str
    node_id: str
    item: str | None = absent(None)
    signal: str
    since: str
    until: str | None = absent(None)
    labels: dict[str, str] = absent({})
    title: str | None = absent(None)
    description: str | None = absent(None)
    schema: dict[str, Any] | None = absent(None)
    choices: list[str] | None = absent(None)


class WaitingPage(View, frozen=True, kw_only=True):
    """A page of the inbox, newest executions first. A page may be empty and still have a `next` cursor."""

    waiting: list[WaitingView]
    next: str | None = absent(None)
