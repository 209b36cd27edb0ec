"""What the reading commands share: the way to the file, ids that may be abbreviated, and clear refusals."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from rune.cli.problems import INTERRUPTED, INVALID, refuse, refuse_error
from rune.compose import reader
from rune.core.problem import Problem
from rune.errors import RuneError
from rune.runtime.reader import Reader
from rune.settings import Settings, load_settings

MOST_NAMED = 5
HINT = "`rune list` shows what there is"


class Refused(RuneError):
    """The command line asks for something that is not there."""

    code = "UNKNOWN_EXECUTION"


def read(work: Callable[[Reader, Settings], Awaitable[int]], *, as_json: bool) -> int:
    """Do something with the file, read-only; answers the exit code."""
    try:
        settings = load_settings()
        if not settings.database.is_file():
            raise Refused(f"{settings.database} does not exist yet: nothing was run in {settings.home}")
        with reader(settings) as opened:
            return asyncio.run(_run(work, opened, settings))
    except Refused as refused:
        return refuse_error(refused, as_json=as_json, hint=HINT if "exist yet" not in refused.message else "")
    except RuneError as error:
        return refuse_error(error, as_json=as_json)
    except BrokenPipeError:
        # Whoever read us has seen enough; the interpreter must not try to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


async def _run(work: Callable[[Reader, Settings], Awaitable[int]], opened: Reader, settings: Settings) -> int:
    return await work(opened, settings)


async def resolve(opened: Reader, given: str) -> str:
    """The one execution whose id begins like this."""
    if await opened.execution(given) is not None:
        return given
    found = await opened.matching(given, MOST_NAMED + 1) if given else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise Refused(f"no execution has the id `{given}`")
    more = ", …" if len(found) > MOST_NAMED else ""
    raise Refused(f"several executions begin with `{given}`: {', '.join(found[:MOST_NAMED])}{more}")


def nothing_yet(settings: Settings) -> bool:
    """Whether no file was ever made."""
    return not settings.database.is_file()


__all__ = ["INVALID", "Problem", "Reader", "nothing_yet", "read", "refuse", "resolve"]
