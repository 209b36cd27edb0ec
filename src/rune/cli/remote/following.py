"""Seeing an execution of a server to its end."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from rune.cli.problems import EXIT, print_json
from rune.cli.reach import desk, reader
from rune.cli.stopping import Stop
from rune.runtime.reader import Reader
from rune.settings import Settings

if TYPE_CHECKING:
    from rune.cli.following import Errand


async def to_end(settings: Settings, errand: Errand, *, as_json: bool) -> int:
    """Until it has ended or somebody wants to stop looking on; answers the exit code."""
    with Stop() as stop:
        async with desk(settings) as there:
            accepted = await errand.there(there)
        async with reader(settings) as opened:
            end: asyncio.Future[str] = asyncio.ensure_future(opened.end(accepted.id))  # type: ignore[attr-defined]
            either: set[asyncio.Future[Any]] = {end, stop.asked}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                status = await end
                await _print(opened, accepted.id, as_json=as_json)
                return EXIT[status]
            end.cancel()
            if as_json:
                await _print(opened, accepted.id, as_json=True)
        print(
            f"Stopped looking on. {accepted.id} goes on at {settings.url};"
            f" `rune watch {accepted.id}` looks on again.",
            file=sys.stderr,
            flush=True,
        )
        return stop.code


async def _print(opened: Reader, execution: str, *, as_json: bool) -> None:
    document = await (await opened.history(execution)).document()
    if as_json:
        print_json(document)
        return
    from rune.cli.rendering import print_document  # noqa: PLC0415 - a document needs no table

    print_document(document)
