"""Runs random definitions on an engine and compares them with the oracle."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any

from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, NodeResult
from rune.core.execution.token import Path as Lineage
from rune.runtime.queries.history import History
from rune.runtime.value_refs import ValueNotLoaded
from rune.testing.harness import Harness, Run, harness
from tests.simulation.effect import sim_registry
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.generate import random_model
from tests.simulation.oracle.model import Model
from tests.simulation.oracle_check import EndedExecution, check_against_oracle

AT_ONCE = 40
DEADLINE = 120.0  # s after which an execution counts as hung
TIMED = ("wait", "timeout", "retry:succeeds", "retry:runs-out")


def needs_time(model: Model) -> bool:
    """Whether the model contains waits, timeouts or retries."""
    return bool(model.features.intersection(TIMED)) or any(node.retry for node in model.nodes)


async def run_seeds(folder: Path, seeds: range, **options: Any) -> list[str]:
    """Run seeds concurrently in one engine; return the differences, each with its seed."""
    found: list[str] = []
    async with harness(folder, registry=sim_registry(), **options) as engine:
        for first in range(seeds.start, seeds.stop, AT_ONCE):
            batch = range(first, min(first + AT_ONCE, seeds.stop))
            differences = await asyncio.gather(*(difference(engine, seed) for seed in batch))
            found += filter(None, differences)
    return found


async def difference(
    engine: Harness, seed: int, *, repeat: int = 1, deadline: float = DEADLINE
) -> str | None:
    """Run one seed, with each list of the start payload repeated; return how it differs from the oracle, or None."""
    model, start = random_model(seed)
    start = {name: value * repeat if type(value) is list else value for name, value in start.items()}
    try:
        run = await engine.start(to_document(model), start, fake_time=needs_time(model))
        end = await run.end(deadline)
        # In a thread: the check of many items takes seconds, in which other executions must not lose their leases.
        await asyncio.to_thread(check_against_oracle, await past_of(run, end, start), model)
    except TimeoutError:
        return f"seed {seed}: hung"
    except Exception:
        return f"seed {seed}: {traceback.format_exc(limit=-3)}"
    return None


async def past_of(run: Run, end: ExecutionEnded, start: Any) -> EndedExecution:
    """The journal of an execution, with its values loaded."""
    stored = await run.facts()
    ends = [row for row in stored if isinstance(row.fact, ExecutionEnded)]
    assert len(ends) == 1, f"{len(ends)} terminal rows"
    assert ends[0].fact == end, "the terminal row is not the one announced"
    facts = [row.fact for row in stored if not row.late and not isinstance(row.fact, ExecutionEnded)]
    history = await run.history()
    values: dict[tuple[int, Lineage], Any] = {}
    for fact in facts:
        if isinstance(fact, NodeResult) and fact.status == "ok":
            values[(fact.node, fact.path)] = await _value(history, fact)
    return EndedExecution(
        run.plan,
        [ExecutionStarted(run.accepted.at), *facts],
        end,
        start,
        end.at,
        lambda fact: values.get((fact.node, fact.path)),
    )


async def _value(history: History, fact: NodeResult) -> Any:
    reader, data = history._reader, history._data
    while True:
        try:
            return reader.output(fact)
        except ValueNotLoaded as missing:
            await data.load(missing.what, reader)
