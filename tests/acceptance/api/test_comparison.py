"""Comparison of two executions by groups of differences, over HTTP, on both backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.support.api_server import ITEMS, RunningServer, run
from tests.support.backends import stores

PASSED: dict[str, Any] = {
    "id": "passed",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "same", "type": "noop"},
        {"id": "big", "type": "edit", "parameters": {"assignments": [{"name": "n", "value": 1}]}},
        {"id": "out", "type": "output", "parameters": {"value": "done"}},
    ],
    "edges": [{"src": "in", "dst": "same"}, {"src": "same", "dst": "big"}, {"src": "big", "dst": "out"}],
}


async def check_comparison(server: RunningServer) -> None:
    client = server.client
    await server.deploy(ITEMS, PASSED)
    one = await server.ended("items", {"items": [0, 2, 4, 6, 8, 1]})
    two = await server.ended("items", {"items": [0, 2, 5, 7, 9, 1]})
    same = await client.compare(one, one)
    assert (same.differing, same.first, same.groups) == (0, None, [])
    found = await client.compare(one, two)
    assert (found.same_input, found.same_definition, found.definition) == (False, True, [])
    groups = {(each.node_id, *each.status): each for each in found.groups}
    failed = groups[("bad", None, "failed")]
    assert (failed.count, failed.code, failed.lineages) == (3, ("", "FAILED"), ["/s:2", "/s:3", "/s:4"])
    assert groups[("twice", "success", None)].count == 3
    assert {tuple(each.fields) for each in found.groups if each.node_id == "odd"} == {("outlet", "output")}
    longer = await server.ended("items", {"items": [0, 2, 4, 6, 8, 1, 3]})
    counted = {each.node_id: each.fields for each in (await client.compare(one, longer)).groups}
    assert counted["s"] == ["items", "output"]
    assert found.differing == sum(each.count for each in found.groups)
    assert found.first is not None
    runs = [each async for each in client.differing_runs(one, two, page=2)]
    assert len(runs) == found.differing
    only = [each async for each in client.differing_runs(one, two, node="bad", page=1)]
    assert [each.lineage for each in only] == ["/s:2", "/s:3", "/s:4"]
    assert only[0].before is None
    assert only[0].after is not None
    assert only[0].after.error is not None

    # Outputs that are references to the input, and outputs in blobs.
    text = "x" * 200_000
    first = await server.ended("passed", {"text": text})
    equal = await server.ended("passed", {"text": text})
    other = await server.ended("passed", {"text": text + "y"})
    assert (await client.compare(first, equal)).differing == 0
    unlike = await client.compare(first, other)
    assert {each.node_id: each.fields for each in unlike.groups} == {"same": ["output"], "big": ["output"]}
    assert unlike.first == "same"


def test_comparison_groups_differences(tmp_path: Path) -> None:
    run(tmp_path, check_comparison)


def test_comparison_groups_differences_on_a_cluster(tmp_path: Path) -> None:
    run(tmp_path, check_comparison, on=replace(stores(tmp_path), nodes=(), grace=1.0))
