"""Workflows over HTTP: versions, aliases and weighted starts."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rune.api.definitions import LayoutView
from rune.client import ApiError
from rune.documents.draw.model import Drawing
from rune.server.routes import definitions, workflows
from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import DEADLINE, HELLO, ITEMS, WAITS, RunningServer, run
from tests.support.large_executions import wide_graph


def saying(text: str) -> dict[str, Any]:
    """A version of hello."""
    out = {"id": "out", "type": "output", "parameters": {"value": text}}
    return {**HELLO, "nodes": [HELLO["nodes"][0], out]}


def test_create_update_list_get_and_diff(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        made = await server.http.post("/api/v1/workflows", json=saying("one"))
        assert (made.status_code, made.json()["version"], made.json()["change"]) == (201, 1, "created")
        assert (await server.post("/workflows", saying("one"), 409))["code"] == "WORKFLOW_EXISTS"
        second = await server.ask("PUT", "/workflows/hello", 200, json=saying("two"))
        assert (second["version"], second["aliases"]) == (2, ["latest"])
        same = await server.ask("PUT", "/workflows/hello", 200, json=saying("one"))
        assert (same["version"], same["change"]) == (1, "moved")
        listed = (await server.get("/workflows"))["workflows"]
        assert [(each["workflow_id"], each["latest"], each["versions"]) for each in listed] == [
            ("hello", 1, 2)
        ]
        found = await server.get("/workflows/hello/versions/2")
        assert found["definition"]["nodes"][1]["parameters"] == {"value": "two"}
        assert await server.get(f"/definitions/{found['hash']}") == found["definition"]
        changes = (await server.get("/workflows/hello/diff?before=1&after=2"))["changes"]
        assert [(each["what"], each["id"]) for each in changes] == [("node", "out")]
        assert [each.version async for each in server.client.versions("hello")] == [1, 2]
        other = await server.ask("PUT", "/workflows/other", 422, json=saying("one"))
        assert other["code"] == "OTHER_WORKFLOW"

    run(tmp_path, work)


def test_stale_etag_is_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(saying("one"))
        read = await server.http.get("/api/v1/workflows/hello")
        tag = read.headers["etag"]
        again = await server.http.get("/api/v1/workflows/hello", headers={"If-None-Match": tag})
        assert again.status_code == 304
        await server.ask("PUT", "/workflows/hello", 200, json=saying("mine"), headers={"If-Match": tag})
        late = await server.ask(
            "PUT", "/workflows/hello", 409, json=saying("theirs"), headers={"If-Match": tag}
        )
        assert late["code"] == "CHANGED"
        assert (await server.get("/workflows/hello"))["version"] == 2
        with pytest.raises(ApiError) as refused:
            await server.client.deploy(saying("x"), match=tag.strip('"'))
        assert (refused.value.status, refused.value.code) == (409, "CHANGED")
        taken = await server.ask(
            "PUT", "/workflows/hello", 409, json=saying("x"), headers={"If-None-Match": "*"}
        )
        assert taken["code"] == "WORKFLOW_EXISTS"

    run(tmp_path, work)


def test_validate_accepts_yaml_and_reports_all_problems(tmp_path: Path) -> None:
    text = (
        "id: y\nnodes:\n  - {id: in, type: input}\n  - {id: n, type: noop}\nedges:\n  - {src: in, dst: n}\n"
    )

    async def work(server: RunningServer) -> None:
        checked = await server.client.check(text)
        assert (checked.valid, checked.workflow_id) == (True, "y")
        assert (await server.client.deploy(text)).workflow_id == "y"
        bad = await server.client.check(
            {"nodes": [{"id": "a", "type": "nothing"}, {"id": "a", "type": "noop"}]}
        )
        assert not bad.valid
        assert {"UNKNOWN_TYPE", "DUPLICATE_ID"} <= {each.code for each in bad.problems}
        refused = await server.post("/workflows", {"nodes": []}, 422)
        assert refused["code"] == "INVALID"
        assert refused["problems"][0]["code"] == "NO_NODES"
        media = await server.ask(
            "POST", "/workflows", 415, content=b"x", headers={"Content-Type": "text/csv"}
        )
        assert media["code"] == "BAD_MEDIA"
        assert [each.workflow_id async for each in server.client.workflows()] == ["y"]

    run(tmp_path, work)


def test_child_that_is_not_deployed_is_a_warning(tmp_path: Path) -> None:
    parent: dict[str, Any] = {
        "id": "shop_parent",
        "nodes": [
            {"id": "in", "type": "input"},
            {"id": "call", "type": "workflow", "parameters": {"workflow": "shop_child"}},
        ],
        "edges": [{"src": "in", "dst": "call"}],
    }
    foreign: dict[str, Any] = {**parent, "nodes": [{**each} for each in parent["nodes"]]}
    foreign["nodes"][1]["parameters"] = {"workflow": "secret"}

    def warnings(answer: Any) -> list[tuple[str, str, str]]:
        return [(each["severity"], each["code"], each["message"]) for each in answer["problems"]]

    async def work(server: RunningServer) -> None:
        missing = [("warning", "UNKNOWN_CHILD", "`call` starts `shop_child`, which is not deployed")]
        checked = await server.post("/workflows/validate", parent, 200)
        assert (checked["valid"], warnings(checked)) == (True, missing)
        assert warnings(await server.post("/workflows", parent, 201)) == missing
        await server.deploy({**HELLO, "id": "shop_child"})
        assert warnings(await server.post("/workflows/validate", parent, 200)) == []
        assert warnings(await server.ask("PUT", "/workflows/shop_parent", 200, json=parent)) == []

        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "editor", "shop_*")
            for deployed in (False, True):
                if deployed:
                    await server.deploy({**HELLO, "id": "secret"})
                answer = await ada.post("/api/v1/workflows/validate", json=foreign)
                assert answer.status_code == 200
                assert warnings(answer.json()) == [], "it does not tell which other workflows exist"

    run(tmp_path, work, key=BOOTSTRAP)


def test_executions_keep_version_when_alias_moves(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        first = await server.client.workflow("waits")
        await server.client.set_alias("waits", "stable", 1)
        old = (await server.client.start("waits", version="stable")).execution_id
        await server.deploy({**WAITS, "name": "Second"})
        await server.client.set_alias("waits", "stable", 2)
        new = (await server.client.start("waits", version="stable")).execution_id
        assert (await server.client.execution(old)).hash == first.hash
        assert (await server.client.execution(new)).hash != first.hash
        await server.client.signal(old, "go", 1)
        assert (await server.client.wait(old, DEADLINE)).status == "completed"
        await server.client.set_alias("waits", "stable", 1)
        back = (await server.client.start("waits", version="stable")).execution_id
        assert (await server.client.execution(back)).hash == first.hash
        listed = (await server.get("/workflows/waits/aliases"))["aliases"]
        assert {each["alias"]: each["version"] for each in listed} == {"latest": 2, "stable": 1}

    run(tmp_path, work)


def test_weighted_alias_spreads_starts_by_key(
    tmp_path: Path,
) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(saying("one"), saying("two"))
        await server.client.set_alias("hello", "stable", 1)
        alias = await server.client.set_alias("hello", "stable", 1, weights={2: 30})
        assert alias.weights == {2: 30}
        hashes = {n: (await server.client.workflow("hello", n)).hash for n in (1, 2)}
        given = await asyncio.gather(
            *(server.client.start("hello", version="stable", key=f"k{n}") for n in range(200))
        )
        share = sum(each.hash == hashes[2] for each in given)
        assert 35 <= share <= 85
        again = await server.client.start("hello", version="stable", key="k7")
        assert (again.execution_id, again.replayed) == (given[7].execution_id, True)
        assert (await server.get("/workflows/hello/aliases/stable"))["weights"] == {"2": 30.0}
        assert [each.workflow_id async for each in server.client.workflows()] == ["hello"]
        # Moving the alias clears its weights.
        await server.engine.services.workflows.set_alias("hello", "stable", 2)
        assert (await server.get("/workflows/hello/aliases/stable"))["weights"] == {}
        await server.client.set_alias("hello", "stable", weights={1: 100})
        assert (await server.client.start("hello", version="stable")).hash == hashes[1]
        await server.client.set_alias("hello", "stable", 2)
        assert (await server.client.start("hello", version="stable")).hash == hashes[2]
        for weights in ({"1": 60, "2": 60}, {"1": 0}, {"9": 5}):
            refused = await server.http.put(
                "/api/v1/workflows/hello/aliases/stable", json={"weights": weights}
            )
            assert refused.status_code in (404, 422)
        latest = await server.ask("PUT", "/workflows/hello/aliases/latest", 422, json={"weights": {"1": 5}})
        assert latest["code"] == "BAD_WEIGHTS"

    run(tmp_path, work)


def test_delete_hides_and_restore_unhides(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        id = await server.ended("hello", {"name": "x"})
        await server.client.delete("hello")
        assert (await server.get("/workflows"))["workflows"] == []
        assert (await server.post("/workflows/hello/executions", {}, 404))["code"] == "UNKNOWN_WORKFLOW"
        assert (await server.client.execution(id)).status == "completed"
        assert [each.hidden async for each in server.client.workflows(hidden=True)] == [True]
        await server.post("/workflows/hello/restore")
        assert (await server.client.start("hello", {"name": "x"})).workflow_id == "hello"
        assert (await server.ask("DELETE", "/workflows/nobody", 404))["code"] == "UNKNOWN_WORKFLOW"

    run(tmp_path, work)


def test_rejection_lists_accepted_values(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        media = await server.ask("POST", "/workflows", 415, content=b"id=a", headers=form)
        assert media["detail"].endswith("send application/json or application/yaml")
        broken = await server.ask(
            "POST", "/workflows", 422, content=b"{", headers={"Content-Type": "application/json"}
        )
        assert broken["detail"].startswith("document: not JSON")
        status = await server.get("/executions?status=done", 422)
        accepted = "one of `running`, `paused`, `completed`, `failed`, `halted`, `cancelled`, not `done`"
        assert accepted in status["detail"]
        role = await server.post("/keys", {"name": "x", "role": "god"}, 422)
        assert "one of `viewer`, `approver`, `runner`, `editor`, `admin`" in role["detail"]
        assert (await server.get("/nowhere", 404))["detail"] == "no route matches /api/v1/nowhere"
        assert (await server.ask("DELETE", "/workflows", 405))["detail"].startswith("DELETE is not allowed")

    run(tmp_path, work)


SOURCE = """\
# the greeting of the week
id: hello
notes: for the newcomers
nodes:
  - {id: in, type: input, position: {x: 1, y: 2}}
  - id: out
    type: output
    notes: says hello
    parameters: {value: "Hello!"}
edges:
  - {src: in, dst: out}
"""


def test_version_keeps_text_principal_and_note(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        made = await server.client.deploy(SOURCE, workflow="hello", note="first")
        assert (made.version, made.change, made.note, made.principal) == (1, "created", "first", "local")
        assert await server.client.source("hello") == SOURCE.encode()
        moved = SOURCE.replace("x: 1", "x: 900").replace("says hello", "greets")
        again = await server.client.deploy(moved, workflow="hello")
        assert (again.version, again.change, again.hash, again.note) == (1, "none", made.hash, "first")
        found = await server.http.get("/api/v1/workflows/hello/versions/latest/source")
        assert found.content == moved.encode()
        assert found.headers["content-type"].startswith("application/yaml")
        tag = {"If-None-Match": found.headers["etag"]}
        assert (
            await server.http.get("/api/v1/workflows/hello/versions/1/source", headers=tag)
        ).status_code == 304
        changed = await server.client.deploy(saying("other"), workflow="hello")
        assert changed.version == 2
        assert (await server.http.get("/api/v1/workflows/hello/versions/2/source")).json() == saying("other")
        listed = [each async for each in server.client.versions("hello")]
        assert [(each.version, each.note) for each in listed] == [(1, "first"), (2, "")]
        definition = (await server.client.workflow("hello", 1)).definition
        assert "notes" not in definition
        assert all("position" not in each for each in definition["nodes"])

    run(tmp_path, work)


def test_comments_of_another_author_are_not_overwritten(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        async def put(text: str, tag: str) -> tuple[int, str]:
            headers = {"Content-Type": "application/yaml", "If-Match": tag}
            answer = await server.http.put("/api/v1/workflows/hello", content=text, headers=headers)
            return answer.status_code, answer.headers.get("etag", "")

        made = await server.client.deploy(SOURCE, workflow="hello")
        first, second = f"# Mine.\n{SOURCE}", f"{SOURCE}# Theirs.\n"
        read = await server.http.get("/api/v1/workflows/hello")
        source = await server.http.get("/api/v1/workflows/hello/versions/latest/source")
        tag = read.headers["etag"]
        assert source.headers["etag"] == tag

        status, newer = await put(first, tag)
        assert (status, newer != tag) == (200, True)
        assert await put(first, tag) == (200, newer)  # a repeated request
        assert (await put(second, tag))[0] == 409
        assert await server.client.source("hello") == first.encode()
        both = f"# Mine.\n{second}"
        assert (await put(both, newer))[0] == 200
        assert await server.client.source("hello") == both.encode()
        assert (await put(SOURCE, f'"{made.hash}"'))[0] == 200  # the content is the same
        assert (await server.get("/workflows/hello"))["version"] == 1

    run(tmp_path, work)


def test_large_yaml_is_stored_with_its_text_within_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def yaml(data: str) -> dict[str, Any]:
        return {"content": data, "headers": {"Content-Type": "application/yaml"}}

    async def work(server: RunningServer) -> None:
        large = SOURCE + "# a comment of an author\n" * 12_000
        await server.ask("PUT", "/workflows/hello", 201, **yaml(large))
        assert await server.client.source("hello") == large.encode()
        beyond = await server.ask("PUT", "/workflows/hello", 413, **yaml(SOURCE + "#" * 2**21))
        assert beyond["code"] == "TOO_LARGE"
        monkeypatch.setattr(workflows, "MAX_YAML_SECONDS", 0.2)
        slow = await server.ask("PUT", "/workflows/hello", 422, **yaml(f"nodes: [{'a,' * 100_000}]"))
        assert [each["code"] for each in slow["problems"]] == ["TOO_LARGE"]
        assert await server.client.source("hello") == large.encode()

    run(tmp_path, work)


def test_layout_of_definition_places_nodes_and_edges(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        hash = (await server.client.workflow("items")).hash
        right = await server.client.layout(hash)
        down = await server.client.layout(hash, direction="down", width=100, height=40)
        definition = await server.client.definition(hash)
        ids = {each["id"] for each in definition["nodes"]}
        assert set(right.nodes) == set(down.nodes) == ids
        assert set(right.edges) == {each["id"] for each in definition["edges"]}
        assert {each.width for each in down.nodes.values()} == {100}
        first = definition["edges"][0]
        src, dst = right.nodes[first["src"]], right.nodes[first["dst"]]
        assert src.x + src.width < dst.x
        assert right.edges[first["id"]].points[0][0] == src.x + src.width
        splits = {each["id"] for each in definition["nodes"] if each["type"] == "split"}
        assert set(right.frames) == splits
        response = await server.http.get(f"/api/v1/definitions/{hash}/layout")
        assert "immutable" in response.headers["cache-control"]
        tag = {"If-None-Match": response.headers["etag"]}
        again = await server.http.get(f"/api/v1/definitions/{hash}/layout", headers=tag)
        assert again.status_code == 304
        assert (await server.get(f"/definitions/{'0' * 64}/layout", 404))["code"] == "UNKNOWN_DEFINITION"

    run(tmp_path, work)


def test_layout_of_large_definition_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[definitions.LayoutQuery] = []

    def lay_out(drawing: Drawing, query: definitions.LayoutQuery) -> LayoutView:
        computed.append(query)
        return original(drawing, query)

    original = definitions.layout_view
    monkeypatch.setattr(definitions, "layout_view", lay_out)

    async def work(server: RunningServer) -> None:
        await server.deploy(wide_graph(300))
        hash = (await server.client.workflow("graph-300")).hash
        first, *others = await asyncio.gather(*(server.client.layout(hash) for _ in range(3)))
        assert others == [first, first]
        assert (len(first.nodes), len(computed)) == (300, 1)
        await server.client.layout(hash, width=300)
        assert len(computed) == 2

    run(tmp_path, work)


def test_problems_of_sent_text_have_line_and_column(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        bad = await server.client.check("id: y\nnodes:\n  - id: in\n    type: inptu\n")
        assert [(each.line, each.column) for each in bad.problems] == [(4, 11)]
        refused = await server.http.put(
            "/api/v1/workflows/y",
            content=b'{"id": "y",\n "nodes": [{"id": "in", "type": "inptu"}]}',
            headers={"Content-Type": "application/json"},
        )
        (problem,) = refused.json()["problems"]
        assert (problem["line"], problem["column"]) == (2, 33)
        assert "(line 2, column 33)" in refused.json()["detail"]

    run(tmp_path, work)


def test_workflow_schema_has_node_types_of_server(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        schema = await server.client.workflow_schema()
        assert schema["type"] == "object"
        assert "parameters.http" in schema["definitions"]

    run(tmp_path, work)


def test_executions_show_version_and_alias(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(saying("one"), saying("two"))
        await server.client.set_alias("hello", "stable", 1)
        by_alias = await server.client.start("hello", version="stable")
        by_number = await server.client.start("hello", version=2)
        by_text = await server.client.start("hello", version="v2")
        latest = await server.client.start("hello")
        unstored = await server.client.start_definition(saying("three"))
        started = [by_alias, by_number, by_text, latest, unstored]
        expected = [(1, "stable"), (2, None), (2, None), (2, "latest"), (None, None)]
        assert [(each.version, each.alias) for each in started] == expected
        found = [await server.client.wait(each.execution_id, DEADLINE) for each in started]
        assert [(each.version, each.alias) for each in found] == expected
        again = await server.client.rerun(by_alias.execution_id, "out")
        assert (again.version, again.alias) == (1, "stable")
        listed = {
            each.execution_id async for each in server.client.executions(workflow="hello", version="stable")
        }
        assert listed == {by_alias.execution_id, again.execution_id}
        second = {each.execution_id async for each in server.client.executions(workflow="hello", version=2)}
        assert second == {each.execution_id for each in (by_number, by_text, latest)}
        assert (await server.get("/executions?version=2", 422))["code"] == "BAD_QUERY"
        wrong = await server.post("/workflows/hello/executions", {"version": 2.5}, 422)
        assert wrong["code"]

    run(tmp_path, work)


def test_preview_evaluates_expression_on_execution(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS, saying("Hi"))
        items = await server.ended("items", {"items": [10, 20, 30]})
        definition = (await server.client.workflow("items")).definition
        (split,) = [each["id"] for each in definition["nodes"] if each["type"] == "split"]
        inner = next(each["dst"] for each in definition["edges"] if each["src"] == split)
        found = await server.client.preview(items, inner, "$item", lineage=f"{split}:1")
        assert (found.text, found.type, found.truncated, found.problems) == ("20", "number", False, [])
        total = await server.client.preview(items, split, "sum($trigger.items)", mode="expression")
        assert total.text == "60"
        text = await server.client.preview(items, split, "{{ len($json.items) }} items")
        assert (text.text, text.type) == ('"3 items"', "string")
        long = await server.client.preview(items, split, "{{ [i for i in range(9000)] }}")
        assert (long.truncated, len(long.text or ""), long.type) == (True, 10 * 1024, "array")
        broken = await server.client.preview(items, split, "{{ 1 + }}")
        assert [each.code for each in broken.problems] == ["BAD_EXPRESSION"]
        assert broken.problems[0].column is not None
        missing = await server.client.preview(items, split, "{{ $trigger.nothing }}")
        assert [each.code for each in missing.problems] == ["EXPRESSION_ERROR"]
        with pytest.raises(ApiError, match="lineage"):
            await server.client.preview(items, inner, "$item")
        with pytest.raises(ApiError, match="no node"):
            await server.client.preview(items, "nothing", "$item")

    run(tmp_path, work)


def test_preview_evaluates_expression_of_node_of_draft(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        items = await server.ended("items", {"items": [10, 20, 30]})

        async def value(
            node: str, text: str, after: list[str], lineage: str = "", **names: str
        ) -> tuple[str | None, list[str]]:
            draft = {"after": after, "names": names}
            found = await server.client.preview(items, node, text, lineage=lineage, draft=draft)
            return found.text, [each.code for each in found.problems]

        assert await value("new", "{{ $all | len }} of {{ len($trigger.items) }}", ["all"]) == (
            '"3 of 3"',
            [],
        )
        assert await value("new", "{{ len($json) }}", ["all"]) == ("3", [])
        assert await value("new", "{{ $json.items[1] }}", ["in"]) == ("20", [])
        # in a split: the item, a node of the same item, and what the split hands over
        assert await value("new", "{{ $item + $twice.v + $index }}", ["twice"], "s:2") == ("92", [])
        assert await value("new", "{{ $json }}", ["s"], "s:1") == ("20", [])
        both = '{"twice":{"v":40},"odd":20}'
        assert await value("new", "{{ $json }}", ["twice", "odd"], "s:1") == (both, [])
        # renamed nodes, also the node itself and the split
        renamed = {"double": "twice", "each": "s"}
        assert await value("new", "{{ $double.v }}", ["double"], "each:1", **renamed) == ("40", [])
        assert await value("double", "{{ $json }}", ["odd"], "s:1", double="twice") == ("20", [])
        # a node of the execution that was moved out of its split
        assert await value("twice", "{{ len($json) }}", ["all"]) == ("3", [])
        # what did not run: a node of the draft, the items from outside, a node of another outlet
        assert await value("new", "{{ $newer }}", ["newer"], newer="newer") == (None, ["EXPRESSION_ERROR"])
        assert await value("new", "{{ $json }}", ["newer"]) == (None, ["EXPRESSION_ERROR"])
        assert await value("new", "{{ $twice }}", ["all"]) == (None, ["EXPRESSION_ERROR"])
        assert await value("new", "{{ $bad ?? 'none' }}", ["twice"], "s:0") == ('"none"', [])
        assert await value("new", "{{ $strange }}", ["in"]) == (None, ["BAD_EXPRESSION"])
        for lineage in ("s:3", "s:99999999999", "in:0", "s:0/s:0", "odd:1", "new:0"):
            with pytest.raises(ApiError, match="no item"):
                await value("new", "{{ $item }}", ["s"], lineage)
        with pytest.raises(ApiError, match="no item"):
            await server.client.preview(items, "twice", "$item", lineage="s:3")

    run(tmp_path, work)


def test_preview_of_draft_sees_error_of_failed_node(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        items = await server.ended("items", {"items": [1]})
        draft = {"after": ["bad"], "names": {}}
        found = await server.client.preview(items, "new", "{{ $error.message }}", lineage="s:0", draft=draft)
        assert found.text == '"odd"'

    run(tmp_path, work)


def test_validate_returns_plan_and_layout_of_invalid_document(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        plain = await server.client.check(ITEMS)
        assert (plain.plan, plain.layout) == (None, None)
        full = await server.client.check(ITEMS, plan=True, layout=True)
        assert full.plan is not None
        assert full.layout is not None
        (split,) = [each["id"] for each in ITEMS["nodes"] if each["type"] == "split"]
        inside = [name for name, each in full.plan.items() if each.split == split]
        assert inside
        assert all(split in full.plan[each].mentions for each in inside)
        assert set(full.layout.nodes) == set(full.plan)
        broken = {
            "nodes": [
                {"id": "if", "type": "conditional", "parameters": {"expression": "true"}},
                {"id": "a", "type": "teleport"},
            ],
            "edges": [{"src": "if", "dst": "a", "label": "true"}, {"src": "a", "dst": "nothing"}],
        }
        checked = await server.client.check(broken, plan=True, layout=True)
        assert not checked.valid
        assert checked.plan is not None
        assert checked.layout is not None
        assert (checked.plan["if"].outlets, checked.plan["a"].mentions) == (["true", "false"], ["if"])
        assert set(checked.layout.nodes) == {"if", "a"}
        assert (await server.client.check("[", plan=True, layout=True)).plan is None

    run(tmp_path, work)
