"""A signal is consumed once, also if two states of an execution gave it to different tokens."""

from __future__ import annotations

import asyncio
import pathlib

from rune.adapters.postgres.stores import postgres
from rune.core.execution.fact import AttemptFailed, Fact, NodeResult, SignalReceived
from rune.core.execution.outcome import Error
from rune.core.execution.stored_value import Inline
from rune.core.format import FORMAT
from rune.ports.journal import ExecutionRecord
from tests.support.services.databases import dsn_of, ready

GO = SignalReceived(1, "k1", "go")


async def _record(dsn: str, *facts: Fact) -> list[Fact]:
    """Record facts one by one, check what the journal holds then, and return its answers."""
    async with postgres(dsn) as opened:
        await opened.journal.save_definition("h", b"{}")
        accepted = ExecutionRecord(id="x1", workflow="w", hash="h", at=0, input=Inline(b"{}"), format=FORMAT)
        await opened.journal.accept(accepted)
        answers = [(await opened.journal.record("x1", [each]))[0] for each in (GO, *facts)]
        held = [each.fact for each in await opened.journal.facts("x1")]
        assert held == [fact for fact, answer in zip((GO, *facts), answers, strict=True) if answer == fact]
        return answers[1:]


def test_first_of_two_results_with_same_signal_is_kept(tmp_path: pathlib.Path) -> None:
    ready()
    first, second = (NodeResult(node, (), 2, "ok", signal="k1") for node in (1, 2))

    assert asyncio.run(_record(dsn_of(tmp_path), first, second)) == [first, first]


def test_failed_attempt_consumes_its_signal(tmp_path: pathlib.Path) -> None:
    ready()
    attempt = AttemptFailed(1, (), 2, 1, Error("BROKEN", "failed on purpose"), signal="k1")
    other = NodeResult(2, (), 3, "ok", signal="k1")

    assert asyncio.run(_record(dsn_of(tmp_path), attempt, other)) == [attempt, attempt]


def test_results_with_other_signals_are_kept(tmp_path: pathlib.Path) -> None:
    ready()
    first = NodeResult(1, (), 2, "ok", signal="k1")
    second = NodeResult(2, (), 2, "ok", signal="k2")
    third = NodeResult(3, (), 2, "ok")

    assert asyncio.run(_record(dsn_of(tmp_path), first, second, third)) == [first, second, third]
