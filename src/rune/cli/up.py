"""`rune up`: everything in one process: API, worker, scheduler, on the embedded backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from rune.runtime.engine import Engine
    from rune.settings import Settings


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
    from rune.cli.problems import INTERRUPTED, refuse_error  # noqa: PLC0415 - help must be quick
    from rune.errors import RuneError  # noqa: PLC0415
    from rune.ports.owner import InUse  # noqa: PLC0415

    try:
        raise typer.Exit(_up(host, port, examples=examples, as_json=as_json))
    except RuneError as error:
        taken = isinstance(error, InUse)
        hint = "stop that one, or set RUNE_HOME to a folder of its own" if taken else ""
        raise typer.Exit(refuse_error(error, as_json=as_json, hint=hint)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _up(host: str, port: int, *, examples: bool, as_json: bool) -> int:
    import asyncio  # noqa: PLC0415

    from rune.cli.serving import keep_log, serving_settings  # noqa: PLC0415
    from rune.compose.serving import loop_factory  # noqa: PLC0415

    settings = serving_settings()
    keep_log(settings, "warning")
    key = settings.api_key
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings, host, port, key, examples=examples, as_json=as_json))


async def _serve(settings: Settings, host: str, port: int, key: str, *, examples: bool, as_json: bool) -> int:
    from rune.cli.stopping import Stop  # noqa: PLC0415
    from rune.compose import exists, reader, running_engine  # noqa: PLC0415
    from rune.compose.serving import check_address, serve  # noqa: PLC0415

    fresh = not exists(settings)
    with Stop() as stop:
        async with running_engine(settings) as engine, reader(settings) as opened:
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
    import os  # noqa: PLC0415

    from rune.cli.problems import print_json  # noqa: PLC0415

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
    from rune.core.definition import canonical  # noqa: PLC0415
    from rune.documents import check_document, load_document  # noqa: PLC0415

    stored = 0
    for path in _examples():
        verdict = check_document(load_document(path), engine.plans.catalogue)
        if verdict.valid and verdict.definition is not None:
            await engine.desk.deploy(canonical(verdict.definition))
            stored += 1
    return stored


def _examples() -> list[Path]:
    from pathlib import Path  # noqa: PLC0415

    import rune  # noqa: PLC0415

    folder = Path(rune.__file__).resolve().parents[2] / "examples"
    return sorted(folder.glob("*/*.yaml"))


if __name__ == "__main__":
    typer.run(up)
