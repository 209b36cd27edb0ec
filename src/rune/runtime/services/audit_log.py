"""The actor: on whose behalf something is asked of the desk. Whoever lets somebody in says who that is; unless said, it
is whoever works on the machine itself.

The logbook: what is asked of the desk is written down before it is done, and once more if it is refused. So nothing
was changed that the log does not know, whatever crashed in between.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec

from rune.core.permissions import LOCAL
from rune.errors import RuneError
from rune.ports.access import ASKED, Entry, Log, new_entry_id
from rune.ports.clock import Clock

_ACTOR: ContextVar[str] = ContextVar("rune_actor", default=LOCAL)


def actor() -> str:
    """The name of the principal that asks."""
    return _ACTOR.get()


def act_as(principal: str) -> None:
    """From here on, in this request, this one asks."""
    _ACTOR.set(principal)


@contextmanager
def acting(principal: str) -> Iterator[None]:
    """While the block runs, this one asks."""
    before = _ACTOR.set(principal)
    try:
        yield
    finally:
        _ACTOR.reset(before)


C = TypeVar("C")
LONGEST = 300
"""Characters of a detail; what is longer is cut."""


class Act(msgspec.Struct, frozen=True):
    """How a verb is written down: `target` is the argument that says what it is done to, `told` are those that are told
    with it. No argument that may hold a value or a secret is among them."""

    action: str
    target: str = ""
    told: tuple[str, ...] = ()


ACTS: dict[str, Act] = {
    "signal": Act("execution.signal", "execution", ("name", "item")),
    "cancel": Act("execution.cancel", "execution"),
    "pause": Act("execution.pause", "execution"),
    "resume": Act("execution.resume", "execution"),
    "retry": Act("execution.retry", "execution", ("failed_items",)),
    "rerun": Act("execution.rerun", "execution", ("node", "item")),
    "requeue": Act("dead_letter.requeue", "letter"),
    "drop": Act("dead_letter.drop", "letter"),
    "deploy": Act("workflow.deploy", "definition", ("alias",)),
    "point": Act("alias.point", "workflow", ("alias", "version", "weights")),
    "hide": Act("workflow.hide", "workflow"),
    "collect": Act("execution.collect"),
    "add_credential": Act("credential.add", "name", ("type", "hosts")),
    "rotate_credential": Act("credential.rotate", "reference", ("hosts",)),
    "remove_credential": Act("credential.remove", "reference"),
    "rekey": Act("credential.rekey"),
    "grant_credential": Act("credential.grant", "reference", ("whom",)),
    "withdraw_credential": Act("credential.withdraw", "reference", ("whom",)),
    "create_key": Act("key.create", "id", ("name", "role", "scopes", "expires_at", "limits")),
    "limit_workflow": Act("workflow.limit", "workflow", ("limits",)),
    "limit_key": Act("key.limit", "id", ("limits",)),
    "revoke_key": Act("key.revoke", "id"),
    "enable_trigger": Act("trigger.enable", "reference", ("enabled",)),
    "rotate_trigger": Act("trigger.rotate", "reference", ("secret",)),
}
"""The verbs that change something. Starts are not among them: each execution says itself who started it."""


class Logbook:
    """Writes what is asked for."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    @asynccontextmanager
    async def act(self, action: str, target: str, **details: object) -> AsyncIterator[None]:
        """Write down what the block does. Details are told to whoever may read the log: no values, no secrets."""
        said = {name: _text(value) for name, value in details.items() if value}
        await self._write(action, target, said, ASKED)
        try:
            yield
        except RuneError as error:
            await self._write(action, target, said, error.code)
            raise

    async def _write(self, action: str, target: str, details: dict[str, str], outcome: str) -> None:
        entry = Entry(
            id=new_entry_id(),
            at=self._clock.now(),
            actor=actor(),
            action=action,
            target=_clean(target),
            details=details,
            outcome=outcome,
        )
        await self._log.write(entry)


def written_down(kind: type[C]) -> type[C]:
    """A desk whose verbs are written down in its `logbook`, as the table says."""
    for name, act in ACTS.items():
        verb = vars(kind).get(name)
        if verb is not None:
            setattr(kind, name, _around(verb, act))
    return kind


def _around(verb: Callable[..., Awaitable[Any]], act: Act) -> Callable[..., Awaitable[Any]]:
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    async def written(self: Any, *values: Any, **named: Any) -> Any:
        given = signature.bind(self, *values, **named).arguments
        details = {name: given.get(name) for name in act.told}
        book: Logbook = self.logbook
        async with book.act(act.action, _target(given, act), **details):
            return await verb(self, *values, **named)

    return written


class _Named(msgspec.Struct):
    id: str = ""


def _target(given: Mapping[str, Any], act: Act) -> str:
    found = given.get(act.target, "")
    if not isinstance(found, bytes):
        return str(found)
    try:
        return msgspec.json.decode(found, type=_Named).id
    except (msgspec.DecodeError, RecursionError):
        return ""


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return _clean(", ".join(map(str, value)))
    return _clean(str(value))


def _clean(text: str) -> str:
    """As every store can write it, and short."""
    return "".join(each if each.isprintable() else "�" for each in text[:LONGEST])
