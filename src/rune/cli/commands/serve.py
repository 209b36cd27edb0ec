"""`rune serve`: a process of a cluster that takes part until it is told to stop.

What `rune serve` does once its arguments are understood.

`rune up`: everything in one process: API, worker, scheduler, on the embedded backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from rune.bootstrap import UnsupportedByBackendError, open_reader, running_engine
from rune.cli.follow import StopSignal
from rune.cli.output import VIOLATIONS, refuse_error
from rune.errors import RuneError
from rune.nodes.redaction import SECRETS_IN_USE
from rune.settings import Settings, load_settings
from rune.telemetry.logs import set_up_log

if TYPE_CHECKING:
    from pathlib import Path

    from rune.runtime.engine import Engine

serve = typer.Typer(
    help="Take part in a cluster: run nodes, fire timers and look after what was lost, or answer the API.",
    no_args_is_help=True,
)

Nodes = Annotated[
    list[str] | None, typer.Option("--nodes", help="A Python module with custom nodes; may be given again.")
]
HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=0,
        max=65_535,
        help="Answer /healthz, /readyz, /version and /metrics here; 0: nowhere.",
        show_default="0",
    ),
]


@serve.command()
def worker(
    queues: Annotated[
        str | None,
        typer.Option(
            "--queues", help="The queues whose nodes it runs, separated by commas.", show_default="default"
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, max=10_000, help="Nodes that may be under way at once.")
    ] = None,
    nodes: Nodes = None,
    health_port: HealthPort = None,
) -> None:
    """Run nodes until stopped. SIGTERM: takes nothing more and lets what runs finish within the grace period.

    Any number of these may run, on any number of machines. A node with `queue: gpu` is run only by a worker of that
    queue. Exits 0 after a stop, 2 on a bad configuration, 3 when a store cannot be reached at the start.

    Example: rune serve worker --queues gpu,default --slots 8
    """
    from msgspec.structs import replace

    def changed(settings: Settings) -> Settings:
        named = settings.queues if queues is None else tuple(each.strip() for each in queues.split(","))
        return replace(
            settings,
            queues=named,
            slots=slots or settings.slots,
            nodes=(*settings.nodes, *(nodes or ())),
            health_port=settings.health_port if health_port is None else health_port,
        )

    raise typer.Exit(_serve_roles(frozenset({"worker"}), changed))


@serve.command()
def scheduler(nodes: Nodes = None, health_port: HealthPort = None) -> None:
    """Fire timers, send again what was lost, tidy up, until stopped. Several share the work.

    It has to know the custom nodes of the definitions that it looks after, as workers do.

    Example: rune serve scheduler --nodes acme.rune_nodes
    """
    from msgspec.structs import replace

    def changed(settings: Settings) -> Settings:
        return replace(
            settings,
            nodes=(*settings.nodes, *(nodes or ())),
            health_port=settings.health_port if health_port is None else health_port,
        )

    raise typer.Exit(_serve_roles(frozenset({"scheduler"}), changed))


@serve.command()
def api(
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; elsewhere than here it takes a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65_535, help="0 takes a free one.")] = 8080,
    nodes: Nodes = None,
) -> None:
    """Answer the API until stopped. Any number of these may run: each knows what the others were told.

    It runs no nodes. Without a key in RUNE_API_KEY it listens on this machine only, and asks for no login.
    /healthz, /readyz and /version are on the same port.

    Examples: rune serve api; RUNE_API_KEY=… rune serve api --host 0.0.0.0 --port 80
    """
    from msgspec.structs import replace

    def changed(settings: Settings) -> Settings:
        return replace(settings, nodes=(*settings.nodes, *(nodes or ())))

    raise typer.Exit(answer(host, port, changed))


def _serve_roles(roles: frozenset[str], changed: object) -> int:

    return take_part(roles, changed)  # type: ignore[arg-type]


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
            raise UnsupportedByBackendError(
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
    set_up_log(settings.log, settings.log_level or level, SECRETS_IN_USE.fields)


def quick_loop(work: Coroutine[Any, Any, int]) -> int:
    """Run something on the fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _until_stopped(settings: Settings, roles: frozenset[str]) -> int:
    with StopSignal() as stop:
        async with AsyncExitStack() as stack:
            vitals = None
            if settings.health_port:
                from rune.bootstrap.http import serve_health

                vitals = await stack.enter_async_context(serve_health(settings))
            engine = await stack.enter_async_context(running_engine(settings, roles=roles))
            if vitals is not None:
                await stack.enter_async_context(vitals.of(engine))
            print(f"{' and '.join(sorted(roles))} {engine.name} is ready", flush=True)
            either: set[asyncio.Future[Any]] = {stop.asked, engine.broken}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            print(f"{engine.name} stops: {engine.busy} nodes under way", flush=True)
            stop.let_go()  # a second signal ends the process
            return VIOLATIONS if engine.broken.done() else 0  # whoever looks after it may start it again


async def _api_until_stopped(settings: Settings, host: str, port: int) -> int:
    from rune.bootstrap.http import serve

    with StopSignal() as stop:
        async with (
            running_engine(settings, roles=frozenset({"api"})) as engine,
            open_reader(settings) as opened,
        ):
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


def up(
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; elsewhere than here it takes a key.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65_535, help="0 takes a free one.")] = 8080,
    examples: Annotated[
        bool, typer.Option("--examples/--no-examples", help="Store the examples at the first start.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document once it is up.")] = False,
) -> None:
    """Serve the API and run executions in one process, until Ctrl-C.

    It listens on this machine only and asks for no login. RUNE_API_KEY sets a key, and lets it listen elsewhere.

    Examples: rune up; rune up --port 0 --json; RUNE_API_KEY=… rune up --host 0.0.0.0
    """
    from rune.cli.output import INTERRUPTED, refuse_error
    from rune.errors import RuneError
    from rune.ports.processes import FileInUseError

    try:
        raise typer.Exit(_up(host, port, examples=examples, as_json=as_json))
    except RuneError as error:
        taken = isinstance(error, FileInUseError)
        hint = "stop that one, or set RUNE_HOME to a folder of its own" if taken else ""
        raise typer.Exit(refuse_error(error, as_json=as_json, hint=hint)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _up(host: str, port: int, *, examples: bool, as_json: bool) -> int:
    import asyncio

    from rune.bootstrap.http import loop_factory

    settings = serving_settings()
    keep_log(settings, "warning")
    key = settings.api_key
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve_embedded(settings, host, port, key, examples=examples, as_json=as_json))


async def _serve_embedded(
    settings: Settings, host: str, port: int, key: str, *, examples: bool, as_json: bool
) -> int:
    from rune.bootstrap import exists, open_reader, running_engine
    from rune.bootstrap.http import check_address, serve
    from rune.cli.follow import StopSignal

    fresh = not exists(settings)
    with StopSignal() as stop:
        async with running_engine(settings) as engine, open_reader(settings) as opened:
            locked = bool(key) or await engine.backend.keys.exist()
            check_address(host, locked=locked)
            stored = await _store_examples(engine) if fresh and examples else 0
            await serve(
                settings,
                engine,
                opened,
                host,
                port,
                key=key,
                stop=stop.asked,
                ready=lambda url: _tell(url, settings, stored, locked, as_json=as_json),
            )
    return 0


def _tell(url: str, settings: Settings, stored: int, locked: bool, *, as_json: bool) -> None:
    import os

    from rune.cli.output import print_json

    if as_json:
        print_json(
            {"url": url, "api": f"{url}/api/v1", "pid": os.getpid(), "examples": stored, "key": locked}
        )
        return
    print(f"Rune is up: {url}")
    print(f"  API       {url}/api/v1 (described in {url}/api/v1/openapi.json)")
    print(f"  data      {'on the cluster' if settings.clustered else settings.database}")
    print("  access    with a key" if locked else "  access    this machine only, no login")
    if stored:
        print(f"  examples  {stored} workflows were stored; for example:")
        print(
            f"    curl -X POST {url}/api/v1/workflows/hello/executions"
            ' -H \'Content-Type: application/json\' -d \'{"input": {"name": "World"}}\''
        )
    print("Ctrl-C stops it.", flush=True)


async def _store_examples(engine: Engine) -> int:
    """Store what lies in the folder of examples, if there is one; how many there were."""
    from rune.core.definition.model import canonical
    from rune.documents.loader import check_document, load_document

    stored = 0
    for path in _examples():
        verdict = check_document(load_document(path), engine.plans.catalogue)
        if verdict.valid and verdict.definition is not None:
            await engine.services.workflows.deploy(canonical(verdict.definition))
            stored += 1
    return stored


def _examples() -> list[Path]:
    from pathlib import Path

    import rune

    folder = Path(rune.__file__).resolve().parents[2] / "examples"
    return sorted(folder.glob("*/*.yaml"))


if __name__ == "__main__":
    typer.run(up)
