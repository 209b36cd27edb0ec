"""Where expressions are evaluated, and how long they may take there."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rune.core.expr import Meter, Names, TimeBudgetError, compile_expression
from rune.core.expr.budget import METER
from rune.runtime.worker.evaluator import INLINE_NS, MIN_INLINE_NS, Evaluator, NeedsThread

NAMES = Names(frozenset(), {})
ENDLESS = "sum([1 for a in $trigger for b in range(40)])"


def evaluation(source: str, payload: Any) -> Any:
    expression = compile_expression(source, NAMES)
    return lambda meter: (
        threading.current_thread().name,
        expression.evaluate({"$trigger": payload, METER: meter}),
    )


def test_a_short_evaluation_stays_in_the_event_loop() -> None:
    meter = Evaluator().inline()
    assert evaluation("len($trigger) + 1", [1, 2])(meter)[1] == 3
    assert meter.left > INLINE_NS * 0.99


def test_a_long_evaluation_leaves_the_event_loop_and_ends_in_a_thread() -> None:
    async def go() -> tuple[str, int]:
        evaluator = Evaluator()
        work = evaluation("sum($trigger)", list(range(200_000)))
        with pytest.raises(NeedsThread):
            work(evaluator.inline())
        found: tuple[str, int] = await evaluator.in_thread(work)
        evaluator.close()
        assert evaluator.moved == 1
        return found

    thread, value = asyncio.run(go())
    assert thread.startswith("rune-evaluation")
    assert value == sum(range(200_000))


def test_the_limit_is_cpu_time_of_the_thread() -> None:
    async def go() -> None:
        evaluator = Evaluator(limit_ms=50)
        with pytest.raises(TimeBudgetError, match="limit: 50 ms") as refused:
            await evaluator.in_thread(evaluation(ENDLESS, list(range(200_000))))
        assert refused.value.code == "BUDGET_EXCEEDED"
        evaluator.close()

    asyncio.run(go())


def test_an_evaluation_that_nobody_waits_for_is_stopped() -> None:
    async def go() -> None:
        evaluator = Evaluator(limit_ms=600_000)
        ended = threading.Event()
        work = evaluation(ENDLESS, list(range(900_000)))

        def noted(meter: Meter) -> Any:
            try:
                return work(meter)
            finally:
                ended.set()

        task = asyncio.create_task(evaluator.in_thread(noted))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        evaluator.close()
        # It may not have begun; if it has, it ends long before its limit.
        await asyncio.to_thread(ended.wait, 30)

    asyncio.run(asyncio.wait_for(go(), 60))


def test_evaluations_of_one_turn_share_an_allowance() -> None:
    async def go() -> None:
        evaluator = Evaluator()
        meter = evaluator.inline()
        meter.charge(INLINE_NS - 1)
        evaluator.settle(meter, INLINE_NS)
        assert evaluator.inline().left == MIN_INLINE_NS
        await asyncio.sleep(0)
        assert evaluator.inline().left == INLINE_NS

    asyncio.run(go())
