"""`rune serve` and `rune up`: long-running processes.

`rune serve` runs one role of a cluster; `rune up` runs API, worker and scheduler in one process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, closing, nullcontext
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from msgspec.structs import replace

from rune import bootstrap
from rune.bootstrap import (
    UnsupportedByBackendError,
    connected,
    open_reader,
    running_engine,
    wait_for_stores,
)
from rune.cli.arguments import Nodes, with_modules
from rune.cli.event_loop import run_through
from rune.cli.follow import StopSignal, print_notice
from rune.cli.output import INTERRUPTED, VIOLATIONS, print_error, print_json
from rune.core.definition.model import canonical
from rune.core.start_keys import EXAMPLE as EXAMPLE_KEY
from rune.documents.loader import check_document, load_document
from rune.errors import RuneError
from rune.nodes.redaction import SECRETS_IN_USE
from rune.ports.processes import FileInUseError, NoOwnerError
from rune.ports.workflows import version_source
from rune.runtime.engine import Engine
from rune.runtime.lifecycle.launcher import StartOptions
from rune.settings import Settings, load_settings
from rune.telemetry.logs import set_up_log

T = TypeVar("T")

log = logging.getLogger("rune.up")

EXAMPLE = "approval"
"""The example that the first start on a new database starts."""

FILE_POLL_S = 0.1
"""Time between two attempts to own a file that a short command holds."""

EXAMPLE_INPUT = b'{"order": 1, "amount": 2500}'

serve = typer.Typer(
    name="serve",
    help="Run one process of a cluster: a worker, a scheduler or the API.",
    no_args_is_help=True,
)

HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=0,
        max=65_535,
        help="Port for /healthz, /readyz, /version and /metrics. Default: none.",
    ),
]


Quarantined = Annotated[
    list[str] | None,
    typer.Option(
        "--quarantine",
        metavar="ID",
        help="Pause this execution before anything runs; repeatable. `rune resume` continues it.",
    ),
]


def _quarantining(settings: Settings, named: list[str] | None) -> Settings:
    return replace(settings, quarantine=(*settings.quarantine, *(named or ())))


@serve.command()
def worker(
    queues: Annotated[
        str | None,
        typer.Option(
            "--queues", help="Queues to consume, separated by commas. Default: `default`.", show_default=False
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, max=10_000, help="Maximum number of nodes running at the same time."),
    ] = None,
    nodes: Nodes = None,
    health_port: HealthPort = None,
    quarantine: Quarantined = None,
) -> None:
    """Run nodes until stopped.

    On SIGTERM the worker accepts no new nodes and lets running ones finish within
    the grace period. Any number of workers may run, on any number of machines. A
    node with `queue: gpu` runs only on a worker that consumes that queue.

    At its start the worker waits up to RUNE_START_TIMEOUT (60 s) for stores that
    are unreachable or being migrated.

    Exit codes: 0 stopped; 1 engine failure; 2 invalid configuration; 3 a store
    was not available within that time.

    Example: rune serve worker --queues gpu,default --slots 8
    """

    def changed(settings: Settings) -> Settings:
        named = settings.queues if queues is None else tuple(each.strip() for each in queues.split(","))
        return replace(
            _quarantining(with_modules(settings, nodes), quarantine),
            queues=named,
            slots=slots or settings.slots,
            health_port=settings.health_port if health_port is None else health_port,
        )

    raise typer.Exit(serve_roles(frozenset({"worker"}), changed))


@serve.command()
def scheduler(nodes: Nodes = None, health_port: HealthPort = None) -> None:
    """Fire timers and schedules, resend lost work and clean up, until stopped.

    Several schedulers share the work. A scheduler needs the same custom nodes
    as the workers.

    Example: rune serve scheduler --nodes acme.rune_nodes
    """

    def changed(settings: Settings) -> Settings:
        return replace(
            with_modules(settings, nodes),
            health_port=settings.health_port if health_port is None else health_port,
        )

    raise typer.Exit(serve_roles(frozenset({"scheduler"}), changed))


@serve.command()
def api(
    host: Annotated[
        str, typer.Option("--host", help="Address to bind. Anything but loopback requires an API key.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", "-p", envvar="RUNE_PORT", min=0, max=65_535, help="Port to bind; 0 chooses a free one."
        ),
    ] = 8080,
    nodes: Nodes = None,
) -> None:
    """Serve the API until stopped.

    Any number of API processes may run. They run no nodes. Without an API key
    the server binds only to loopback and requires no authentication. To bind to
    other addresses, RUNE_API_KEY must have at least 24 characters. /healthz,
    /readyz and /version are served on the same port.

    Examples:
      rune serve api
      RUNE_API_KEY=$(openssl rand -hex 32) rune serve api --host 0.0.0.0
    """

    def changed(settings: Settings) -> Settings:
        return with_modules(settings, nodes)

    raise typer.Exit(serve_api(host, port, changed))


_HINTS = {"NEEDS_MIGRATION": "run `rune migrate`"}


def serve_roles(roles: frozenset[str], changed: Callable[[Settings], Settings]) -> int:
    """Run the given roles until stopped; return the exit code."""
    return _run_in_cluster(changed, lambda settings: _run_roles(settings, roles))


def serve_api(host: str, port: int, changed: Callable[[Settings], Settings]) -> int:
    """Serve the API of a cluster until stopped; return the exit code."""
    return _run_in_cluster(changed, lambda settings: _run_api(settings, host, port))


def _run_in_cluster(
    changed: Callable[[Settings], Settings], work: Callable[[Settings], Coroutine[Any, Any, int]]
) -> int:
    try:
        settings = changed(serving_settings())
        configure_log(settings)
        if not settings.clustered:
            raise UnsupportedByBackendError(
                "`rune serve` needs a cluster: set RUNE_JOURNAL=postgresql://… and RUNE_STATE=redis://…,"
                " or use `rune run` or `rune up` with the embedded backend"
            )
        return run_on_uvloop(work(settings))
    except RuneError as error:
        return print_error(error, as_json=False, hint=_HINTS.get(error.code, ""))


def serving_settings() -> Settings:
    """Load the settings without RUNE_URL: a server process uses the stores directly."""
    return replace(load_settings(), url="")


def configure_log(settings: Settings, level: str = "info") -> None:
    """Configure logging by the settings; `level` applies if they set none."""
    set_up_log(settings.log, settings.log_level or level, SECRETS_IN_USE.fields)


def run_on_uvloop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return run_through(work)
    return run_through(work, uvloop.new_event_loop)


async def _run_roles(settings: Settings, roles: frozenset[str]) -> int:
    with StopSignal() as stop:
        async with AsyncExitStack() as stack:
            health = None
            if settings.health_port:
                from rune.bootstrap.http import serve_health  # noqa: PLC0415 - slow to import

                health = await stack.enter_async_context(serve_health(settings))
            if not await _stores_ready(settings, stop):
                return 0
            if "worker" in roles:
                _import_node_modules()
            engine = await stack.enter_async_context(running_engine(settings, roles=roles))
            if health is not None:
                await stack.enter_async_context(health.of(engine))
            print(f"{' and '.join(sorted(roles))} {engine.name} is ready", flush=True)
            either: set[asyncio.Future[Any]] = {stop.requested, engine.broken}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            print(f"{engine.name} is stopping: {engine.busy} nodes still running", flush=True)
            stop.restore_handlers()  # a second signal ends the process
            return (
                VIOLATIONS if engine.broken.done() else 0
            )  # a failure lets the supervisor restart the process


def _import_node_modules() -> None:
    """Import what nodes need before the worker receives. Commands that end at once import what they run."""
    from rune.nodes.registry import import_modules  # noqa: PLC0415 - slow to import

    import_modules()


async def _stores_ready(settings: Settings, stop: StopSignal) -> bool:
    """Wait for the stores; return False if the process was stopped meanwhile."""
    waiting = asyncio.create_task(wait_for_stores(settings))
    either: set[asyncio.Future[Any]] = {stop.requested, waiting}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return False
    waiting.result()
    return True


async def _run_api(settings: Settings, host: str, port: int) -> int:
    from rune.bootstrap.http import serve  # noqa: PLC0415 - slow to import

    with StopSignal() as stop:
        if not await _stores_ready(settings, stop):
            return 0
        async with (
            running_engine(settings, roles=frozenset({"api"})) as engine,
            open_reader(settings, engine.plans.catalogue) as opened,
        ):
            await serve(
                settings,
                engine,
                opened,
                host,
                port,
                key=settings.api_key,
                stop=stop.requested,
                ready=lambda url: print(f"api {engine.name} at {url} is ready", flush=True),
            )
            stop.restore_handlers()
    return 0


def up(
    host: Annotated[
        str, typer.Option("--host", help="Address to bind. Anything but loopback requires an API key.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int,
        typer.Option(
            "--port", "-p", envvar="RUNE_PORT", min=0, max=65_535, help="Port to bind; 0 chooses a free one."
        ),
    ] = 8080,
    examples: Annotated[
        bool,
        typer.Option(
            "--examples/--no-examples",
            help="Deploy the example workflows on the first start, and start one (RUNE_RUN_EXAMPLE=false: none).",
        ),
    ] = True,
    quarantine: Quarantined = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document when the API is ready.")
    ] = False,
) -> None:
    """Serve the API and run executions in one process, until Ctrl-C.

    Without an API key the server binds only to loopback and requires no
    authentication. RUNE_API_KEY sets a key; to bind to other addresses it must
    have at least 24 characters.

    Examples:
      rune up
      rune up --port 0 --json
      rune up --quarantine x019a6c5f2a7c8f00d1e2f3a4b5c
      RUNE_API_KEY=$(openssl rand -hex 32) rune up --host 0.0.0.0
    """
    try:
        raise typer.Exit(_up(host, port, quarantine, examples=examples, as_json=as_json))
    except RuneError as error:
        taken = isinstance(error, FileInUseError)
        hint = "stop that process, or set RUNE_HOME to another folder" if taken else ""
        raise typer.Exit(print_error(error, as_json=as_json, hint=hint)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _up(host: str, port: int, quarantine: list[str] | None, *, examples: bool, as_json: bool) -> int:
    from rune.bootstrap.http import loop_factory  # noqa: PLC0415 - slow to import

    settings = _quarantining(serving_settings(), quarantine)
    configure_log(settings, "warning")
    key = settings.api_key
    work = _serve_embedded(settings, host, port, key, examples=examples, as_json=as_json)
    return run_through(work, loop_factory())


async def _serve_embedded(
    settings: Settings, host: str, port: int, key: str, *, examples: bool, as_json: bool
) -> int:
    from rune.bootstrap.http import bind, check_address, serve  # noqa: PLC0415 - slow to import

    fresh = not bootstrap.exists(settings)
    bound = None
    if fresh:  # before the file is created, so that the next start takes it for a new one
        check_address(host, key=key, locked=bool(key))
        bound = bind(host, port)
    with nullcontext() if bound is None else closing(bound), StopSignal() as stop:
        if not await _stores_ready(settings, stop):
            return 0
        _import_node_modules()
        async with AsyncExitStack() as stack:
            engine = await _own(settings, stack, stop)
            if engine is None:
                return 0
            opened = await stack.enter_async_context(open_reader(settings, engine.plans.catalogue))
            locked = bool(key) or await engine.backend.keys.exist()
            check_address(host, key=key, locked=locked)
            stored = await _deploy_examples(engine) if fresh and examples else 0
            example = await _start_example(engine) if stored and settings.run_example else None
            await serve(
                settings,
                engine,
                opened,
                host,
                port,
                key=key,
                stop=stop.requested,
                bound=bound,
                ready=lambda url: _print_address(url, settings, stored, example, locked, as_json=as_json),
            )
    return 0


async def _own(settings: Settings, stack: AsyncExitStack, stop: StopSignal) -> Engine | None:
    """Run an engine that owns the database file; return None if a signal arrives before it does.

    A process that runs executions keeps the file for as long as it likes; it is known by its socket. Any other that
    holds the file writes a change, starts or stops, and is waited for.
    """
    deadline = time.monotonic() + settings.start_timeout
    waiting = False
    while True:
        try:
            return await stack.enter_async_context(running_engine(settings))
        except FileInUseError as taken:
            if await _runs_executions(settings) or time.monotonic() > deadline:
                raise
            if not waiting:
                print_notice(f"{taken.message}, waiting for it")
                waiting = True
        await asyncio.wait([stop.requested], timeout=FILE_POLL_S)
        if stop.requested.done():
            return None


async def _runs_executions(settings: Settings) -> bool:
    try:
        async with connected(settings):
            return True
    except NoOwnerError:
        return False


def _print_address(
    url: str, settings: Settings, stored: int, example: str | None, locked: bool, *, as_json: bool
) -> None:
    if as_json:
        document = {"url": url, "api": f"{url}/api/v1", "pid": os.getpid(), "examples": stored}
        print_json({**document, "example": example, "key": locked})
        return
    print(f"Rune is up: {url}")
    print(f"  API       {url}/api/v1 (described in {url}/api/v1/openapi.json)")
    print(f"  data      {settings.data_place}")
    print(
        "  access    with an API key"
        if locked
        else "  access    from this machine only, without authentication"
    )
    if stored:
        print(f"  examples  {stored} workflows deployed from {_examples_folder()}; for example:")
        print(
            f"    curl -X POST {url}/api/v1/workflows/hello/executions"
            ' -H \'Content-Type: application/json\' -d \'{"input": {"name": "World"}}\''
        )
    if example is not None:
        print(f"  running   the example {EXAMPLE}, which waits for a decision: {url}/executions/{example}")
    print("Press Ctrl-C to stop.", flush=True)


async def _deploy_examples(engine: Engine) -> int:
    """Deploy the example workflows whose node types are installed; return their number."""
    stored = 0
    for path in sorted(_examples_folder().glob("*/*.yaml")):
        verdict = check_document(load_document(path), engine.plans.catalogue)
        if verdict.valid and verdict.definition is not None:
            source = None if verdict.source is None else version_source(verdict.source)
            await engine.services.workflows.deploy(canonical(verdict.definition), source=source)
            stored += 1
    return stored


async def _start_example(engine: Engine) -> str | None:
    """Start an example that waits for a person, so that the page opens on an execution; return its id. It uses no
    network and nothing waits for it."""
    options = StartOptions(key=f"{EXAMPLE_KEY}{EXAMPLE}", labels={"example": EXAMPLE})
    try:
        service = engine.services.executions
        return (await service.start(EXAMPLE, None, EXAMPLE_INPUT, options, own_key=True)).id
    except RuneError as error:
        log.warning("the example %s was not started: %s", EXAMPLE, error)
        return None


def _examples_folder() -> Path:
    """Return the examples of the installed package, or of the repository in a development install."""
    with as_file(files("rune")) as package:
        shipped = package / "examples"
    return shipped if shipped.is_dir() else package.resolve().parents[1] / "examples"


if __name__ == "__main__":
    typer.run(up)
