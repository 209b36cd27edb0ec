"""Work that the engine could do in addition; `tests/integration/counts` must notice each kind of it."""

from __future__ import annotations

from typing import Any

from tests.faults.change import replace
from tests.faults.fault import Fault, fault

_TESTS = "tests/integration/counts/test_counts.py::test_"
_EMBEDDED = _TESTS + "embedded_engine_does_as_much_as_before"


def _in_product(function: Any, original: Any) -> Any:
    """Let a function count as one of the module of another."""
    function.__code__ = function.__code__.replace(co_filename=original.__code__.co_filename)
    return function


def _call(step: Any) -> Any:
    def changed(*arguments: Any, **options: Any) -> Any:
        return step(*arguments, **options)

    return _in_product(changed, step)


def _await(handle: Any) -> Any:
    async def pause() -> None:
        pass

    pause = _in_product(pause, handle)

    async def changed(worker: Any, *arguments: Any) -> Any:
        await pause()
        return await handle(worker, *arguments)

    return changed


def _select(write_starts: Any) -> Any:
    def changed(db: Any, starts: Any) -> None:
        write_starts(db, starts)
        for _ in starts:
            db.execute("SELECT 1").fetchall()

    return changed


def _get(handle: Any) -> Any:
    async def changed(worker: Any, *arguments: Any) -> Any:
        await worker._executor._state._client.call("GET", "x")
        return await handle(worker, *arguments)

    return changed


_HANDLE = "rune.runtime.worker.worker:Worker._handle_token"

ELSEWHERE: dict[str, Fault] = {
    "counts-call": fault(
        f"{_EMBEDDED}[chain-async]", replace("rune.core.execution.step:decision_for_fact", _call)
    ),
    "counts-call-pure": fault(
        f"{_EMBEDDED}[fan-10k]", replace("rune.core.execution.step:decision_for_fact", _call)
    ),
    "counts-await": fault(f"{_EMBEDDED}[fan-effect-10k]", replace(_HANDLE, _await)),
    "counts-statement": fault(
        f"{_EMBEDDED}[one-node]", replace("rune.adapters.sqlite.database:write_starts", _select)
    ),
    "counts-command": fault(
        _TESTS + "cluster_calls_its_servers_as_often_as_before[redis]", replace(_HANDLE, _get)
    ),
}
