"""Two executions side by side."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from rune.core.difference import Change, difference
from rune.errors import LimitExceeded
from rune.master.operation import Call, Resource
from rune.master.reply import Reply
from rune.master.routes.executions import summary_of
from rune.master.routes.workflows import definition_of
from rune.master.service import Master
from rune.master.views import View
from rune.ports.store import NodeRun
from rune.runtime.history import error_document

comparing = Resource("executions")

MOST_RUNS = 20_000
_SAME = ("status", "attempts", "output", "error")


class RunChange(View, frozen=True, kw_only=True):
    """A node that ended otherwise in one lineage; null where it did not end at all."""

    node_id: str
    lineage: str
    fields: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Difference(View, frozen=True, kw_only=True):
    """What is different between two executions."""

    before: str
    after: str
    status: tuple[str, str]
    same_input: bool
    definition: list[Change]
    nodes: list[RunChange]


@comparing(
    "GET",
    "/executions/{execution}/diff/{other}",
    "What is different between two executions",
    need="view",
    answer=Difference,
)
async def compare(call: Call) -> Response:
    """Definition, start payload and what became of each node in each lineage."""
    master = call.master
    pair = [await summary_of(master, call.path[name]) for name in ("execution", "other")]
    old, new = [await definition_of(master, each.hash) for each in pair]
    accepted = [await master.reader.accepted(each.id) for each in pair]
    before, after = [await _runs(master, each.id) for each in pair]
    changes = [_change(key, before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after))]
    return Reply(
        Difference(
            before=pair[0].id,
            after=pair[1].id,
            status=(pair[0].status, pair[1].status),
            same_input=accepted[0].input == accepted[1].input,
            definition=list(difference(old, new)),
            nodes=[each for each in changes if each.fields],
        )
    )


async def _runs(master: Master, execution: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = await master.runs.all(execution, MOST_RUNS)
    if found is None:
        raise LimitExceeded("node runs of an execution to be compared", MOST_RUNS)
    return {(each.node_id, _lineage(each)): _said(each) for each in found}


def _lineage(run: NodeRun) -> str:
    return "".join(f"/{each.split_node_id}:{each.item_index}" for each in run.lineage) or "/"


def _said(run: NodeRun) -> dict[str, Any]:
    output = None if run.output is None else msgspec.json.decode(run.output)
    error = error_document(run.error)
    return {"status": run.status, "attempts": run.attempts, "output": output, "error": error}


def _change(key: tuple[str, str], before: dict[str, Any] | None, after: dict[str, Any] | None) -> RunChange:
    differ = [name for name in _SAME if (before or {}).get(name) != (after or {}).get(name)]
    return RunChange(node_id=key[0], lineage=key[1], fields=differ, before=before, after=after)
