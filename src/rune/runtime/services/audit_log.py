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
from rune.ports.access import REQUESTED, AuditEntry, AuditLogStore, new_entry_id
from rune.ports.clock import Clock

_ACTOR: ContextVar[str] = ContextVar("rune_actor", default=LOCAL)


def current_principal() -> str:
    """The name of the principal that asks."""
    return _ACTOR.get()


def set_principal(principal: str) -> None:
    """From here on, in this request, this one asks."""
    _ACTOR.set(principal)


@contextmanager
def as_principal(principal: str) -> Iterator[None]:
    """While the block runs, this one asks."""
    before = _ACTOR.set(principal)
    try:
        yield
    finally:
        _ACTOR.reset(before)


C = TypeVar("C")
MAX_DETAIL_CHARS = 300
"""Characters of a detail; what is longer is cut."""


class AuditedAction(msgspec.Struct, frozen=True):
    """How a verb is written down: `target` is the argument that says what it is done to, `told` are those that are told
    with it. No argument that may hold a value or a secret is among them."""

    action: str
    target: str = ""
    details: tuple[str, ...] = ()


AUDITED_ACTIONS: dict[str, AuditedAction] = {
    "signal": AuditedAction("execution.signal", "execution", ("name", "item")),
    "cancel": AuditedAction("execution.cancel", "execution"),
    "pause": AuditedAction("execution.pause", "execution"),
    "resume": AuditedAction("execution.resume", "execution"),
    "retry": AuditedAction("execution.retry", "execution", ("failed_items",)),
    "rerun": AuditedAction("execution.rerun", "execution", ("node", "item")),
    "requeue": AuditedAction("dead_letter.requeue", "letter"),
    "discard": AuditedAction("dead_letter.drop", "letter"),
    "deploy": AuditedAction("workflow.deploy", "definition", ("alias",)),
    "set_alias": AuditedAction("alias.point", "workflow", ("alias", "version", "weights")),
    "archive": AuditedAction("workflow.hide", "workflow"),
    "delete_ended": AuditedAction("execution.collect"),
    "add_credential": AuditedAction("credential.add", "name", ("type", "hosts")),
    "rotate_credential": AuditedAction("credential.rotate", "reference", ("hosts",)),
    "remove_credential": AuditedAction("credential.remove", "reference"),
    "reencrypt_credentials": AuditedAction("credential.rekey"),
    "grant_credential": AuditedAction("credential.grant", "reference", ("whom",)),
    "withdraw_credential": AuditedAction("credential.withdraw", "reference", ("whom",)),
    "create_key": AuditedAction("key.create", "id", ("name", "role", "scopes", "expires_at", "limits")),
    "limit_workflow": AuditedAction("workflow.limit", "workflow", ("limits",)),
    "limit_key": AuditedAction("key.limit", "id", ("limits",)),
    "revoke_key": AuditedAction("key.revoke", "id"),
    "enable_trigger": AuditedAction("trigger.enable", "reference", ("enabled",)),
    "rotate_trigger": AuditedAction("trigger.rotate", "reference", ("secret",)),
}
"""The verbs that change something. Starts are not among them: each execution says itself who started it."""


class AuditLog:
    """Writes what is asked for."""

    def __init__(self, log: AuditLogStore, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    @asynccontextmanager
    async def record(self, action: str, target: str, **details: object) -> AsyncIterator[None]:
        """Write down what the block does. Details are told to whoever may read the log: no values, no secrets."""
        said = {name: _text(value) for name, value in details.items() if value}
        await self._write(action, target, said, REQUESTED)
        try:
            yield
        except RuneError as error:
            await self._write(action, target, said, error.code)
            raise

    async def _write(self, action: str, target: str, details: dict[str, str], outcome: str) -> None:
        entry = AuditEntry(
            id=new_entry_id(),
            at=self._clock.now(),
            actor=current_principal(),
            action=action,
            target=_clean(target),
            details=details,
            outcome=outcome,
        )
        await self._log.write(entry)


def audited(kind: type[C]) -> type[C]:
    """A desk whose verbs are written down in its `logbook`, as the table says."""
    for name, act in AUDITED_ACTIONS.items():
        verb = vars(kind).get(name)
        if verb is not None:
            setattr(kind, name, _around(verb, act))
    return kind


def _around(verb: Callable[..., Awaitable[Any]], act: AuditedAction) -> Callable[..., Awaitable[Any]]:
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    async def written(self: Any, *values: Any, **named: Any) -> Any:
        given = signature.bind(self, *values, **named).arguments
        details = {name: given.get(name) for name in act.details}
        book: AuditLog = self.logbook
        async with book.record(act.action, _target(given, act), **details):
            return await verb(self, *values, **named)

    return written


class _Named(msgspec.Struct):
    id: str = ""


def _target(given: Mapping[str, Any], act: AuditedAction) -> str:
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
    return "".join(each if each.isprintable() else "�" for each in text[:MAX_DETAIL_CHARS])
