"""A misbehaving node fails by its error policy, with a code, and does not affect the process."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rune.nodes import cancellation, foreign_errors
from rune.nodes.registry import load_module, standard_registry
from rune.runtime.worker import worker
from rune.testing.harness import harness
from tests.integration.embedded.bad_nodes import CLOSED, GATE, SLOW_TEXTS, STUBBORN, WAYS

REGISTRY = standard_registry().extended(load_module("tests.integration.embedded.bad_nodes"))
FINE = {
    "id": "fine",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "out", "type": "output", "parameters": {"value": "fine"}},
    ],
    "edges": [{"src": "in", "dst": "out"}],
}


def _document(kind: str, way: str, **fields: Any) -> dict[str, Any]:
    nodes = [
        {"id": "in", "type": "input"},
        {"id": "bad", "type": kind, "parameters": {"way": way}, **fields},
        {"id": "after", "type": "output", "parameters": {"value": "{{ $bad.error.code ?? 'none' }}"}},
    ]
    return {
        "id": "bad",
        "nodes": nodes,
        "edges": [{"src": "in", "dst": "bad"}, {"src": "bad", "dst": "after"}],
    }


async def _run(folder: pathlib.Path, kind: str, way: str) -> list[dict[str, Any]]:
    async with harness(folder, registry=REGISTRY) as engine:
        documents = []
        for document in (_document(kind, way), _document(kind, way, error="ignore"), FINE):
            run = await engine.start(document)
            await run.end(10)
            documents.append(await run.document())
        return documents


CODES = {
    **dict.fromkeys(
        ("nan", "infinity", "object", "function", "set", "keys", "surrogate", "deep"), "NOT_JSON"
    ),
    "huge": "LIMIT_EXCEEDED",
    "no fields": "NODE_FAILED",
    "no text of a failure": "<its text cannot be read>",
}
TYPES = {
    "exit": "SystemExit",
    "odd": "CustomBaseException",
    "memory": "MemoryError",
    "cancelled": "CancelledError",
    "interrupt": "KeyboardInterrupt",
    "generator exit": "GeneratorExit: done",
    "no text": "NoTextError: <its text cannot be read>",
    "long text": "LongTextError: long long ",
    "odd cause": "OddCauseError",
    "cyclic causes": "ValueError: first",
    "many causes": "ValueError: 4999",
}


@pytest.mark.parametrize("kind", ["bad.async", "bad.thread", "bad.pure"])
@pytest.mark.parametrize("way", WAYS)
def test_misbehaving_node_fails_by_its_error_policy(
    kind: str, way: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_errors, "READ_S", 600.0)  # however busy the machine is
    halted, ignored, fine = asyncio.run(_run(tmp_path, kind, way))

    assert halted["status"] == "halted"
    assert halted["error"]["code"] == CODES.get(way, "NODE_ERROR")
    assert halted["error"]["message"].startswith(TYPES.get(way, ""))
    assert halted["error"]["message"].isprintable()
    (bad,) = [node for node in halted["nodes"] if node["node_id"] == "bad"]
    assert (bad["status"], bad["attempts"], bad["error"]["code"]) == ("failed", 1, halted["error"]["code"])
    assert ignored["status"] == "completed"
    assert ignored["output"] == halted["error"]["code"]
    assert fine["output"] == "fine"


@pytest.fixture
def opened_gate() -> Iterator[None]:
    """Let the threads end that make the texts of exceptions."""
    GATE.clear()
    yield
    GATE.set()


@pytest.mark.usefixtures("opened_gate")
@pytest.mark.parametrize("kind", ["bad.async", "bad.thread", "bad.pure"])
def test_other_executions_go_on_while_the_text_of_an_exception_is_made(
    kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_errors, "READ_S", 600.0)

    async def run() -> dict[str, Any]:
        async with harness(tmp_path, registry=REGISTRY) as engine:
            bad = await engine.start(_document(kind, "blocked"))
            while not any(each.name == "rune-error-text" for each in threading.enumerate()):
                await asyncio.to_thread(threading.Event().wait, 0.01)
            await (await engine.start(FINE)).end(60)
            GATE.set()
            await bad.end(60)
            return await bad.document()

    document = asyncio.run(run())

    assert document["error"]["message"] == "BlockedTextError: late"


NO_TEXTS = {
    "endless": ("NODE_ERROR", "EndlessTextError: <its text cannot be read>"),
    "blocked": ("NODE_ERROR", "BlockedTextError: <its text cannot be read>"),
    "blocked cause": ("NODE_ERROR", "ValueError: <its text cannot be read>"),
    "blocked failure": ("NODE_FAILED", "<its text cannot be read>"),
}


@pytest.mark.usefixtures("opened_gate")
@pytest.mark.parametrize("kind", ["bad.async", "bad.thread", "bad.pure"])
@pytest.mark.parametrize("way", SLOW_TEXTS)
def test_exception_whose_text_takes_long_is_recorded_without_it(
    kind: str, way: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_errors, "READ_S", 0.05)

    async def run() -> dict[str, Any]:
        async with harness(tmp_path, registry=REGISTRY) as engine:
            bad = await engine.start(_document(kind, way))
            await bad.end(60)
            return await bad.document()

    document = asyncio.run(run())

    assert document["status"] == "halted"
    assert (document["error"]["code"], document["error"]["message"]) == NO_TEXTS[way]


@pytest.mark.usefixtures("opened_gate")
def test_thread_of_an_endless_text_ends(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_errors, "READ_S", 0.05)
    document, _, _ = asyncio.run(_run(tmp_path, "bad.async", "endless"))

    for thread in threading.enumerate():
        if thread.name.startswith("rune-error-text"):
            thread.join(30)
            assert not thread.is_alive()
    assert document["error"]["message"] == "EndlessTextError: <its text cannot be read>"


@pytest.mark.parametrize("way", ["cancel", "future"])
def test_node_that_ends_the_task_of_its_slot_fails_and_keeps_the_slot(
    way: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "REDELIVERY_DELAYS_S", ())

    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        async with harness(tmp_path, registry=REGISTRY, slots=1) as engine:
            documents = []
            for document in (_document("bad.task", way), FINE):
                run = await engine.start(document)
                await run.end(10)
                documents.append(await run.document())
            return documents[0], documents[1]

    ended, fine = asyncio.run(run())

    assert (ended["status"], ended["error"]["code"]) == ("failed", "DEAD_LETTERED")
    assert fine["output"] == "fine"


async def _times_out(folder: pathlib.Path, document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a workflow whose node times out, then another one in the same slot."""
    async with harness(folder, registry=REGISTRY, slots=1) as engine:
        documents = []
        for each in (document, FINE):
            run = await engine.start(each)
            await run.end(10)
            documents.append(await run.document())
        return documents[0], documents[1]


@pytest.mark.parametrize("way", STUBBORN)
def test_node_that_ignores_its_cancellation_times_out_and_leaves_its_slot(
    way: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "STOP_GRACE_S", 0.05)

    ended, fine = asyncio.run(_times_out(tmp_path, _document("bad.stubborn", way, timeout=0.05)))

    assert (ended["status"], ended["error"]["code"]) == ("failed", "TIMEOUT")
    assert fine["output"] == "fine"


def test_cancelled_node_has_time_to_release_what_it_holds(tmp_path: pathlib.Path) -> None:
    CLOSED.clear()

    ended, fine = asyncio.run(_times_out(tmp_path, _document("bad.closing", "sleep", timeout=0.05)))

    assert (ended["status"], ended["error"]["code"]) == ("failed", "TIMEOUT")
    assert CLOSED == ["closed"]
    assert fine["output"] == "fine"


@pytest.mark.parametrize("way", ["blocks", "ignores"])
def test_result_that_comes_after_the_timeout_is_not_accepted(way: str, tmp_path: pathlib.Path) -> None:
    ended, fine = asyncio.run(_times_out(tmp_path, _document("bad.late", way, timeout=0.05)))

    assert (ended["status"], ended["error"]["code"]) == ("failed", "TIMEOUT")
    assert fine["output"] == "fine"
