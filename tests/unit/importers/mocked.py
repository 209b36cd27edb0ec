"""Runs imported documents on the embedded engine, with mocks in place of nodes that use the network."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from rune.core.execution.outcome import Error, Failure, Outcome, Output
from rune.nodes.base import NodeCall, RunnableType
from rune.nodes.registry import Registry, standard_registry
from rune.testing.harness import harness


class Mocks:
    """What mocked nodes return, by node id, and the parameters that they were called with.

    What a node returns is a value, a list of values for its calls, or a function of the parameters of a call.
    """

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._results = results
        self.calls: dict[str, list[dict[str, Any]]] = {}

    def run(self, call: NodeCall[Any]) -> Outcome:
        parameters = {
            name: getattr(call.parameters, name)
            for name in call.parameters.__struct_fields__
            if name in {"url", "method", "body", "query", "headers", "to", "subject", "workflow", "input"}
        }
        self.calls.setdefault(call.node, []).append(parameters)
        result = self._results.get(call.node)
        if isinstance(result, list):
            result = result[min(len(self.calls[call.node]), len(result)) - 1]
        if callable(result):
            result = result(parameters)
        if isinstance(result, dict) and result.keys() == {"fails"}:
            return Failure(Error(result["fails"], "mocked failure"))
        if result is None:
            return Failure(Error("NO_MOCK", f"{call.node} has no mock"))
        return Output(result)

    def registry(self) -> Registry:
        return Registry(self._mocked(kind) for kind in standard_registry())

    def _mocked(self, kind: RunnableType) -> RunnableType:
        if kind.type.name not in {"http", "smtp", "workflow"}:
            return kind
        return replace(kind, run=self.run, type=replace(kind.type, launches=False, suspends=False))


def run_mocked(
    document: dict[str, Any], payload: Any, results: Mapping[str, Any], signals: Mapping[str, Any]
) -> tuple[dict[str, Any], Mocks]:
    """Run a document to its end, with signals that are sent before a node waits for them; return its result document
    and the mocks."""
    mocks = Mocks(results)

    async def go(folder: str) -> dict[str, Any]:
        async with harness(Path(folder), registry=mocks.registry()) as engine:
            started = await engine.start(document, payload, fake_time=True)
            for name, value in signals.items():
                data = msgspec.json.encode(value)
                await engine.engine.services.executions.signal(started.id, name, data)
            await started.end()
            return await started.document()

    with tempfile.TemporaryDirectory(prefix="rune-") as folder:
        return asyncio.run(go(folder)), mocks
