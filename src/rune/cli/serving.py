"""What `rune serve` does once its arguments are understood."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from msgspec.structs import replace

from rune.cli.problems import FOUND_WRONG, refuse_error
from rune.cli.stopping import Stop
from rune.compose import NotOnThisBackend, reader, running_engine
from rune.errors import RuneError
from rune.nodes.inuse import IN_USE
from rune.settings import Settings, load_settings
from rune.telemetry.log import set_up_log

_HINTS = {"NEEDS_MIGRATION": "run `rune migrate`"}


def take_part(roles: frozenset[str], changed: Callable[[Settings], Settings]) -> int:
    """Until somebody wants it to stop; answers the exit code."""
    return _taking_part(changed, lambda settings: _until_stopped(settings, roles))


def answer(host: str, port: int, changed: Callable[[Settings], Settings]) -> int:
    """Answer the API until somebody wants it to stop; answers the exit code."""
    return _taking_part(changed, lambda settings: _api_until_stopped(settings, host, port))


def _taking_part(
    changed: Callable[[Settings], Settings], work: Callable[[Settings], Coroutine[Any, Any, int]]
) -> int:
    try:
        settings = changed(serving_settings())
        keep_log(settings)
        if not settings.clustered:
            raise NotOnThisBackend(
                "`rune serve` takes part in a cluster; set RUNE_JOURNAL=postgresql://… and RUNE_STATE=redis://…,"
                " or use `rune run` or `rune up` on the embedded backend"
            )
        return quick_loop(work(settings))
    except RuneError as error:
        return refuse_error(error, as_json=False, hint=_HINTS.get(error.code, ""))


def serving_settings() -> Settings:
    """The settings of a process that serves: it asks nobody else, whatever commands beside it do."""
    return replace(load_settings(), url="")


def keep_log(settings: Settings, level: str = "info") -> None:
    """Write the log as the settings say; `level`: from where on, where they say nothing."""
    set_up_log(settings.log, settings.log_level or level, IN_USE.fields)


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
        async with AsyncExitStack() as stack:
            vitals = None
            if settings.health_port:
                from rune.compose.answering import health  # noqa: PLC0415 - needs the extra of servers

                vitals = await stack.enter_async_context(health(settings))
            engine = await stack.enter_async_context(running_engine(settings, roles=roles))
            if vitals is not None:
                await stack.enter_async_context(vitals.of(engine))
            print(f"{' and '.join(sorted(roles))} {engine.name} is ready", flush=True)
            either: set[asyncio.Future[Any]] = {stop.asked, engine.broken}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            print(f"{engine.name} stops: {engine.busy} nodes under way", flush=True)
            stop.let_go()  # a second signal ends the process
            return FOUND_WRONG if engine.broken.done() else 0  # whoever looks after it may start it again


async def _api_until_stopped(settings: Settings, host: str, port: int) -> int:
    from rune.compose.serving import serve  # noqa: PLC0415 - needs the extra of servers

    with Stop() as stop:
        async with running_engine(settings, roles=frozenset({"api"})) as engine, reader(settings) as opened:
            await serve(
                settings,
                engine,
                opened,
                host,
                port,
                key=settings.api_key,
                stop=stop.asked,
                ready=lambda url: print(f"api {engine.name} at {url} is ready", flush=True),
            )
            stop.let_go()
    return 0
