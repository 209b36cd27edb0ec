"""What `rune serve` does once its arguments are understood."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from rune.cli.problems import refuse_error
from rune.cli.stopping import Stop
from rune.compose import NotOnThisBackend, running_engine
from rune.errors import RuneError
from rune.settings import Settings, load_settings

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_HINTS = {"NEEDS_MIGRATION": "run `rune migrate`"}


def take_part(roles: frozenset[str], changed: Callable[[Settings], Settings]) -> int:
    """Until somebody wants it to stop; answers the exit code."""
    logging.basicConfig(level=logging.INFO, format=FORMAT, stream=sys.stderr)
    try:
        settings = changed(load_settings())
        if not settings.clustered:
            raise NotOnThisBackend(
                "`rune serve` takes part in a cluster; set RUNE_JOURNAL=postgresql://… and RUNE_STATE=redis://…,"
                " or use `rune run` on the embedded backend"
            )
        return quick_loop(_until_stopped(settings, roles))
    except RuneError as error:
        return refuse_error(error, as_json=False, hint=_HINTS.get(error.code, ""))


def quick_loop(work: Coroutine[Any, Any, int]) -> int:
    """Run something on the fastest loop there is."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _until_stopped(settings: Settings, roles: frozenset[str]) -> int:
    with Stop() as stop:
        async with running_engine(settings, roles=roles) as engine:
            print(f"{' and '.join(sorted(roles))} {engine.name} is ready", flush=True)
            await stop.asked
            print(f"{engine.name} stops: {engine.busy} nodes under way", flush=True)
            stop.let_go()  # a second signal ends the process
    return 0
