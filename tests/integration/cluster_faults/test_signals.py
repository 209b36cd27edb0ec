"""A signal is taken once, also if two states of one execution gave it to different tokens."""

from __future__ import annotations

import asyncio
import pathlib

from rune.adapters.postgres.stores import postgres
from rune.core.execution.fact import AttemptFailed, Fact, NodeResult, SignalReceived
from rune.core.execution.outcome import Error
from rune.ports.journal import FORMAT, ExecutionRecord
from tests.support.services.databases import dsn_of, ready

GO = SignalReceived(1, "k1", "go")


async def _written(dsn: str, *facts: Fact) -> list[Fact]:
    """What the journal answers to each, one after the other, and what it holds then."""
    async with postgres(dsn) as opened:
        await opened.journal.save_definition("h", b"{}")
        accepted = ExecutionRecord(id="x1", workflow="w", hash="h", at=0, input=b"{}", format=FORMAT)
        await opened.journal.accept(accepted)
        answers = [(await opened.journal.record("x1", [each]))[0] for each in (GO, *facts)]
        held = [each.fact for each in await opened.journal.facts("x1")]
        assert held == [fact for fact, answer in zip((GO, *facts), answers, strict=True) if answer == fact]
        return answers[1:]


def test_of_two_results_that_name_one_signal_the_first_is_kept(tmp_path: pathlib.Path) -> None:
    ready()
    first, second = (NodeResult(node, (), 2, "ok", signal="k1") for node in (1, 2))

    assert asyncio.run(_written(dsn_of(tmp_path), first, second)) == [first, first]


def test_a_failed_try_takes_its_signal_along(tmp_path: pathlib.Path) -> None:
    ready()
    tried = AttemptFailed(1, (), 2, 1, Error("BROKEN", "told to"), signal="k1")
    other = NodeResult(2, (), 3, "ok", signal="k1")

    assert asyncio.run(_written(dsn_of(tmp_path), tried, other)) == [tried, tried]


def test_another_signal_is_nobody_s(tmp_path: pathlib.Path) -> None:
    ready()
    first = NodeResult(1, (), 2, "ok", signal="k1")
    second = NodeResult(2, (), 2, "ok", signal="k2")
    third = NodeResult(3, (), 2, "ok")

    assert asyncio.run(_written(dsn_of(tmp_path), first, second, third)) == [first, second, third]
