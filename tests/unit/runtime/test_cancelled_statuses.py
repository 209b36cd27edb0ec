"""A run that loses its lease while the end of its execution publishes that it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rune.core.execution.fact import ExecutionEnded
from rune.ports.state import Fence
from rune.runtime.messaging.status_publisher import StatusPublisher

KEY = (1, ())


class LostLeases:
    async def renew(self, *_: object) -> bool:
        return False


class EndedMeanwhile:
    """Executions whose end publishes all their runs while a renewal reads them."""

    publisher: StatusPublisher

    async def end(self, execution: str) -> ExecutionEnded:
        return ExecutionEnded(5, "cancelled")

    async def get(self, execution: str) -> object:
        self.publisher._begun.pop(execution, None)
        return object()


def test_run_whose_end_was_published_meanwhile_is_published_once(caplog: pytest.LogCaptureFixture) -> None:
    executions = EndedMeanwhile()
    publisher = StatusPublisher(
        cast(Any, LostLeases()), cast(Any, None), cast(Any, executions), cast(Any, None)
    )
    executions.publisher = publisher
    publisher._begun["x"] = {KEY: (0, 1)}

    assert not asyncio.run(publisher.renew("x", *KEY, cast(Fence, 1)))
    assert caplog.text == ""
