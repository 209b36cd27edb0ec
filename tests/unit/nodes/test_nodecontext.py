"""What the function of a custom node may ask of its run, and how it learns that nobody waits for it any more."""

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
from rune.testing.clock import VirtualClock
from rune.testing.harness import Harness, compiled, harness, run_document
from rune.testing.nodes import MemoryBlob, context
from tests.acceptance.cli.process import PATIENCE, Rune, until
from tests.unit.core.documents import document
from tests.unit.core.documents import node as listed


def registry(*functions: Any) -> Registry:
    kinds = [kind_of(each) for each in functions]
    return standard_registry().extended([each for each in kinds if each is not None])


def one(type: str, **fields: Any) -> dict[str, Any]:
    """A workflow of one node."""
    return document([listed("start", "input"), listed("a", type, **fields)], "start>a")


def entry(told: dict[str, Any], name: str = "a") -> dict[str, Any]:
    (found,) = [each for each in told["nodes"] if each["node_id"] == name]
    return dict(found)


def test_bytes_are_kept_and_found_again() -> None:
    @node("t.keep")
    async def keep(ctx: NodeContext) -> dict[str, Any]:
        return await ctx.blob.put(b"\x00" * 100_000, "a.bin", "application/x-own")

    @node("t.size")
    def size(ctx: NodeContext, file: dict[str, Any]) -> dict[str, Any]:
        data = ctx.wait(ctx.blob.get(file))
        return {"bytes": len(data), "again": ctx.wait(ctx.blob.put(data[:1]))}

    raw = document(
        [listed("start", "input"), listed("k", "t.keep"), listed("s", "t.size", {"file": "$k"})],
        "start>k",
        "k>s",
    )

    told = run_document(raw, registry=registry(keep, size))

    reference = entry(told, "k")["output"]
    assert (reference["size"], reference["name"], reference["content_type"]) == (
        100_000,
        "a.bin",
        "application/x-own",
    )
    assert reference["blob"].startswith(told["execution_id"] + "/")
    assert entry(told, "s")["output"]["bytes"] == 100_000
    assert is_reference(entry(told, "s")["output"]["again"])


def test_the_blobs_of_another_execution_are_not_given() -> None:
    store = MemoryBlob()

    async def scenario() -> None:
        theirs = await Blobs(store, "x2").put(b"x")
        await Blobs(store, "x1").get(theirs)

    with pytest.raises(NodeFailure, match="another execution"):
        asyncio.run(scenario())


def test_only_a_thread_may_wait() -> None:
    @node("t.mistaken")
    async def mistaken(ctx: NodeContext) -> Any:
        return ctx.wait(ctx.blob.put(b"x"))

    found = entry(run_document(one("t.mistaken"), registry=registry(mistaken)))

    assert "use `await` instead" in found["error"]["message"]


def test_a_line_in_the_log_carries_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    @node("t.talk")
    def talk(ctx: NodeContext) -> None:
        ctx.log("half way", level="warning", done=3, of=[1, object])

    told = run_document(one("t.talk"), registry=registry(talk))

    (record,) = [each for each in caplog.records if each.name == "rune.node"]
    assert record.levelno == logging.WARNING
    assert "half way done=3" in record.getMessage()
    assert told["execution_id"] in record.getMessage()
    assert record.__dict__["node"] == "a"


class Ear:
    """Hears how far nodes are."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.arrived = asyncio.Event()

    def claimed(self, execution: str, token: Token) -> None: ...

    def applied(self, execution: str, decisions: Any) -> None: ...

    def progressed(self, execution: str, token: Token, text: str) -> None:
        self.heard.append((execution, text))
        self.arrived.set()


@pytest.mark.parametrize("in_thread", [True, False])
def test_progress_reaches_whoever_looks_on_and_nobody_else(in_thread: bool, tmp_path: pathlib.Path) -> None:
    release = threading.Event()

    @node("t.thread")
    def blocking(ctx: NodeContext) -> str:
        ctx.progress(0.25)
        release.wait(PATIENCE)
        return "done"

    async def scenario() -> tuple[list[tuple[str, str]], str, list[Any]]:
        ear = Ear()

        @node("t.loop")
        async def waiting(ctx: NodeContext) -> str:
            ctx.progress(0.25)
            await ear.arrived.wait()
            return "done"

        settings = Settings(home=str(tmp_path), durability="relaxed")
        known = registry(blocking, waiting)
        async with running_engine(settings, registry=known, observer=ear) as engine:
            run = await Harness(engine, None).start(
                compiled(one("t.thread" if in_thread else "t.loop"), known)
            )
            await asyncio.wait_for(ear.arrived.wait(), PATIENCE)
            release.set()
            await run.end()
            facts = [repr(each) for each in await run.facts()]
        return ear.heard, run.id, facts

    heard, execution, facts = asyncio.run(scenario())

    assert heard == [(execution, "25%")]
    assert not any("25" in each.replace(execution, "") and "%" in each for each in facts)


def test_too_much_is_left_out() -> None:
    heard: list[str] = []

    async def scenario() -> None:
        report = ProgressReporter(lambda execution, token, text: heard.append(text), "x", Token(0))
        for number in range(10_000):
            report(f"{number}")
        await asyncio.gather(asyncio.to_thread(report, "from a thread"))

    asyncio.run(scenario())

    assert heard[0] == "0"
    assert len(heard) < 20


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (0.5, "50%"),
        (7, "100%"),
        (-1, "0%"),
        (float("nan"), ""),
        ("two\nlines", "two lines"),
        ("x" * 999, "x" * 200),
    ],
)
def test_progress_in_words(what: float | str, text: str) -> None:
    assert as_text(what) == text


def test_the_picture_of_a_run_shows_it() -> None:
    plan = compiled(document([listed("start", "input"), listed("a", "noop", {"effectful": True})], "start>a"))
    tally = ProgressCounter("x")
    tally.begin(plan, "x")
    token = Token(next(each.index for each in plan.nodes if each.id == "a"))
    tally.progressed("x", token, "too early")
    tally.claimed("x", token)
    tally.progressed("y", token, "of another")
    tally.progressed("x", token, "12 of 30 \x1b[2J")

    (line,) = [each for each in tally.lines() if each.node == "a"]

    assert state_of(line, 0) == "running: 12 of 30 \ufffd[2J"


def test_a_function_without_await_can_see_that_it_took_too_long() -> None:
    seen = threading.Event()

    @node("t.stubborn")
    def stubborn(ctx: NodeContext) -> None:
        pause = threading.Event()
        while not ctx.cancelled:
            pause.wait(0.005)
        with pytest.raises(NodeFailure):
            ctx.wait(ctx.blob.put(b"x"))
        seen.set()

    found = entry(run_document(one("t.stubborn", timeout=0.05), registry=registry(stubborn)))

    assert (found["status"], found["error"]["code"]) == ("failed", "TIMEOUT")
    assert seen.wait(PATIENCE)


def test_a_function_with_await_is_interrupted() -> None:
    ended: list[str] = []

    @node("t.patient")
    async def patient() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("told")
            raise

    found = entry(run_document(one("t.patient", timeout=0.05), registry=registry(patient)))

    assert (found["error"]["code"], ended) == ("TIMEOUT", ["told"])


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_halt_reaches_what_still_runs(in_thread: bool, tmp_path: pathlib.Path) -> None:
    running, told = threading.Event(), threading.Event()

    @node("t.thread")
    def blocking(ctx: NodeContext) -> None:
        running.set()
        pause = threading.Event()
        while not ctx.cancelled:
            pause.wait(0.005)
        told.set()

    @node("t.loop")
    async def waiting() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    @node("t.fails")
    def fails() -> None:
        running.wait(PATIENCE)
        raise NodeFailure("no", code="NO")

    raw = document(
        [
            listed("start", "input"),
            listed("a", "t.thread" if in_thread else "t.loop"),
            listed("b", "t.fails"),
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
            end = await asyncio.wait_for(run.ending, PATIENCE)
            clock.advance(3_000)  # leases are renewed, and this one is not any more
            await engine.wait_for(told.is_set)
            await engine.wait_for(lambda: engine.engine.busy == 0)
            after = await engine.start(one("noop"))
            await asyncio.wait_for(after.ending, PATIENCE)
            return end.status, await run.document()

    status, document_ = asyncio.run(scenario())

    assert status == "halted"
    assert entry(document_, "b")["error"]["code"] == "NO"
    assert not [each for each in document_["nodes"] if each["node_id"] == "a" and each["status"] == "failed"]


HANGING = """
import pathlib, threading
from rune.nodes.custom import node

@node("t.hang")
def hang(mark: str) -> None:
    pathlib.Path(mark).touch()
    threading.Event().wait()
"""


@pytest.mark.parametrize("timeout", [None, 0.2], ids=["stopped", "timed out"])
def test_a_thread_that_never_returns_holds_up_no_end(timeout: float | None, tmp_path: pathlib.Path) -> None:
    (tmp_path / "hanging_nodes.py").write_text(HANGING)
    mark = tmp_path / "mark"
    raw = one("t.hang", parameters={"mark": str(mark)}, **({"timeout": timeout} if timeout else {}))
    file = tmp_path / "w.json"
    file.write_text(json.dumps(raw))
    rune = Rune(tmp_path / "home", RUNE_GRACE="0.1")
    rune._environment["PYTHONPATH"] += f":{tmp_path}"
    with rune.begin("run", str(file), "--nodes", "hanging_nodes", "--json") as process:
        if timeout is None:
            until(lambda: True if mark.exists() else None, "the node runs")
            process.terminate()
        out, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == (143 if timeout is None else 1), err
    if timeout is not None:
        assert entry(json.loads(out))["error"]["code"] == "TIMEOUT"


def test_a_function_can_be_tested_without_an_engine() -> None:
    async def count(ctx: NodeContext, n: int) -> dict[str, Any]:
        ctx.progress(0.5)
        ctx.log("counting")
        kept = await ctx.blob.put(b"x" * n)
        return {
            "n": n,
            "payload": ctx.payload,
            "kept": await ctx.blob.get(kept),
            "who": await ctx.credential(),
        }

    ctx = context({"p": 1}, attempt=2)

    found = asyncio.run(count(ctx, 3))

    assert found == {"n": 3, "payload": {"p": 1}, "kept": b"xxx", "who": None}
    assert (ctx.reported, ctx.attempt, ctx.cancelled) == ([0.5], 2, False)
