"""Parts of inputs, outputs and blobs over HTTP."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.client import NotFound
from rune.server.app import document
from tests.support.api_server import API, HELLO, RunningServer, run
from tests.support.backends import stores

ECHO: dict[str, Any] = {
    "id": "echo",
    "nodes": [
        {"id": "in", "type": "input"},
        {
            "id": "rows",
            "type": "edit",
            "parameters": {"assignments": [{"name": "count", "value": "{{ $trigger.rows | len }}"}]},
        },
        {"id": "out", "type": "output", "parameters": {"value": "{{ $rows }}"}},
    ],
    "edges": [{"src": "in", "dst": "rows"}, {"src": "rows", "dst": "out"}],
}
BIG_ROWS = 15_000
MAX_CPU_S = 3.0  # several times what it takes


async def check_parts(server: RunningServer) -> None:
    await server.deploy(ECHO)
    rows = [{"n": number, "text": "x" * 500} for number in range(300)]
    id = await server.ended("echo", {"rows": rows})
    client = server.client
    part = await client.value_part(id)
    assert part.entries is not None
    assert {each.key: (each.type, each.size) for each in part.entries} == {
        "rows": ("array", 300),
        "count": ("number", None),
    }
    second = await client.value_part(id, pointer="/rows", offset=100)
    assert second.entries is not None
    assert (second.entries[0].key, second.next) == (100, 200)
    assert (await client.value_part(id, "input", pointer="/rows/7/n")).value == 7
    assert (await client.value_part(id, node="rows", pointer="/rows/299/n")).value == 299
    assert (await client.value_part(id, "input", node="out", pointer="/payload/count")).value == 300
    with pytest.raises(NotFound) as refused:
        await client.value_part(id, pointer="/rows/300")
    assert refused.value.code == "UNKNOWN_PART"
    assert (await server.get(f"/executions/{id}/output?pointer=rows", 422))["code"] == "BAD_POINTER"
    found = await client.find_in_value(id, "N", limit=2)
    assert ([each.pointer for each in found.matches], found.count) == (["/rows/0/n", "/rows/1/n"], 301)
    assert (await client.find_in_value(id, "count", "input")).count == 0
    (match,) = (await client.find_in_value(id, "COUNT", node="rows", pointer="")).matches
    assert (match.pointer, match.where, match.text) == ("/count", "key", "count")
    whole = await client.output(id)
    assert whole == {"rows": rows, "count": 300}
    assert await server.get(f"/executions/{id}/nodes/rows/output") == whole


def test_parts_of_input_and_outputs(tmp_path: Path) -> None:
    run(tmp_path, check_parts)


def test_parts_of_input_and_outputs_on_a_cluster(tmp_path: Path) -> None:
    run(tmp_path, check_parts, on=replace(stores(tmp_path), nodes=(), grace=1.0))


def test_blob_is_read_by_range_and_pointer(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        id = await server.ended("hello", {"name": "x"})
        blob = server.engine.backend.blob
        await blob.put(f"{id}/data", b'{"a": [1, 2, 3]}')
        await blob.put(f"{id}/picture", b"\x89PNG" + bytes(100))
        path = f"{API}/executions/{id}/blobs"

        async def read(range: str) -> tuple[int, bytes, str | None]:
            answer = await server.http.get(f"{path}/picture", headers={"Range": range})
            return answer.status_code, answer.content, answer.headers.get("content-range")

        assert await read("bytes=1-3") == (206, b"PNG", "bytes 1-3/104")
        assert await read("bytes=100-") == (206, bytes(4), "bytes 100-103/104")
        assert await read("bytes=-2") == (206, bytes(2), "bytes 102-103/104")
        assert await read("bytes=104-") == (416, b"", "bytes */104")
        assert (await read("bytes=0-1,5-6"))[0] == 200
        assert (await read("items=0-1"))[0] == 200
        assert (await server.get(f"/executions/{id}/blobs/data?pointer=/a/1"))["value"] == 2
        assert (await server.get(f"/executions/{id}/blobs/picture?depth=1", 422))["code"] == "NOT_JSON"

    run(tmp_path, work)


def test_level_of_large_output_is_shown_without_decoding_all_of_it(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ECHO)
        rows = [{"n": number, "text": "x" * 1_000} for number in range(BIG_ROWS)]
        id = await server.ended("echo", {"rows": rows})
        began = time.process_time()  # the server is part of this process
        part = await server.client.value_part(id, pointer="/rows", limit=10)
        assert time.process_time() - began < MAX_CPU_S
        blob = server.engine.backend.blob
        assert await blob.delete(id) > 0
        again = await server.client.value_part(id, pointer="/rows", limit=10)
        assert again == part  # the server keeps a large value for a while
        assert (part.size, part.next) == (BIG_ROWS, 10)
        assert part.bytes > 15_000_000
        # The output of the execution is that of its output node: both are the kept one.
        assert await server.client.value_part(id, node="out", pointer="/rows", limit=10) == part

    run(tmp_path, work)


def test_parts_of_output_of_leaves_are_those_of_the_outputs_of_the_nodes(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy({**ECHO, "nodes": ECHO["nodes"][:2], "edges": ECHO["edges"][:1]})
        rows = [{"n": number, "text": "x" * 1_000} for number in range(300)]
        id = await server.ended("echo", {"rows": rows})
        client = server.client
        whole = await client.value_part(id)
        assert whole.entries is not None
        assert (whole.type, whole.size, [each.key for each in whole.entries]) == ("object", 1, ["rows"])
        assert whole.bytes == len((await server.http.get(f"{API}/executions/{id}/output")).content)
        part = await client.value_part(id, pointer="/rows/rows", limit=10)
        assert await server.engine.backend.blob.delete(id) > 0
        of_node = await client.value_part(id, node="rows", pointer="/rows", limit=10)
        assert replace(of_node, pointer=part.pointer) == part
        assert (await client.find_in_value(id, "count")).matches[0].pointer == "/rows/count"

    run(tmp_path, work)


def test_value_part_is_documented() -> None:
    schemas = document()["components"]["schemas"]
    assert {"pointer", "entries", "next"} <= schemas["ValuePart"]["properties"].keys()
