"""Arrivals: executions that are being accepted. While they are, nobody else opens them."""

from __future__ import annotations

from collections.abc import Callable, Container


class Arrivals:
    """`loaded` are the executions in memory; `wake` has somebody look at those that did not get there."""

    def __init__(self, loaded: Container[str], wake: Callable[[], None]) -> None:
        self.loaded = loaded
        self.wake = wake
        self.under_way: set[str] = set()
        self.missed: list[str] = []

    def __contains__(self, execution: object) -> bool:
        return execution in self.under_way

    def arriving(self, execution: str) -> Arrival:
        """While this lasts the execution arrives."""
        return Arrival(self, execution)


class Arrival:
    """One of them; if it was not admitted, it is read back."""

    __slots__ = ("_arrivals", "_execution")

    def __init__(self, arrivals: Arrivals, execution: str) -> None:
        self._arrivals = arrivals
        self._execution = execution

    def __enter__(self) -> None:
        self._arrivals.under_way.add(self._execution)

    def __exit__(self, *failure: object) -> None:
        arrivals = self._arrivals
        arrivals.under_way.discard(self._execution)
        if self._execution not in arrivals.loaded:
            arrivals.missed.append(self._execution)
            arrivals.wake()
