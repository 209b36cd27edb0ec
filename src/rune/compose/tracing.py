"""Tracing: where spans go, if anywhere."""

from __future__ import annotations

import platform

import rune
from rune.errors import RuneError
from rune.settings import Settings
from rune.telemetry.trace import Tracer


class NotTraced(RuneError):
    """Traces are wanted, and what sends them is not installed."""

    code = "NOT_TRACED"


def tracer(settings: Settings) -> Tracer | None:
    """The tracer that the settings ask for; None costs nothing."""
    if not settings.collector:
        return None
    try:
        from rune.telemetry.export import Exporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise NotTraced(
            f"traces go to {settings.collector}, but `{error.name}` is missing: install `rune-engine[telemetry]`,"
            " or set RUNE_TRACES=off"
        ) from None
    about = {"service.version": rune.__version__, "host.name": platform.node()}
    return Tracer(Exporter(settings.collector, about), settings.trace_share)
