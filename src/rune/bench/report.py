"""What a measure reports."""

from __future__ import annotations

import resource
from pathlib import Path

import msgspec


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measure. `limit` is what a loop without an engine does in the same run, `ratio` the rate over it."""

    name: str
    rate: float | None = None
    unit: str = ""
    limit: float | None = None
    ratio: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    rss_mb: float | None = None
    goal: str = ""
    met: bool | None = None
    details: dict[str, float | int | str] = {}


def resident_mb() -> float:
    """Memory of this process now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
