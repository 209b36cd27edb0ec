"""Lists read only the page that they return, and caches are bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rune.adapters.sqlite import journal as embedded_journal
from rune.adapters.sqlite.journal import SqliteJournal
from rune.adapters.sqlite.stores import ReadOnlyDatabase
from rune.runtime.queries.reader import ExecutionReader
from rune.server.views import node_runs
from tests.support.api_server import HELLO, ITEMS, RunningServer, run


async def read_all_pages(server: RunningServer, path: str) -> tuple[list[dict[str, Any]], int]:
    """Read all pages of a list; return the entries and the number of pages."""
    found: list[dict[str, Any]] = []
    cursor, pages = "", 0
    while True:
        page = await server.get(f"{path}{cursor}")
        found += page["nodes"]
        pages += 1
        if page["next"] is None:
            return found, pages
        cursor = f"&cursor={page['next']}"


def test_first_page_reads_only_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    facts = ExecutionReader.facts

    async def counted(self: ExecutionReader, execution: str, after: int = 0, limit: int | None = None) -> Any:
        found = await facts(self, execution, after, limit)
        read.append(len(found))
        return found

    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": list(range(300))})
        monkeypatch.setattr(ExecutionReader, "facts", counted)
        page = await server.get(f"/executions/{id}/nodes?limit=20")
        assert len(page["nodes"]) == 20
        assert page["next"] is not None
        assert sum(read) <= 60

    run(tmp_path, work)


def test_filtered_list_pages_through_short_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_runs, "MAX_SCANNED", 40)
    monkeypatch.setattr(node_runs, "BATCH_SIZE", 20)

    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": list(range(100))})
        failed, pages = await read_all_pages(server, f"/executions/{id}/nodes?status=failed&limit=1000")
        assert len(failed) == 50
        assert pages > 2
        skipped, _ = await read_all_pages(server, f"/executions/{id}/nodes?status=skipped&limit=7")
        assert len(skipped) == 100
        everything, _ = await read_all_pages(server, f"/executions/{id}/nodes?limit=50")
        names = [(each["node_id"], str(each["lineage"])) for each in everything]
        assert len(names) == len(set(names)) == 1 + 1 + 100 + 100 + 100 + 1
        inside, _ = await read_all_pages(server, f"/executions/{id}/nodes?lineage=s:99&limit=50")
        assert sorted(each["node_id"] for each in inside) == ["bad", "odd", "twice"]
        for wrong in ("7", "x7", "n-1", "s", "n" + "9" * 30):
            assert (await server.get(f"/executions/{id}/nodes?cursor={wrong}", 422))["code"] == "BAD_CURSOR"

    run(tmp_path, work)


def test_skipped_nodes_of_long_execution_appear_after_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_runs, "MAX_INLINE_FACTS", 10)
    waiting = {
        **ITEMS,
        "nodes": [
            *ITEMS["nodes"],
            {"id": "w", "type": "wait", "parameters": {"resume": "signal", "name": "go"}},
        ],
        "edges": [*ITEMS["edges"], {"src": "all", "dst": "w"}],
    }

    async def work(server: RunningServer) -> None:
        await server.deploy(waiting)
        id = (await server.client.start("items", {"items": list(range(20))})).execution_id
        while (await server.get(f"/executions/{id}/history?limit=1000"))["events"][-1][
            "kind"
        ] != "node.waiting":
            pass
        path = f"/executions/{id}/nodes?status=skipped&limit=50"
        assert (await read_all_pages(server, path))[0] == []
        await server.post(f"/executions/{id}/signals", {"name": "go"})
        await server.client.wait(id, 60)
        assert len((await read_all_pages(server, path))[0]) == 20

    run(tmp_path, work)


def test_start_follows_alias_change_immediately(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        first = await server.client.start("hello", {"name": "x"})
        await server.deploy({**HELLO, "name": "Other"})
        second = await server.client.start("hello", {"name": "x"})
        assert first.hash != second.hash
        await server.engine.services.workflows.set_alias("hello", "latest", 1)
        assert (await server.client.start("hello", {"name": "x"})).hash == first.hash
        await server.engine.services.workflows.archive("hello")
        assert (await server.post("/workflows/hello/executions", {}, 404))["code"] == "UNKNOWN_WORKFLOW"

    run(tmp_path, work)


def test_journal_caches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_journal, "MAX_CACHED_IDS", 3)

    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        ids = [await server.ended("hello", {"name": str(n)}) for n in range(8)]
        database = ReadOnlyDatabase(Path(tmp_path) / "rune.db")
        journal = SqliteJournal(database)
        for _ in range(2):
            for id in ids:
                assert (await journal.accepted(id)) is not None
                assert len(await journal.facts(id)) == 2
                assert (await journal.end(id)) is not None
        assert len(journal._numbers) == len(journal._ended) == len(journal._final) == 3
        database.close()

    run(tmp_path, work)


def test_unknown_cursor_is_rejected(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        started = await server.client.start("hello", {"name": "a"})
        for more in ("", "&q=a", "&status=completed"):
            refused = await server.get(f"/executions?cursor=gone{more}", 422)
            assert refused["code"] == "BAD_CURSOR"
        assert (await server.get("/dead-letters?cursor=gone", 422))["code"] == "BAD_CURSOR"
        last = await server.get(f"/executions?cursor={started.execution_id}")
        assert last == {"executions": [], "next": None, "count": None}

    run(tmp_path, work)
