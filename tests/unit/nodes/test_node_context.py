"""The context of a custom node: blobs, log, progress and cancellation."""

from __future__ import annotations

import asyncio
import json
import logging
import pathlib
import threading
from typing import Any

import pytest

from rune.bootstrap import running_engine
from rune.cli.progress import ProgressCounter, state_of
from rune.core.execution.token import Token
from rune.errors import NodeFailure
from rune.nodes.blobs import Blobs, is_reference
from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry
from rune.runtime.worker.node_runner import ProgressReporter, as_text
from rune.settings import Settings
from rune.testing.harness import Harness, VirtualClock, compiled, harness, run_document
from rune.testing.mocks import MemoryBlob, context
from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document
from tests.support.documents import node as workflow_node


def registry(*functions: Any) -> Registry:
    kinds = [kind_of(each) for each in functions]
    return standard_registry().extended([each for each in kinds if each is not None])


def single_node(type: str, **fields: Any) -> dict[str, Any]:
    """A workflow with one node."""
    return document([workflow_node("start", "input"), workflow_node("a", type, **fields)], "start>a")


def node_entry(result: dict[str, Any], name: str = "a") -> dict[str, Any]:
    (found,) = [each for each in result["nodes"] if each["node_id"] == name]
    return dict(found)


def test_blob_put_and_get() -> None:
    @node("t.keep")
    async def keep(ctx: NodeContext) -> dict[str, Any]:
        return await ctx.blob.put(b"\x00" * 100_000, "a.bin", "application/x-own")

    @node("t.size")
    def size(ctx: NodeContext, file: dict[str, Any]) -> dict[str, Any]:
        data = ctx.wait(ctx.blob.get(file))
        return {"bytes": len(data), "again": ctx.wait(ctx.blob.put(data[:1]))}

    raw = document(
        [
            workflow_node("start", "input"),
            workflow_node("k", "t.keep"),
            workflow_node("s", "t.size", {"file": "$k"}),
        ],
        "start>k",
        "k>s",
    )

    result = run_document(raw, registry=registry(keep, size))

    reference = node_entry(result, "k")["output"]
    assert (reference["size"], reference["name"], reference["content_type"]) == (
        100_000,
        "a.bin",
        "application/x-own",
    )
    assert reference["blob"].startswith(result["execution_id"] + "/")
    assert node_entry(result, "s")["output"]["bytes"] == 100_000
    assert is_reference(node_entry(result, "s")["output"]["again"])


def test_blob_of_other_execution_is_rejected() -> None:
    store = MemoryBlob()

    async def scenario() -> None:
        theirs = await Blobs(store, "x2").put(b"x")
        await Blobs(store, "x1").get(theirs)

    with pytest.raises(NodeFailure, match="another execution"):
        asyncio.run(scenario())


def test_wait_in_async_function_fails() -> None:
    @node("t.mistaken")
    async def wait_in_loop(ctx: NodeContext) -> Any:
        return ctx.wait(ctx.blob.put(b"x"))

    found = node_entry(run_document(single_node("t.mistaken"), registry=registry(wait_in_loop)))

    assert "use `await` instead" in found["error"]["message"]


def test_log_record_carries_fields(caplog: pytest.LogCaptureFixture) -> None:
    @node("t.log")
    def write_log(ctx: NodeContext) -> None:
        ctx.log("half way", level="warning", done=3, of=[1, object])

    result = run_document(single_node("t.log"), registry=registry(write_log))

    (record,) = [each for each in caplog.records if each.name == "rune.node"]
    assert record.levelno == logging.WARNING
    assert "half way done=3" in record.getMessage()
    assert result["execution_id"] in record.getMessage()
    assert record.__dict__["node"] == "a"


class ProgressObserver:
    """Records progress reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, str]] = []
        self.arrived = asyncio.Event()

    def claimed(self, execution: str, token: Token) -> None: ...

    def applied(self, execution: str, decisions: Any) -> None: ...

    def logged(self, execution: str, line: Any) -> None: ...

    def progressed(self, execution: str, token: Token, text: str) -> None:
        self.reports.append((execution, text))
        self.arrived.set()


@pytest.mark.parametrize("in_thread", [True, False])
def test_progress_reaches_observer_but_not_journal(in_thread: bool, tmp_path: pathlib.Path) -> None:
    release = threading.Event()

    @node("t.thread")
    def blocking(ctx: NodeContext) -> str:
        ctx.progress(0.25)
        release.wait(TIMEOUT_S)
        return "done"

    async def scenario() -> tuple[list[tuple[str, str]], str, list[Any]]:
        observer = ProgressObserver()

        @node("t.loop")
        async def waiting(ctx: NodeContext) -> str:
            ctx.progress(0.25)
            await observer.arrived.wait()
            return "done"

        settings = Settings(home=str(tmp_path), durability="relaxed")
        types = registry(blocking, waiting)
        async with running_engine(settings, registry=types, observer=observer) as engine:
            run = await Harness(engine, None).start(
                compiled(single_node("t.thread" if in_thread else "t.loop"), types)
            )
            await asyncio.wait_for(observer.arrived.wait(), TIMEOUT_S)
            release.set()
            await run.end()
            facts = [repr(each) for each in await run.facts()]
        return observer.reports, run.id, facts

    reports, execution, facts = asyncio.run(scenario())

    assert reports == [(execution, "25%")]
    assert not any("25" in each.replace(execution, "") and "%" in each for each in facts)


def test_progress_reports_are_rate_limited() -> None:
    reports: list[str] = []

    async def scenario() -> None:
        report = ProgressReporter(lambda execution, token, text: reports.append(text), "x", Token(0))
        for number in range(10_000):
            report(f"{number}")
        await asyncio.gather(asyncio.to_thread(report, "from a thread"))

    asyncio.run(scenario())

    assert reports[0] == "0"
    assert len(reports) < 20


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (0.5, "50%"),
        (7, "100%"),
        (-1, "0%"),
        (float("nan"), ""),
        ("two\nlines", "two lines"),
        ("x" * 999, "x" * 200),
    ],
)
def test_progress_is_rendered_as_text(progress: float | str, text: str) -> None:
    assert as_text(progress) == text


def test_progress_counter_shows_progress_of_running_node() -> None:
    plan = compiled(
        document(
            [workflow_node("start", "input"), workflow_node("a", "noop", {"effectful": True})], "start>a"
        )
    )
    tally = ProgressCounter("x")
    tally.begin(plan, "x")
    token = Token(next(each.index for each in plan.nodes if each.id == "a"))
    tally.progressed("x", token, "too early")
    tally.claimed("x", token)
    tally.progressed("y", token, "of another")
    tally.progressed("x", token, "12 of 30 \x1b[2J")

    (line,) = [each for each in tally.lines() if each.node == "a"]

    assert state_of(line, 0) == "running: 12 of 30 \ufffd[2J"


def test_sync_function_sees_cancellation_after_timeout() -> None:
    seen = threading.Event()

    @node("t.stubborn")
    def busy_loop(ctx: NodeContext) -> None:
        pause = threading.Event()
        while not ctx.cancelled:
            pause.wait(0.005)
        with pytest.raises(NodeFailure):
            ctx.wait(ctx.blob.put(b"x"))
        seen.set()

    found = node_entry(run_document(single_node("t.stubborn", timeout=0.05), registry=registry(busy_loop)))

    assert (found["status"], found["error"]["code"]) == ("failed", "TIMEOUT")
    assert seen.wait(TIMEOUT_S)


def test_async_function_is_cancelled_after_timeout() -> None:
    ended: list[str] = []

    @node("t.patient")
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    found = node_entry(run_document(single_node("t.patient", timeout=0.05), registry=registry(endless)))

    assert (found["error"]["code"], ended) == ("TIMEOUT", ["cancelled"])


@pytest.mark.parametrize("in_thread", [True, False])
def test_halt_cancels_running_nodes(in_thread: bool, tmp_path: pathlib.Path) -> None:
    running, cancelled = threading.Event(), threading.Event()

    @node("t.thread")
    def blocking(ctx: NodeContext) -> None:
        running.set()
        pause = threading.Event()
        while not ctx.cancelled:
            pause.wait(0.005)
        cancelled.set()

    @node("t.loop")
    async def waiting() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @node("t.fails")
    def fails() -> None:
        running.wait(TIMEOUT_S)
        raise NodeFailure("no", code="NO")

    raw = document(
        [
            workflow_node("start", "input"),
            workflow_node("a", "t.thread" if in_thread else "t.loop"),
            workflow_node("b", "t.fails"),
        ],
        "start>a",
        "start>b",
    )

    async def scenario() -> tuple[str, dict[str, Any]]:
        clock = VirtualClock()
        async with harness(
            tmp_path, clock=clock, registry=registry(blocking, waiting, fails), grace=0.0
        ) as engine:
            run = await engine.start(raw)
            end = await asyncio.wait_for(run.ending, TIMEOUT_S)
            clock.advance(3_000)  # the lease of the halted execution is no longer renewed
            await engine.wait_for(cancelled.is_set)
            await engine.wait_for(lambda: engine.engine.busy == 0)
            after = await engine.start(single_node("noop"))
            await asyncio.wait_for(after.ending, TIMEOUT_S)
            return end.status, await run.document()

    status, document_ = asyncio.run(scenario())

    assert status == "halted"
    assert node_entry(document_, "b")["error"]["code"] == "NO"
    assert not [each for each in document_["nodes"] if each["node_id"] == "a" and each["status"] == "failed"]


HANGING = """
import pathlib, threading
from rune.nodes.custom import node

@node("t.hang")
def hang(marker: str) -> None:
    pathlib.Path(marker).touch()
    threading.Event().wait()
"""


@pytest.mark.parametrize("timeout", [None, 0.2], ids=["stopped", "timed out"])
def test_hanging_thread_does_not_block_exit(timeout: float | None, tmp_path: pathlib.Path) -> None:
    (tmp_path / "hanging_nodes.py").write_text(HANGING)
    marker = tmp_path / "marker"
    raw = single_node(
        "t.hang", parameters={"marker": str(marker)}, **({"timeout": timeout} if timeout else {})
    )
    file = tmp_path / "w.json"
    file.write_text(json.dumps(raw))
    rune = Rune(tmp_path / "home", RUNE_GRACE="0.1")
    rune._environment["PYTHONPATH"] += f":{tmp_path}"
    with rune.begin("run", str(file), "--nodes", "hanging_nodes", "--json") as process:
        if timeout is None:
            until(lambda: True if marker.exists() else None, "the node runs")
            process.terminate()
        out, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == (143 if timeout is None else 1), err
    if timeout is not None:
        assert node_entry(json.loads(out))["error"]["code"] == "TIMEOUT"


def test_context_runs_function_without_engine() -> None:
    async def count(ctx: NodeContext, n: int) -> dict[str, Any]:
        ctx.progress(0.5)
        ctx.log("counting")
        stored = await ctx.blob.put(b"x" * n)
        return {
            "n": n,
            "payload": ctx.payload,
            "kept": await ctx.blob.get(stored),
            "who": await ctx.credential(),
        }

    ctx = context({"p": 1}, attempt=2)

    found = asyncio.run(count(ctx, 3))

    assert found == {"n": 3, "payload": {"p": 1}, "kept": b"xxx", "who": None}
    assert (ctx.reported, ctx.attempt, ctx.cancelled) == ([0.5], 2, False)
