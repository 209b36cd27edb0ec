"""`rune watch`: the events of an execution, as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rune.ports.store import Event
    from rune.runtime.reader import Reader
    from rune.settings import Settings

LEAST_PAUSE = 0.1  # s
SHARE = 10  # a look at the file is followed by a pause this many times as long


def watch(
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An execution; the beginning of its id is enough.")
    ],
    after: Annotated[
        int, typer.Option("--after", min=0, help="Begin behind the event with this number.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document per event.")] = False,
) -> None:
    """Follow an execution until it ends. Events are numbered without gaps: go on where you stopped.

    Exits like `rune run`: 0 completed, 1 failed, halted or cancelled.

    Example: rune watch x019a --after 12 --json
    """
    from rune.cli.reading import read  # noqa: PLC0415 - help must be quick

    async def work(reader: Reader, settings: Settings) -> int:
        return await _watch(reader, settings, execution, after, as_json=as_json)

    raise typer.Exit(read(work, as_json=as_json))


async def _watch(reader: Reader, settings: Settings, given: str, after: int, *, as_json: bool) -> int:
    import asyncio  # noqa: PLC0415
    import time  # noqa: PLC0415

    from rune.cli.problems import EXIT  # noqa: PLC0415
    from rune.cli.reading import resolve  # noqa: PLC0415
    from rune.core.fact import End  # noqa: PLC0415

    name = await resolve(reader, given)
    told = getattr(reader, "watch", None)
    if told is not None:  # a server sends what happens by itself
        async for event in told(name, after):
            _print(event, as_json=as_json)
        return EXIT[await reader.end(name)]  # type: ignore[attr-defined]
    history = await reader.history(name, empty=True)
    if after < 1:
        _print(history.beginning, as_json=as_json)
    seen, told, change = 0, False, -1
    while True:
        before, change = change, await reader.change()
        began = time.perf_counter()
        if change != before:
            for stored in await reader.facts(name, seen):
                seen = stored.number
                event = history.follow(stored)
                if event.number > after:
                    _print(event, as_json=as_json)
                if isinstance(stored.fact, End):
                    return EXIT[stored.fact.status]
        if not told and not as_json:
            told = await _tell_unowned(settings)
        await asyncio.sleep(max(LEAST_PAUSE, SHARE * (time.perf_counter() - began)))


async def _tell_unowned(settings: Settings) -> bool:
    import sys  # noqa: PLC0415

    from rune.cli.reach import owner  # noqa: PLC0415

    owned, _ = await owner(settings)
    if not owned:
        print(
            f"No process runs it now: it goes on with the next `{settings.runs_with}`. Still watching.",
            file=sys.stderr,
        )
    return not owned


def _print(event: Event, *, as_json: bool) -> None:
    document = _document(event)
    if as_json:
        from rune.cli.problems import print_json  # noqa: PLC0415

        print_json(document)
    else:
        from rune.cli.rendering import print_event  # noqa: PLC0415

        print_event(document)


def _document(event: Event) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    document: dict[str, Any] = msgspec.to_builtins(event)
    return document
