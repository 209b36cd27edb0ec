"""Faults of a backlog on RabbitMQ, which get it more than one message per token; their tests are in
`tests/integration/cluster_faults` and `tests/unit/runtime`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.change import replace
from tests.faults.fault import Fault, fault

_FILTER = "rune.runtime.state_wrapper:LostTokensFilter"


def _unfiltered(name: str) -> Callable[[Any], Any]:
    """Send tokens again although their messages may still be in the queue."""

    def make(original: Any) -> Any:
        async def changed(self: Any, limit: int) -> Any:
            return await getattr(self._state, name)(limit)

        return changed

    return make


ELSEWHERE: dict[str, Fault] = {
    # Each loss of the state adds a copy of every token.
    "copies-after-loss": fault(
        "tests/integration/cluster_faults/test_backlog.py"
        "::test_backlog_does_not_grow_by_losses_and_is_served_after_them",
        replace(f"{_FILTER}.due_timers", _unfiltered("due_timers")),
    ),
    # Each minute adds one.
    "copies-by-age": fault(
        "tests/unit/runtime/test_lost_tokens_filter.py::test_only_tokens_whose_lane_has_passed_them_are_sent_again",
        replace(f"{_FILTER}.unclaimed_tokens", _unfiltered("unclaimed_tokens")),
    ),
}
