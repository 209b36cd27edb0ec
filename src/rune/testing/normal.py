"""The normal form of an execution: what is the same in every run of the same workflow with the same data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rune.build.results import item_text


def normal_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an execution without ids, times and durations; node runs by node and item, in order."""
    runs = sorted(document["nodes"], key=lambda run: (_positions(run["lineage"]), run["node_id"]))
    return {
        "status": document["status"],
        "output": document["output"],
        "error": _error(document["error"]),
        "failed_items": document["failed_items"],
        "nodes": {_name(run): _run(run) for run in runs},
    }


def _name(run: Mapping[str, Any]) -> str:
    item = item_text(run["lineage"])
    return f"{run['node_id']}@{item}" if item else str(run["node_id"])


def _positions(lineage: list[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    return tuple((each["split_node_id"], each["item_index"]) for each in lineage)


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    found = {"status": run["status"], "attempts": run["attempts"], "output": run["output"]}
    return {**found, "error": _error(run["error"])} if run["error"] else found


def _error(error: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if error is None else {"code": error["code"], "message": error["message"]}
