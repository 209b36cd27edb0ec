"""The audit log: which principal changed what.

A call of an audited service method is written to the log before it runs and a second time if it is refused, so that no
change exists that the log does not know, whatever crashed in between. The principal of the current request is kept in a
context variable; unless the server sets one, it is the local user of the machine.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import msgspec

from rune.core.permissions import LOCAL
from rune.decoding import MalformedDataError, decode
from rune.errors import RuneError
from rune.ports.access import REQUESTED, AuditEntry, AuditLogStore, new_entry_id
from rune.ports.clock import Clock

_PRINCIPAL: ContextVar[str] = ContextVar("rune_actor", default=LOCAL)

P = ParamSpec("P")
R = TypeVar("R")
MAX_DETAIL_CHARS = 300
"""Longer details are cut."""


def current_principal() -> str:
    """Return the name of the principal of this request."""
    return _PRINCIPAL.get()


def set_principal(principal: str) -> None:
    """Set the principal for the rest of this request."""
    _PRINCIPAL.set(principal)


@contextmanager
def as_principal(principal: str) -> Iterator[None]:
    """Set the principal while the block runs."""
    before = _PRINCIPAL.set(principal)
    try:
        yield
    finally:
        _PRINCIPAL.reset(before)


class AuditLog:
    """Writes entries to the store of the audit log."""

    def __init__(self, log: AuditLogStore, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    @asynccontextmanager
    async def record(self, action: str, target: str, **details: object) -> AsyncIterator[None]:
        """Write an entry, then run the block. Viewers can read the details: they hold no values and no secrets."""
        texts = {name: _text(value) for name, value in details.items() if value}
        await self._write(action, target, texts, REQUESTED)
        try:
            yield
        except RuneError as error:
            await self._write(action, target, texts, error.code)
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


def audited(
    action: str, target: str = "", details: tuple[str, ...] = ()
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Write each call of a service method to the service's `audit_log`.

    `target` is the argument that names what is changed, `details` are arguments written beside it; none of them may
    hold a value or a secret.
    """

    def decorate(method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        async def record_and_call(*values: P.args, **named: P.kwargs) -> R:
            arguments = signature.bind(*values, **named).arguments
            log: AuditLog = arguments["self"].audit_log
            shown = {name: arguments.get(name) for name in details}
            async with log.record(action, _target(arguments, target), **shown):
                return await method(*values, **named)

        record_and_call.audited_action = action  # type: ignore[attr-defined]
        return record_and_call

    return decorate


class _Named(msgspec.Struct):
    id: str = ""


_NAMED = msgspec.json.Decoder(_Named)


def _target(arguments: Mapping[str, Any], target: str) -> str:
    found = arguments.get(target, "")
    if not isinstance(found, bytes):
        return str(found)
    try:
        return decode(_NAMED, found).id
    except MalformedDataError:
        return ""


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return _clean(", ".join(map(str, value)))
    return _clean(str(value))


def _clean(text: str) -> str:
    """Replace what some stores cannot write, and cut to the longest detail."""
    return "".join(each if each.isprintable() else "�" for each in text[:MAX_DETAIL_CHARS])
