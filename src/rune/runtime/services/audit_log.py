"""The audit log of what each principal changed.

A call of an audited service method is written to the log before it runs and a second time if it is refused, so that the
log lists every change even if the process crashes in between.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import msgspec

from rune.codec.decode import MalformedDataError, decode
from rune.core.json_decoder import JsonDecoder
from rune.errors import RuneError
from rune.ports.access import (
    DONE,
    REQUESTED,
    AuditEntry,
    AuditLogStore,
    new_entry_id,
)
from rune.ports.clock import Clock
from rune.runtime.services.principal import current_principal

_ORIGIN: ContextVar[tuple[str, str]] = ContextVar("rune_origin", default=("", ""))

P = ParamSpec("P")
R = TypeVar("R")
MAX_DETAIL_CHARS = 300
"""Longer details are cut."""

REFUSED = "access.refused"
UNKNOWN = "unknown"
"""Principal of requests that were refused before it was known."""
REFUSALS_PERIOD_S = 60.0
MAX_REFUSALS = 1_000
audit_logger = logging.getLogger("rune.audit")


def set_origin(address: str, request: str) -> None:
    """Set the address of the client and the id of its request, which audit entries name."""
    _ORIGIN.set((address, request))


class AuditLog:
    """Writes entries to the store of the audit log."""

    def __init__(self, log: AuditLogStore, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    @asynccontextmanager
    async def record(self, action: str, target: str, **details: object) -> AsyncIterator[dict[str, object]]:
        """Write an entry, then run the block. Details that are known only afterwards are put into the dictionary that
        the block receives, and written in a second entry. Viewers can read the details: they hold no values and no
        secrets."""
        texts = _texts(details)
        await self._write(action, target, texts, REQUESTED)
        made: dict[str, object] = {}
        try:
            yield made
        except RuneError as error:
            await self._write(action, target, texts, error.code)
            raise
        if made:
            await self._write(action, target, texts | _texts(made), DONE)

    async def _write(self, action: str, target: str, details: dict[str, str], outcome: str) -> None:
        address, request = _ORIGIN.get()
        entry = AuditEntry(
            id=new_entry_id(),
            at=self._clock.now(),
            actor=current_principal(),
            action=action,
            target=_clean(target),
            details=details,
            outcome=outcome,
            address=_clean(address),
            request=request,
        )
        await self._log.write(entry)

    async def refused(self, refusal: Refusal, count: int, request: str) -> None:
        """Write that requests were refused."""
        entry = AuditEntry(
            id=new_entry_id(),
            at=self._clock.now(),
            actor=refusal.actor or UNKNOWN,
            action=REFUSED,
            target=_clean(refusal.target),
            details={} if count == 1 else {"count": str(count)},
            outcome=refusal.code,
            address=_clean(refusal.address),
            request=request,
        )
        await self._log.write(entry)


class Refusal(msgspec.Struct, frozen=True):
    """A refused request: who sent it, from where, to which route, and why it was refused."""

    actor: str
    address: str
    target: str
    code: str


class Refusals:
    """Writes refused requests to the audit log: of those that are alike, the first at once and the number of the others
    after PERIOD_S. At most MAX_REFUSALS kinds are told apart meanwhile, so that clients cannot fill the log."""

    def __init__(self, audit_log: AuditLog, *, period_s: float = REFUSALS_PERIOD_S) -> None:
        self._audit_log = audit_log
        self._period_s = period_s
        self._repeated: dict[Refusal, int] = {}
        self._writes: set[asyncio.Task[None]] = set()

    def add(self, refusal: Refusal, request: str) -> None:
        """Count a refused request. The response does not wait for the log."""
        if refusal not in self._repeated and len(self._repeated) >= MAX_REFUSALS:
            refusal = Refusal("", "", "", refusal.code)
        if refusal in self._repeated:
            self._repeated[refusal] += 1
            return
        self._repeated[refusal] = 0
        self._write(refusal, 1, request)
        asyncio.get_running_loop().call_later(self._period_s, self._end_period, refusal)

    def _end_period(self, refusal: Refusal) -> None:
        count = self._repeated.pop(refusal, 0)
        if count:
            self._write(refusal, count, "")

    def _write(self, refusal: Refusal, count: int, request: str) -> None:
        task = asyncio.create_task(self._try_write(refusal, count, request))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _try_write(self, refusal: Refusal, count: int, request: str) -> None:
        try:
            await self._audit_log.refused(refusal, count, request)
        except RuneError as error:
            audit_logger.warning("%d refused requests are not in the audit log: %s", count, error.message)

    async def aclose(self) -> None:
        """Write what was counted since."""
        for each in list(self._repeated):
            self._end_period(each)
        await asyncio.gather(*self._writes, return_exceptions=True)


def audited(
    action: str,
    target: str = "",
    details: tuple[str, ...] = (),
    *,
    unless: tuple[str, str] | None = None,
    counted: str | None = None,
    made: Callable[[Any], dict[str, object]] | None = None,
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Write each call of a service method to the service's `audit_log`.

    `target` is the argument that names what is changed, `details` are arguments written beside it; none of them may
    hold a value or a secret. `unless` is an argument, and the action where that is false. `counted` is an argument with
    a length, which is written as `count`. `made` returns the details of a result, for a second entry.
    """

    def decorate(method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        async def record_and_call(*values: P.args, **named: P.kwargs) -> R:
            arguments = signature.bind(*values, **named).arguments
            log: AuditLog = arguments["self"].audit_log
            shown = {name: arguments.get(name) for name in details}
            if counted is not None:
                shown["count"] = str(len(arguments[counted]))
            wanted = action if unless is None or arguments[unless[0]] else unless[1]
            async with log.record(wanted, _target(arguments, target), **shown) as known:
                result = await method(*values, **named)
                if made is not None:
                    known.update(made(result))
                return result

        record_and_call.audited_action = action  # type: ignore[attr-defined]
        return record_and_call

    return decorate


class _Named(msgspec.Struct):
    id: str = ""


_NAMED = JsonDecoder(_Named)


def _target(arguments: Mapping[str, Any], target: str) -> str:
    found = arguments.get(target, "")
    if not isinstance(found, bytes):
        return str(found)
    try:
        return decode(_NAMED, found).id
    except MalformedDataError:
        return ""


def _texts(details: Mapping[str, object]) -> dict[str, str]:
    return {name: _text(value) for name, value in details.items() if value}


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return _clean(", ".join(map(str, value)))
    return _clean(str(value))


def _clean(text: str) -> str:
    """Replace what some stores cannot write, and cut to the longest detail."""
    return "".join(each if each.isprintable() else "�" for each in text[:MAX_DETAIL_CHARS])
