"""What the reading commands share: the way to the file, ids that may be abbreviated, and clear refusals."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from rune.cli.local import stay_here
from rune.cli.problems import INTERRUPTED, refuse_error
from rune.cli.reach import exists, reader
from rune.core.explain import Waiting
from rune.core.explain import explain as why
from rune.errors import RuneError
from rune.runtime.reader import Reader
from rune.settings import Settings, load_settings

Work = Callable[[Reader, Settings], Awaitable[int]]

MOST_NAMED = 5


class Unknown(RuneError):
    """No execution is called like this."""

    code = "UNKNOWN_EXECUTION"


def read(
    work: Work, *, as_json: bool, without_file: Callable[[], int] | None = None, here: str | None = None
) -> int:
    """Do something with the file, read-only; answers the exit code.

    `without_file` is what to do where nothing was ever run, `here` a command that no server can be asked for.
    """
    try:
        settings = load_settings()
        if here is not None:
            stay_here(settings, here)
        if not exists(settings):
            return _no_file(settings, without_file, as_json=as_json)
        try:
            return asyncio.run(_run(work, settings))
        except RuneError as error:
            if error.code != "EMPTY_STORE":
                raise
            return _no_file(settings, without_file, as_json=as_json)
    except Unknown as unknown:
        return refuse_error(unknown, as_json=as_json, hint="`rune list` shows what there is")
    except RuneError as error:
        return refuse_error(error, as_json=as_json)
    except BrokenPipeError:
        # Whoever read us has seen enough; the interpreter must not try to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


async def _run(work: Work, settings: Settings) -> int:
    async with reader(settings) as opened:
        return await work(opened, settings)


def _no_file(settings: Settings, without_file: Callable[[], int] | None, *, as_json: bool) -> int:
    if without_file is not None:
        return without_file()
    if settings.clustered:
        return refuse_error(Unknown("nothing was run here yet: the database is empty"), as_json=as_json)
    missing = Unknown(f"nothing was run here yet: there is no {settings.database}")
    return refuse_error(missing, as_json=as_json, hint="`rune run FILE` makes it; RUNE_HOME says where it is")


async def waiting_of(opened: Reader, execution: str, now: int) -> tuple[bool, list[Waiting]]:
    """Whether an execution is paused, and what it waits for. A server says so itself: it knows every node type."""
    told = getattr(opened, "waiting", None)
    if told is not None:
        answer: tuple[bool, list[Waiting]] = await told(execution)
        return answer
    plan, state = await opened.state(execution, now)
    return state.paused_at is not None, why(plan, state)


async def resolve(opened: Reader, given: str) -> str:
    """The one execution whose id begins like this."""
    if await opened.execution(given) is not None:
        return given
    found = await opened.matching(given, MOST_NAMED + 1) if given else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise Unknown(f"no execution has the id `{given}`")
    more = ", …" if len(found) > MOST_NAMED else ""
    raise Unknown(f"several executions begin with `{given}`: {', '.join(found[:MOST_NAMED])}{more}")
