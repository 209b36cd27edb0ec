"""Faults of items that run in chunks; their tests are in `tests/integration/cluster` and `tests/contract`."""

from __future__ import annotations

from typing import Any

from tests.faults.change import edit, replace
from tests.faults.fault import Fault, fault
from tests.faults.split import reopen_ended_item

_CHUNKS = "rune.runtime.worker.item_chunks:ItemChunks"
_TESTS = "tests/integration/cluster/test_item_chunks.py::test_"


def _acknowledge_first(original: Any) -> Any:
    """Acknowledge the items of a commit before they are recorded."""

    async def commit(chunks: Any, data: Any, chunk: Any, runs: Any) -> None:
        for each in runs:
            await chunks._queue.ack(each.delivery)
        await original(chunks, data, chunk, runs)

    return commit


def _ignore_stored(original: Any) -> Any:
    """Take the own facts for those that are stored."""

    async def record_all(journal: Any, execution: str, runs: Any) -> Any:
        await original(journal, execution, runs)
        return list(runs)

    return record_all


ELSEWHERE: dict[str, Fault] = {
    "chunk-ack": fault(
        _TESTS + "items_are_acknowledged_after_they_are_recorded_and_applied[embedded]",
        replace(_CHUNKS + "._commit", _acknowledge_first),
    ),
    "chunk-unapplied": fault(
        _TESTS + "items_are_committed_together_with_a_fact_each[embedded]",
        edit(
            _CHUNKS + "._commit",
            ("[each.decisions for each in recorded]", "[each.decisions for each in recorded[1:]]"),
        ),
        hangs=True,
    ),
    "chunk-twice": fault(
        "tests/contract/test_sqlite.py::TestState::test_item_in_two_chunks_is_counted_once",
        replace("rune.core.execution.transition:apply", reopen_ended_item),
        edit(
            "rune.core.execution.transition:Transition._collect_item",
            ("node.index in enclosing.done or fan.marks[place]", "node.index in enclosing.done"),
        ),
    ),
    "chunk-stored": fault(
        _TESTS + "result_that_another_worker_recorded_is_kept[embedded]",
        replace("rune.adapters.sqlite.journal:SqliteJournal.record_all", _ignore_stored),
    ),
    "chunk-lost": fault(
        _TESTS + "items_of_a_chunk_that_cannot_be_recorded_are_run_again[embedded]",
        edit(
            "rune.runtime.worker.worker:Worker._handle_item",
            ("await chunks.handle([delivery, *more])", "await chunks.handle([delivery, *more]) and []"),
        ),
        hangs=True,
    ),
    "chunk-failed": fault(
        _TESTS + "failing_items_of_a_chunk_are_listed_as_errors[embedded]",
        edit(_CHUNKS + "._run_some", ("chunk.leave(delivery, claim)", "chunk.settle(delivery)")),
        hangs=True,
    ),
    "chunk-limit": fault(
        _TESTS + "limit_of_parallel_nodes_is_kept[embedded]",
        edit(_CHUNKS + ".limit", ("found[1].max_parallel is not None", "False")),
    ),
    "chunk-shared": fault(
        _TESTS + "chunks_are_small_while_other_executions_are_active[embedded]",
        edit(_CHUNKS + ".limit", ("min(self._size, MAX_SHARED) if shared else self._size", "self._size")),
    ),
}
