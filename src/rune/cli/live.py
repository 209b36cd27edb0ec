"""What runs now, for commands that follow an execution: asked of the owner process or of the workers of a cluster."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from rune.bootstrap import open_live
from rune.cli.output import COLOURS, clean, moment, paint
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.live import RunningNode, RunningQuery
from rune.runtime.clock import iso
from rune.runtime.queries.history import History
from rune.settings import Settings

POLL_INTERVAL_S = 0.25


class RunningPoller:
    """Asks at most every POLL_INTERVAL_S. A process that exits, or does not answer, runs nothing that is shown."""

    def __init__(self, settings: Settings, execution: str) -> None:
        self._settings = settings
        self._execution = execution
        self._stack = AsyncExitStack()
        self._query: RunningQuery | None = None
        self._next = 0.0
        self.known = False
        """Whether the last poll was answered."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._stack.aclose()

    async def poll(self) -> list[RunningNode] | None:
        """Return what runs now; None if it is not time to ask again, or if there is no answer."""
        if time.monotonic() < self._next:
            return None
        try:
            if self._query is None:
                self._query = await self._stack.enter_async_context(open_live(self._settings))
            found = await self._query(self._execution)
        except RuneError:
            self.known, self._query = False, None
            await self._stack.aclose()
            return None
        finally:
            self._next = time.monotonic() + POLL_INTERVAL_S
        self.known = found.complete
        return found.nodes


class RunningPrinter:
    """Prints nodes when they start to run. With `as_json`, prints every change as one document."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._shown: list[dict[str, Any]] = []
        self._known: set[tuple[Any, ...]] = set()

    def show(self, running: list[dict[str, Any]], at: str, lines: list[dict[str, Any]] | None = None) -> None:
        """Print what runs now, given as in the `now` events of the API."""
        if self._as_json:
            if running != self._shown or lines:
                print(msgspec.json.encode(_document(running, at, lines)).decode(), flush=True)
                self._shown = running
            return
        known = set()
        for each in running:
            key = (each["node_id"], _item(each), each["attempt"])
            known.add(key)
            if key not in self._known:
                print(_line(each), flush=True)
        self._known = known
        for each in lines or ():
            where = " ".join(part for part in (each["node_id"], _item(each)) if part)
            print(f"       {local_time(each['at'])}  {clean(where)}: {clean(each['message'])}", flush=True)


def _document(running: list[dict[str, Any]], at: str, lines: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {"event": "now", "at": at, "running": running, "lines": lines or []}


def running_documents(found: list[RunningNode], history: History) -> list[dict[str, Any]]:
    """Return running nodes as in the `now` events of the API."""
    return [
        {
            "node_id": history.plan.ids[each.node],
            "lineage": msgspec.to_builtins(history.lineage(each.path)),
            "attempt": each.attempt,
            "since": iso(each.since),
            "worker": each.worker,
            "progress": each.progress or None,
        }
        for each in found
        if _is_of(history.plan, each)
    ]


def _is_of(plan: Plan, each: RunningNode) -> bool:
    return 0 <= each.node < len(plan.ids)


def _item(each: dict[str, Any]) -> str:
    return "/".join(f"{frame['split_node_id']}:{frame['item_index']}" for frame in each["lineage"])


def _line(each: dict[str, Any]) -> str:
    told = [f"on worker {each['worker']}"]
    if each["attempt"] > 1:
        told.append(f"attempt {each['attempt']}")
    if each["progress"]:
        told.append(each["progress"])
    where = clean(" ".join(part for part in (each["node_id"], _item(each)) if part))
    kind = paint("node.running", COLOURS["running"])
    return f"       {local_time(each['since'])}  {kind}  {where}  {clean('; '.join(told))}"


def local_time(text: str) -> str:
    """Return a time in ISO 8601 in the local time zone."""
    return moment(round(datetime.fromisoformat(text).timestamp() * 1000))
