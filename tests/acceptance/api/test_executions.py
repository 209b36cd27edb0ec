"""Executions over HTTP: starting, reading and controlling them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rune.client import ApiError
from tests.support.api_server import DEADLINE, HELLO, ITEMS, WAITS, RunningServer, run


def test_start_of_stored_workflow_completes(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        answer = await server.http.post(
            "/api/v1/workflows/hello/executions",
            json={"input": {"name": "World"}, "labels": {"customer": "7"}, "priority": 9},
        )
        assert answer.status_code == 202
        id = answer.json()["execution_id"]
        assert answer.headers["location"] == f"/api/v1/executions/{id}"
        found = await server.get(f"/executions/{id}?wait=30")
        assert (found["status"], found["labels"], found["priority"]) == ("completed", {"customer": "7"}, 9)
        assert await server.get(f"/executions/{id}/output") == "Hello, World!"
        assert await server.get(f"/executions/{id}/input") == {"name": "World"}
        document = await server.get(f"/executions/{id}/document")
        assert [each["node_id"] for each in document["nodes"]] == ["in", "out"]

    run(tmp_path, work)


def test_inline_definition_starts_without_being_stored(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        started = await server.post("/executions", {"definition": HELLO, "input": {"name": "you"}}, 202)
        ended = await server.client.wait(started["execution_id"], DEADLINE)
        assert ended.status == "completed"
        assert (await server.get("/workflows"))["workflows"] == []

    run(tmp_path, work)


def test_execution_list_is_filtered_by_creation(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        first, second = await server.ended("hello"), await server.ended("hello")
        at = (await server.client.execution(second)).started_at

        async def listed(moment: str) -> set[str]:
            found = server.client.executions(created_after=moment, page=1)
            return {each.execution_id async for each in found}

        assert await listed("2020-01-01T00:00:00Z") == {first, second}
        assert await listed("2999-01-01T00:00:00+01:00") == set()
        assert second in await listed(at)
        await server.get("/executions?created_after=2020-01-01", 422)

    run(tmp_path, work)


def test_client_run_waits_for_end(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        ended = await server.client.run(HELLO, {"name": "a"}, seconds=DEADLINE)
        assert (ended.status, ended.ended) == ("completed", True)
        assert await server.client.output(ended.execution_id) == "Hello, a!"
        with pytest.raises(TimeoutError):
            await server.client.run(WAITS, seconds=0)

    run(tmp_path, work)


def test_former_path_of_audit_log_is_served(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        assert await server.get("/log") == await server.get("/audit-log")

    run(tmp_path, work)


def test_idempotency_key_replays_and_rejects_other_payload(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        path, key = "/workflows/hello/executions", {"Idempotency-Key": "order-7"}
        first = await server.post(path, {"input": {"name": "a"}}, 202, headers=key)
        again = await server.post(path, {"input": {"name": "a"}}, 200, headers=key)
        assert (again["execution_id"], again["replayed"]) == (first["execution_id"], True)
        other = await server.post(path, {"input": {"name": "b"}}, 409, headers=key)
        assert other["code"] == "KEY_CONFLICT"
        assert len((await server.get("/executions"))["executions"]) == 1
        refused = await server.post(path, {}, 422, headers={"Idempotency-Key": "x" * 256})
        assert refused["code"] == "BAD_HEADER"

    run(tmp_path, work)


def test_execution_list_takes_several_statuses_and_failed_items(tmp_path: Path) -> None:
    halts = {"id": "halts", "nodes": [{"id": "f", "type": "fail", "parameters": {"code": "NO"}}]}
    items = {
        "id": "partly",
        "nodes": [
            {"id": "start", "type": "input"},
            {"id": "s", "type": "split", "parameters": {"input_array": "$trigger.xs"}},
            {"id": "n", "type": "log", "parameters": {"message": "{{ 1 / $item }}"}},
            {"id": "g", "type": "aggregator"},
        ],
        "edges": [{"src": "start", "dst": "s"}, {"src": "s", "dst": "n"}, {"src": "n", "dst": "g"}],
    }

    async def work(server: RunningServer) -> None:
        ids = []
        for each in (halts, items):
            start = {"definition": each, "input": {"xs": [1, 0]}}
            ids.append((await server.post("/executions", start, 202))["execution_id"])
            await server.client.wait(ids[-1], DEADLINE)

        async def listed(query: str) -> list[str]:
            found = (await server.get(f"/executions?{query}"))["executions"]
            return [each["execution_id"] for each in found]

        assert await listed("status=completed&status=halted") == ids[::-1]
        assert await listed("status=failed&status=halted") == ids[:1]
        assert await listed("failed_items=true") == ids[1:]
        async with asyncio.timeout(DEADLINE):
            both = [each async for each in server.client.executions(status=["halted", "completed"])]
            failed = [each async for each in server.client.executions(failed_items=True)]
        assert [each.execution_id for each in both] == ids[::-1]
        assert [each.failed_items for each in failed] == [1]
        error = both[1].error
        assert error is not None
        assert (error.node_id, error.node_type, error.attempt, error.lineage) == ("f", "fail", 1, ())
        events = (await server.get(f"/executions/{ids[1]}/history"))["events"]
        assert events[-1]["details"]["failed_items"] == 1

    run(tmp_path, work)


def test_nodes_of_cancelled_execution_are_cancelled_or_not_reached(tmp_path: Path) -> None:
    waits = {
        "id": "waits_long",
        "nodes": [
            {"id": "in", "type": "input"},
            {"id": "w", "type": "wait", "parameters": {"resume": "signal", "name": "go"}},
            {"id": "out", "type": "noop"},
        ],
        "edges": [{"src": "in", "dst": "w"}, {"src": "w", "dst": "out"}],
    }

    async def work(server: RunningServer) -> None:
        id = (await server.post("/executions", {"definition": waits}, 202))["execution_id"]
        async with asyncio.timeout(DEADLINE):
            async for event in server.client.watch(id):
                if event.kind == "node.waiting":
                    break
        await server.post(f"/executions/{id}/cancel", {}, 200)
        await server.client.wait(id, DEADLINE)

        async def listed(query: str = "") -> list[tuple[str, str]]:
            found = (await server.get(f"/executions/{id}/nodes{query}"))["nodes"]
            return [(each["node_id"], each["status"]) for each in found]

        assert await listed() == [("in", "success"), ("w", "cancelled")]
        assert await listed("?status=cancelled") == [("w", "cancelled")]
        assert await listed("?status=not_reached") == [("out", "not_reached")]

    run(tmp_path, work)


def test_execution_list_is_filtered_and_paged(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, WAITS)
        made = [
            await server.ended("hello", {"name": "x"}, labels={"n": str(n), "even": str(n % 2 == 0)})
            for n in range(7)
        ]
        waiting = (await server.client.start("waits")).execution_id
        seen, cursor = [], ""
        while True:
            page = await server.get(f"/executions?workflow=hello&limit=3{cursor}")
            seen += [each["execution_id"] for each in page["executions"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert seen == made[::-1]
        running = await server.get("/executions?status=running")
        assert [each["execution_id"] for each in running["executions"]] == [waiting]
        even = await server.get("/executions?label=even=True&limit=2")
        assert [each["labels"]["n"] for each in even["executions"]] == ["6", "4"]
        rest = await server.get(f"/executions?label=even=True&cursor={even['next']}")
        assert [each["labels"]["n"] for each in rest["executions"]] == ["2", "0"]
        assert [each.execution_id async for each in server.client.executions(q=waiting[4:])] == [waiting]
        assert (await server.get("/executions?limit=0", 422))["code"] == "BAD_QUERY"
        assert (await server.get("/executions?colour=red", 422))["code"] == "BAD_QUERY"

    run(tmp_path, work)


def test_signal_with_unknown_name_is_refused_with_known_names(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        ask = {"id": "ask", "type": "wait", "parameters": {"resume": "signal"}}
        await server.deploy({"id": "asks", "nodes": [ask]})
        id = (await server.client.start("asks")).execution_id
        with pytest.raises(ApiError) as refused:
            await server.client.signal(id, "aks")
        assert (refused.value.status, refused.value.code) == (422, "UNKNOWN_SIGNAL")
        assert str(refused.value).endswith("can wait for a signal `aks`; it takes `ask`")
        assert (await server.client.signal(id, "ask", 1)).resumed
        assert (await server.client.wait(id, DEADLINE)).status == "completed"

    run(tmp_path, work)


def test_signal_pause_resume_and_cancel(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        assert (await server.client.pause(id)).changed
        assert not (await server.client.pause(id)).changed
        assert (await server.client.execution(id)).status == "paused"
        assert (await server.client.resume(id)).changed
        waiting = (await server.client.explain(id)).waiting
        assert [each.node for each in waiting] == ["w"]
        assert "go" in waiting[0].reason
        heard = await server.client.signal(id, "go", {"by": "ada"}, key="s1")
        assert heard.id == "s1"
        assert (await server.client.wait(id, DEADLINE)).status == "completed"
        assert await server.client.output(id) == {"by": "ada"}
        late = await server.post(f"/executions/{id}/signals", {"name": "go"}, 409)
        assert late["code"] == "ENDED"
        with pytest.raises(ApiError, match="`s1` was delivered before"):
            await server.client.signal(id, "go", {"by": "ada"}, key="s1")
        other = (await server.client.start("waits")).execution_id
        assert (await server.client.cancel(other, "not needed")).status == "cancelled"
        assert not (await server.client.cancel(other)).changed
        found = await server.get(f"/executions/{other}")
        assert found["error"]["message"] == "not needed"
        assert (await server.post(f"/executions/{id}/cancel", {}, 409))["code"] == "ENDED"

    run(tmp_path, work)


def test_retry_failed_items_and_rerun_start_new_executions(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": [0, 1, 2]})
        again = await server.client.retry(id, failed_items=True)
        assert again.retry_of == id
        await server.client.wait(again.execution_id, DEADLINE)
        runs = [each async for each in server.client.nodes(again.execution_id, status="failed")]
        assert [(each.status, each.lineage[0].item_index) for each in runs] == [("failed", 1)]
        rerun = await server.client.rerun(id, "twice", item="s:2")
        assert (await server.client.wait(rerun.execution_id, DEADLINE)).retry_of == id
        refused = await server.post(f"/executions/{id}/rerun", {"node": "nobody"}, 422)
        assert refused["code"] == "UNKNOWN_NODE"
        waits = await server.post("/executions", {"definition": WAITS}, 202)
        early = await server.post(f"/executions/{waits['execution_id']}/retry", {}, 409)
        assert early["code"] == "NOT_ENDED"

    run(tmp_path, work)


def test_node_runs_are_paged_and_filtered_by_lineage(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": list(range(30))})
        everything = await server.get(f"/executions/{id}/nodes?limit=1000")
        paged: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = await server.get(f"/executions/{id}/nodes?limit=7{cursor}")
            paged += page["nodes"]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert paged == everything["nodes"]
        document = await server.get(f"/executions/{id}/document")
        shown = [{key: each[key] for key in document["nodes"][0]} for each in paged]
        assert shown == document["nodes"]
        inside = await server.get(f"/executions/{id}/nodes?lineage=s:4")
        assert {each["node_id"]: each["status"] for each in inside["nodes"]} == {
            "odd": "success",
            "twice": "success",
            "bad": "skipped",
        }
        failed = await server.get(f"/executions/{id}/nodes?status=failed&limit=1000")
        assert len(failed["nodes"]) == 15
        assert await server.get(f"/executions/{id}/nodes/twice/output?lineage=s:4") == {"v": 8}
        assert (await server.get(f"/executions/{id}/nodes/twice/output?lineage=s:5", 200)) is None
        assert (await server.get(f"/executions/{id}/nodes/twice/output?lineage=s:99", 404))[
            "code"
        ] == "UNKNOWN_RUN"
        splits = (await server.get(f"/executions/{id}/rollups"))["splits"]
        assert splits[0]["items"] == 30
        assert splits[0]["nodes"]["bad"] == {"failed": 15, "skipped": 15}
        assert splits[0]["failures"][0]["message"] == "odd"

    run(tmp_path, work)


def test_large_output_is_omitted_from_node_list(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        id = await server.ended("hello", {"name": "x" * 100_000})
        out = (await server.get(f"/executions/{id}/nodes?node=out"))["nodes"][0]
        assert (out["output"], out["output_bytes"]) == (None, 100_010)
        whole = await server.get(f"/executions/{id}/nodes/out/output")
        assert len(whole) == 100_008

    run(tmp_path, work)


def test_diff_of_two_executions(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        first = await server.ended("hello", {"name": "a"})
        await server.deploy({**HELLO, "name": "Other"})
        second = await server.ended("hello", {"name": "b"})
        found = await server.get(f"/executions/{first}/diff/{second}")
        assert found["same_input"] is False
        assert [each["what"] for each in found["definition"]] == ["document"]
        assert [(each["node_id"], each["fields"]) for each in found["nodes"]] == [
            ("in", ["output"]),
            ("out", ["output"]),
        ]
        same = await server.get(f"/executions/{first}/diff/{first}")
        assert (same["definition"], same["nodes"], same["same_input"]) == ([], [], True)

    run(tmp_path, work)


def test_unknown_resources_return_404(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        for path in ("", "/nodes", "/events", "/history", "/explain", "/document", "/timers", "/blobs/a/b"):
            found = await server.get(f"/executions/nobody{path}", 404)
            assert found["code"] == "UNKNOWN_EXECUTION", path
        for verb in ("cancel", "pause", "resume", "retry"):
            assert (await server.post(f"/executions/nobody/{verb}", {}, 404))["code"] == "UNKNOWN_EXECUTION"
        missing = await server.http.get("/api/v1/nothing")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")

    run(tmp_path, work)


def test_concurrent_starts_are_all_accepted(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        started = await asyncio.gather(*(server.client.start("hello", {"name": "x"}) for _ in range(100)))
        assert len({each.execution_id for each in started}) == 100
        for each in started:
            assert (await server.client.wait(each.execution_id, DEADLINE)).status == "completed"

    run(tmp_path, work)
