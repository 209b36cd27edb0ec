"""Whether work grows in proportion to its input, measured in CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable

_FACTOR = 8
_TOLERANCE = 4
_NOISE_S = 0.1


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Assert that eight times the input takes at most about eight times as long; quadratic work takes 64 times."""
    short = min(_cpu_seconds(work, size) for _ in range(3))
    long = min(_cpu_seconds(work, _FACTOR * size) for _ in range(2))
    assert long <= _FACTOR * _TOLERANCE * short + _NOISE_S, (short, long)


def _cpu_seconds(work: Callable[[int], object], size: int) -> float:
    began = time.thread_time()
    work(size)
    return time.thread_time() - began
