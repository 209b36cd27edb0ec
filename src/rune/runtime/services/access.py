"""API keys, start limits, and the audit log of what each principal changed.

A call of an audited service method is written to the log before it runs and a second time if it is refused, so that the
log lists every change even if the process crashes in between. The principal of the current request is kept in a
context variable; unless the server sets one, it is the local user of the machine.

The limiter caches which limits exist, so that a start without limits reads nothing. The journal counts how far a limit
is used up, in the transaction that accepts a start.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import msgspec

from rune.codec.decode import MalformedDataError, decode
from rune.core.permissions import LOCAL, ROLES, Principal, Role, is_scope
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.access import (
    DONE,
    NO_LIMITS,
    REQUESTED,
    ApiKey,
    ApiKeyStore,
    AppliedLimits,
    AuditEntry,
    AuditLogStore,
    InvalidKeyError,
    InvalidLimitsError,
    Limits,
    check_limits,
    is_key_id,
    key_not_found,
    new_entry_id,
    of_key,
    of_workflow,
)
from rune.ports.clock import Clock, iso
from rune.ports.inspection import ReportsDepth
from rune.ports.queue import Queue
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.backend import Backend

_PRINCIPAL: ContextVar[str] = ContextVar("rune_actor", default=LOCAL)
_SCOPES: ContextVar[tuple[str, ...]] = ContextVar("rune_scopes", default=())

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

log = logging.getLogger("rune.limits")
audit = logging.getLogger("rune.audit")

CACHE_S = 1.0
"""How long limits and queue depths are cached, in seconds."""

EVICT_AFTER_S = 10.0
"""Age after which a cached depth is ignored, in seconds."""

MAX_WAITING = 100_000
DEFAULT = "default"

MAX_SCOPES = 32
DIGEST = 32


def current_principal() -> str:
    """Return the name of the principal of this request."""
    return _PRINCIPAL.get()


def current_scopes() -> tuple[str, ...]:
    """Return the scopes of the principal of this request; none: all workflows."""
    return _SCOPES.get()


def set_principal(principal: Principal) -> None:
    """Set the principal for the rest of this request."""
    _PRINCIPAL.set(principal.name)
    _SCOPES.set(principal.scopes)


def set_origin(address: str, request: str) -> None:
    """Set the address of the client and the id of its request, which audit entries name."""
    _ORIGIN.set((address, request))


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
            audit.warning("%d refused requests are not in the audit log: %s", count, error.message)

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


_NAMED = msgspec.json.Decoder(_Named)


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


class Limiter:
    """Determines the limits that apply to a start over HTTP, by a webhook or by a command."""

    def __init__(self, backend: Backend, max_waiting: int = MAX_WAITING) -> None:
        self._limits = backend.limits
        # Without a process registry the queue is in this process, so its depth is read for free.
        self._depths = QueueDepths(backend.queue, near=backend.processes is None)
        self._max_waiting = max_waiting
        self._known: dict[str, Limits] = {}
        self._known_until = 0.0
        self._changes = 0
        self._refreshing = asyncio.Lock()

    async def held(self, plan: Plan) -> AppliedLimits | None:
        """Return the limits that apply to a start; None if there are none."""
        subjects: tuple[str, ...] = ()
        own: Limits | None = None
        if known := await self._all():
            workflow = of_workflow(plan.definition.id)
            subjects = tuple(each for each in (current_principal(), workflow) if each in known)
            own = known.get(workflow)
        full = await self._full(plan, own)
        return AppliedLimits(subjects, full) if subjects or full else None

    def forget(self) -> None:
        """Drop the cached limits after this process has changed them."""
        self._changes += 1
        self._known_until = 0.0

    async def _all(self) -> dict[str, Limits]:
        if time.monotonic() < self._known_until:
            return self._known
        async with self._refreshing:  # concurrent callers share one query
            if time.monotonic() >= self._known_until:
                changes, until = self._changes, time.monotonic() + CACHE_S
                self._known = await self._limits.all()
                self._known_until = until if changes == self._changes else 0.0
        return self._known

    async def _full(self, plan: Plan, own: Limits | None) -> str:
        limited = own.waiting if own is not None else None
        if limited is None and not self._max_waiting:
            return ""
        depth = self._depths.of(plan, await self._depths.read(wait=limited is not None))
        if limited is not None and depth > limited:
            return f"the limit `waiting` of the workflow `{plan.definition.id}`: the queue is too long"
        if self._max_waiting and depth > self._max_waiting:
            return "the limit `waiting` of this server: the queue is too long"
        return ""


class QueueDepths:
    """Caches the depth of each queue."""

    def __init__(self, queue: Queue, *, near: bool) -> None:
        self._queue = queue
        self._near = near
        self._known: dict[str, int] = {}
        self._read_at = -EVICT_AFTER_S
        self._reading: asyncio.Task[None] | None = None

    def of(self, plan: Plan, depths: dict[str, int]) -> int:
        """Return the depth of the queues that the first nodes of an execution are sent to. A single process has one
        queue for all nodes."""
        wanted = depths if self._near else first_queues(plan)
        return max((depths.get(each, 0) for each in wanted), default=0)

    async def read(self, *, wait: bool) -> dict[str, int]:
        """Return the depth of each queue. Without `wait` a stale cache is refreshed in the background and its depths
        are returned, unless they are older than EVICT_AFTER_S."""
        age = time.monotonic() - self._read_at
        if self._near:
            await self._refresh()
        elif age >= CACHE_S:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._refresh())
            if wait:  # briefly: a start requires only the journal
                await asyncio.wait({self._reading}, timeout=CACHE_S)
            elif age >= EVICT_AFTER_S:
                return {}
        return self._known

    async def _refresh(self) -> None:
        try:
            if isinstance(self._queue, ReportsDepth):
                self._known = {each.queue: each.waiting for each in await self._queue.depths()}
        except Exception as error:  # if the depth cannot be read, no start is refused
            log.info("the depth of the queues cannot be read: %s: %s", type(error).__name__, error)
            self._known = {}
        self._read_at = time.monotonic()


def first_queues(plan: Plan) -> set[str]:
    """Return the queues that the first nodes of an execution are sent to."""
    return {plan.nodes[each].node.queue or DEFAULT for each in plan.first}


class LimitService:
    """Sets the start limits of workflows and API keys."""

    def __init__(self, backend: Backend, limiter: Limiter, audit_log: AuditLog) -> None:
        self.audit_log = audit_log
        self._workflows = backend.workflows
        self._keys = backend.keys
        self._limits = backend.limits
        self._clock = backend.clock
        self._limiter = limiter

    @audited("workflow.limit", "workflow", ("limits",))
    async def limit_workflow(self, workflow: str, limits: Limits) -> Limits:
        """Replace all limits of a workflow, from its next start on."""
        check_limits(limits)
        if not await self._workflows.aliases(workflow):
            raise workflow_not_found(workflow, (), LATEST)
        await self._put(of_workflow(workflow), limits)
        return limits

    @audited("key.limit", "id", ("limits",))
    async def limit_key(self, id: str, limits: Limits) -> Limits:
        """Replace all limits of a key, from its next start on."""
        _check_key_limits(limits)
        if await self._keys.find(id) is None:
            raise key_not_found(id)
        await self._put(of_key(id), limits)
        return limits

    async def limit_new_key(self, id: str, limits: Limits) -> None:
        """Set the limits of a key before it is created, so that it never exists without them."""
        _check_key_limits(limits)
        if limits:
            await self._put(of_key(id), limits)

    async def _put(self, subject: str, limits: Limits) -> None:
        await self._limits.put(subject, limits, self._clock.now())
        self._limiter.forget()


def _check_key_limits(limits: Limits) -> None:
    check_limits(limits)
    if limits.waiting is not None:
        raise InvalidLimitsError("`waiting` limits a queue: set it for a workflow, not for a key")


def key_document(key: ApiKey) -> dict[str, Any]:
    """A key for programs, without its limits."""
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "workflows": list(key.scopes),
        "created_at": iso(key.created_at),
        "created_by": key.created_by,
        "expires_at": iso(key.expires_at),
        "revoked_at": iso(key.revoked_at),
        "used_at": iso(key.used_at),
    }


class AccessService:
    """Creates and revokes API keys."""

    def __init__(self, keys: ApiKeyStore, limits: LimitService, clock: Clock, audit_log: AuditLog) -> None:
        self.audit_log = audit_log
        self._keys = keys
        self._limits = limits
        self._clock = clock

    @audited("key.create", "id", ("name", "role", "scopes", "expires_at", "limits"))
    async def create_key(
        self,
        id: str,
        digest: bytes,
        name: str,
        role: Role,
        scopes: tuple[str, ...] = (),
        expires_at: int | None = None,
        limits: Limits = NO_LIMITS,
    ) -> ApiKey:
        """Store a key that the caller generated. Only the digest arrives here; the secret stays with the caller."""
        now = self._clock.now()
        _check(id, digest, name, role, scopes)
        if expires_at is not None and expires_at <= now:
            raise InvalidKeyError("the key would have expired before it was created")
        key = ApiKey(
            id=id,
            name=name,
            role=role,
            scopes=tuple(dict.fromkeys(scopes)),
            digest=digest,
            created_at=now,
            created_by=current_principal(),
            expires_at=expires_at,
        )
        await self._limits.limit_new_key(id, limits)
        return await self._keys.put(key)

    @audited("key.revoke", "id")
    async def revoke_key(self, id: str) -> ApiKey:
        """Revoke a key at once, on all servers."""
        return await self._keys.revoke(id, self._clock.now())


def _check(id: str, digest: bytes, name: str, role: str, scopes: tuple[str, ...]) -> None:
    if not is_key_id(id) or len(digest) != DIGEST:
        raise InvalidKeyError("a key is a `k` with 16 hexadecimal digits, and a digest of 32 bytes")
    if not 0 < len(name) <= 128 or not name.isprintable():
        raise InvalidKeyError("the name of a key has 1 to 128 printable characters")
    if role not in ROLES:
        raise InvalidKeyError(f"unknown role `{role[:40]}`; roles: {', '.join(ROLES)}")
    if len(scopes) > MAX_SCOPES or not all(map(is_scope, scopes)):
        raise InvalidKeyError(f"a scope is a workflow id and may contain `*`; at most {MAX_SCOPES} scopes")
    if scopes and role == "admin":
        raise InvalidKeyError("the role `admin` cannot be limited to workflows")
