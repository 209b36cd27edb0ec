"""What the commands that act on executions share: the way to the desk, clear refusals, and what they print."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rune.cli.following import Following
from rune.cli.library import HINTS
from rune.cli.problems import FOUND_WRONG, INTERRUPTED, print_json, refuse, refuse_error
from rune.cli.reach import desk, exists, owner, owner_pid, reader
from rune.cli.reading import Unknown, resolve
from rune.cli.tally import Tally
from rune.errors import InvalidDocument, RuneError
from rune.ports.journal import Accepted
from rune.runtime.desk import Desk
from rune.runtime.engine import Engine
from rune.runtime.history import iso
from rune.settings import Settings, load_settings

T = TypeVar("T")
Ask = Callable[[Desk], Awaitable[Accepted]]

NOT_AS_IT_IS = frozenset({"ENDED", "NOT_ENDED", "NOTHING_TO_RUN"})
_HINTS = {**HINTS, "UNKNOWN_EXECUTION": "`rune list` shows what there is"}


def refusing(work: Callable[[Settings], Awaitable[int]], *, as_json: bool) -> int:
    """Do something and answer the exit code, of a refusal too: 1 if the execution is not such that it can be done."""

    async def run() -> int:
        return await work(load_settings())

    try:
        return asyncio.run(run())
    except InvalidDocument as invalid:
        return refuse(invalid.problems, as_json=as_json)
    except RuneError as error:
        code = refuse_error(error, as_json=as_json, hint=_HINTS.get(error.code, ""))
        return FOUND_WRONG if error.code in NOT_AS_IT_IS else code
    except KeyboardInterrupt:
        return INTERRUPTED


def act(given: str, work: Callable[[str, Settings], Awaitable[int]], *, as_json: bool) -> int:
    """Find the execution whose id begins like this, and do something with it; answers the exit code."""

    async def found(settings: Settings) -> int:
        return await work(await find(settings, given), settings)

    return refusing(found, as_json=as_json)


async def find(settings: Settings, given: str) -> str:
    """The id of an execution. Looked up before the file is taken, or made."""
    nothing = Unknown(f"no execution has the id `{given}`: nothing was run here yet")
    if not exists(settings):
        raise nothing
    try:
        async with reader(settings) as opened:
            return await resolve(opened, given)
    except RuneError as error:
        if error.code != "EMPTY_STORE":
            raise
        raise nothing from None


async def ask(settings: Settings, wish: Callable[[Desk], Awaitable[T]]) -> T:
    """Have something done by whoever owns the file."""
    async with desk(settings) as opened:
        return await wish(opened)


async def ask_and_see(settings: Settings, wish: Callable[[Desk], Awaitable[T]]) -> tuple[T, bool]:
    """The same, and whether some process was there that runs executions."""
    async with desk(settings) as opened:
        answer = await wish(opened)
        if settings.clustered and not settings.url:
            return answer, (await owner(settings))[0]
        return answer, not getattr(opened, "owns", False)


class Asked:
    """An execution that a verb of the desk leads to. The verb carries a mark, so it can be asked for twice."""

    def __init__(self, wish: Ask) -> None:
        self._wish = wish

    async def here(self, engine: Engine) -> Accepted:
        return await self._wish(engine.desk)

    async def there(self, desk: Desk) -> Accepted:
        return await self._wish(desk)


async def begin(settings: Settings, wish: Ask, *, wait: bool, as_json: bool, name: str = "") -> int:
    """Start an execution, by whatever verb: print its id, or see it to its end."""
    if wait:
        tally = None if as_json else Tally(name)
        return await Following(settings, Asked(wish), tally, as_json=as_json).to_end()
    accepted, owned = await ask_and_see(settings, wish)
    if as_json:
        print_json(
            {
                "execution_id": accepted.id,
                "workflow_id": accepted.workflow,
                "hash": accepted.hash,
                "retry_of": accepted.retry_of,
                "started_at": iso(accepted.at),
                "owner": owner_pid(settings),
            }
        )
        return 0
    print(accepted.id)
    if not owned:
        tell(
            f"No process runs executions here now: it begins with the next `{settings.runs_with}`,"
            " or with any command that has --wait."
        )
    return 0


def tell(text: str) -> None:
    """Something that is not the answer."""
    print(text, file=sys.stderr, flush=True)
