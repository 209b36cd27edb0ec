"""How an execution looks in a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rune.cli.text import COLOURS, Cell, by_status, clean, count, duration, moment, paint, print_table, until

if TYPE_CHECKING:
    from rune.core.explain import Waiting

MOST_ROWS = 40
MOST_OPEN = 20
MOST_FAILURES = 5
KIN = {"parent_id": "child of", "retry_of": "retry or rerun of"}
STATUSES = ("success", "failed", "skipped", "cancelled")


def print_document(document: dict[str, Any], *, most: int | None = None) -> None:
    """The nodes of an execution, its end, and its output. Many are summed up unless `most` asks for them."""
    nodes = document["nodes"]
    if most is None and len(nodes) > MOST_ROWS:
        _print_summed(nodes)
    else:
        shown = nodes[: MOST_ROWS if most is None else most]
        print_table(("node", "item", "status", "attempts", "took", "error"), [_row(node) for node in shown])
        if len(nodes) > len(shown):
            print(paint(f"… and {count(len(nodes) - len(shown), 'more node run')}", "grey"))
    status, name = document["status"], document["execution_id"]
    took = document["total_duration_ms"]
    ended = "" if took is None else f" in {duration(took)}"
    print(f"\n{paint(status, COLOURS.get(status, ''))} {name} ({clean(document['workflow_id'])}){ended}")
    for field, kin in KIN.items():
        if document.get(field):
            print(paint(f"{kin} {document[field]}", "grey"))
    if document["error"]:
        error = document["error"]
        print(f"{paint(error['code'], 'red')}: {clean(error['message'])}")
    if document["output"] is not None:
        print(json.dumps(document["output"], ensure_ascii=False, indent=2))


def _print_summed(nodes: list[dict[str, Any]]) -> None:
    """One line a node, then the first failures."""
    counts: dict[str, dict[str, int]] = {}
    for node in nodes:
        statuses = counts.setdefault(node["node_id"], {})
        statuses[node["status"]] = statuses.get(node["status"], 0) + 1
    columns = [each for each in STATUSES if any(each in statuses for statuses in counts.values())]
    rows: list[list[Cell]] = []
    for name, statuses in counts.items():
        found = [(f"{statuses[each]:,}", COLOURS[each]) if each in statuses else "" for each in columns]
        rows.append([name, *found])
    print_table(("node", *columns), rows)
    failures = [node for node in nodes if node["error"]]
    if failures:
        print()
        print_table(
            ("failed", "item", "status", "attempts", "took", "error"),
            [_row(each) for each in failures[:MOST_FAILURES]],
        )
    if len(failures) > MOST_FAILURES:
        print(paint(f"… and {len(failures) - MOST_FAILURES:,} more that failed", "grey"))


def _row(node: dict[str, Any]) -> list[Cell]:
    error = f"{node['error']['code']}: {node['error']['message']}" if node["error"] else ""
    ran = node["attempts"]
    return [
        node["node_id"],
        "/".join(str(frame["item_index"]) for frame in node["lineage"]),
        by_status(node["status"]),
        str(ran) if ran else "",
        duration(node["duration_ms"]) if ran else "",
        (error, "red"),
    ]


def print_open(waiting: Sequence[Waiting], now: int) -> None:
    """What has not ended, and what it waits for."""
    rows: list[list[Cell]] = []
    for each in waiting[:MOST_OPEN]:
        rows.append(
            [each.node, "" if each.lineage == "/" else each.lineage, _reason(each), _until(each, now)]
        )
    print_table(("open", "item", "why", "until"), rows)
    if len(waiting) > MOST_OPEN:
        found: dict[str, int] = {}
        for each in waiting:
            found[f"{each.node} {each.reason}"] = found.get(f"{each.node} {each.reason}", 0) + 1
        print(paint(f"… and {len(waiting) - MOST_OPEN:,} more; in all:", "grey"))
        for reason, number in sorted(found.items(), key=lambda each: -each[1])[:MOST_OPEN]:
            print(f"  {number:>9,}  {clean(reason)}")


def _reason(each: Waiting) -> str:
    parts = [each.reason]
    for name, edges in (("arrived", each.arrived), ("skipped", each.skipped), ("missing", each.missing)):
        if edges:
            parts.append(f"{name} {', '.join(edges)}")
    if each.total is not None:
        parts.append(f"{each.done or 0:,} of {each.total:,} done")
    return "; ".join(parts)


def _until(each: Waiting, now: int) -> str:
    if each.due is None:
        return "no timeout" if each.missing or each.total is not None else ""
    waits = not each.missing and each.total is None
    return until(each.due, now) if waits else f"times out {until(each.due, now)}"


def print_event(event: dict[str, Any]) -> None:
    """One line of a history."""
    items = "/".join(f"{frame['split_node_id']}:{frame['item_index']}" for frame in event["lineage"])
    kind = event["kind"]
    status = kind.rpartition(".")[2]
    details = dict(event["details"])
    shown: list[str] = []
    error = details.pop("error", None)
    if error:
        shown.append(f"{error['code']}: {error['message']}")
    if details.get("attempt", 1) > 1 or status == "retrying":
        shown.append(f"attempt {details['attempt']}")
    if details.get("resume_at"):
        shown.append(f"until {moment(details['resume_at'])}")
    if details.get("signal"):
        shown.append(f"for signal `{details['signal']}`")
    if details.get("late"):
        shown.append("late")
    what = clean(" ".join(each for each in (event["node_id"] or "", items) if each))
    line = f"{event['number']:>5}  {moment(event['at'])}  {paint(kind, COLOURS.get(status, ''))}"
    print(
        "  ".join([line, *([what] if what else []), *([clean("; ".join(shown))] if shown else [])]),
        flush=True,
    )
