"""Keys of the API: what somebody who asks a server is known by. Of their secrets only digests are kept.

The log: who changed what. Rows are added and never touched again, and hold no secrets.

Limits on starts: how many in a time, how many that have not ended, and how much may wait in the queue.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Protocol

import msgspec

from rune.core.permissions import Principal, Role
from rune.errors import RuneError

_TEXT = re.compile(r"rune_(k[0-9a-f]{16})_([0-9a-f]{64})")
_ID = re.compile(r"k[0-9a-f]{16}")


class InvalidKeyError(RuneError):
    """A key that cannot be made like this."""

    code = "BAD_KEY"


class KeyNotFoundError(RuneError):
    """No key has this id."""

    code = "UNKNOWN_KEY"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is kept. `used_at` is coarse: a minute more or less."""

    id: str
    name: str
    role: Role
    scopes: tuple[str, ...] = ()
    digest: bytes
    created_at: int
    created_by: str
    expires_at: int | None = None
    revoked_at: int | None = None
    used_at: int | None = None

    def __repr__(self) -> str:
        return f"Key({self.id}, {self.role})"

    @property
    def principal(self) -> Principal:
        """Who asks with it."""
        return Principal(f"key:{self.id}", self.role, self.scopes)

    def holds(self, now: int) -> bool:
        """Whether it opens anything at this moment."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def opened_by(self, secret: str) -> bool:
        """Whether this is its secret; takes as long whatever the answer."""
        return hmac.compare_digest(digest_of(secret), self.digest)


class NewApiKey(msgspec.Struct, frozen=True):
    """A key that was thought up: what is public of it, and what is shown once and kept nowhere."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"Made({self.id})"

    @property
    def text(self) -> str:
        """What is sent as `Authorization: Bearer …`."""
        return f"rune_{self.id}_{self.secret}"


def new_key() -> NewApiKey:
    """A key that nobody can guess."""
    return NewApiKey(f"k{secrets.token_hex(8)}", secrets.token_hex(32))


def read_key(text: str) -> NewApiKey | None:
    """The parts of a key that somebody sends; None where it is none of ours."""
    found = _TEXT.fullmatch(text)
    return NewApiKey(found[1], found[2]) if found else None


def is_key_id(text: str) -> bool:
    """Whether a key could have this id."""
    return _ID.fullmatch(text) is not None


def digest_of(secret: str) -> bytes:
    """What is kept of a secret. It has 256 bits of chance, so nothing slower is needed."""
    return hashlib.sha256(secret.encode()).digest()


def key_not_found(id: str) -> KeyNotFoundError:
    """Why nothing was done."""
    return KeyNotFoundError(f"there is no key `{id[:40]}`")


class ApiKeyStore(Protocol):
    """Keys by id. They are never removed: a revoked one still tells who did what with it."""

    async def put(self, key: ApiKey) -> ApiKey:
        """Keep a new key; the same one twice is one. Durable when this returns."""

    async def find(self, id: str) -> ApiKey | None:
        """One of them."""

    async def list(self) -> list[ApiKey]:
        """All of them, the oldest first."""

    async def revoke(self, id: str, at: int) -> ApiKey:
        """Let it open nothing any more; UnknownKey if there is none. The first time counts."""

    async def mark_used(self, id: str, at: int) -> None:
        """Note that it was used."""

    async def exist(self) -> bool:
        """Whether one was ever made."""


REQUESTED = "asked"
"""The outcome of an entry that is written before the act; one that is refused has a second entry with the code."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wanted something to be changed. `number` grows with each entry; 0 before it is written."""

    id: str
    at: int
    actor: str
    action: str
    target: str
    details: dict[str, str] = {}
    outcome: str = REQUESTED
    number: int = 0


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are wanted. `action` may be its first word only: `workflow` or `workflow.deploy`."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None


ALL_ENTRIES = AuditFilter()


def new_entry_id() -> str:
    """A name for an entry that may have to be sent twice."""
    return f"l{secrets.token_hex(12)}"


class AuditLogStore(Protocol):
    """Entries in the order they were written."""

    async def write(self, entry: AuditEntry) -> None:
        """Add an entry; the same one twice is one. Durable when this returns."""

    async def read(
        self, wanted: AuditFilter = ALL_ENTRIES, *, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Newest first, those with smaller numbers than `before`."""


PERIODS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
"""What a rate is counted by, in ms."""

MAX_LIMIT = 1_000_000
_RATE = re.compile(r"([1-9][0-9]{0,6})/([smh])")
FULL, RATE, RUNNING = "waiting", "rate", "running"


class InvalidLimitsError(RuneError):
    """Limits that nobody could keep."""

    code = "BAD_LIMITS"


class StartLimitError(RuneError):
    """A start that a limit refuses. Nothing of it was written; `retry_after` is in seconds."""

    code = "TOO_MANY"

    def __init__(self, message: str, limit: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after = retry_after


class Bucket(msgspec.Struct, frozen=True):
    """So many starts in so many ms, and so many at once. Its level is counted in parts of a start: `period` of them are
    one, and each ms adds `starts` of them, so that nothing is ever rounded."""

    starts: int
    period: int
    burst: int

    @property
    def full(self) -> int:
        """The level beyond which nothing is added."""
        return self.burst * self.period

    def level(self, before: int, since: int) -> int:
        """The level so many ms after it was another. A clock that was put back adds nothing."""
        return min(self.full, before + max(0, since) * self.starts)

    def pause(self, level: int) -> int:
        """How long until there is enough for one start, in ms."""
        return -(-max(0, self.period - level) // self.starts)


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What starts are held to. `rate` is a text such as `100/m`; `burst` is how many may come at
    once after a quiet time: as many as the rate has, unless it is given."""

    rate: str | None = None
    burst: int | None = None
    running: int | None = None
    waiting: int | None = None

    @property
    def bucket(self) -> Bucket | None:
        """The rate as it is counted."""
        found = _RATE.fullmatch(self.rate or "")
        if found is None:
            return None
        starts = int(found[1])
        return Bucket(starts, PERIODS[found[2]], self.burst or starts)

    def __str__(self) -> str:
        said = msgspec.to_builtins(self)
        return ", ".join(f"{name} {value}" for name, value in said.items()) or "none"

    def __bool__(self) -> bool:
        return self != NO_LIMITS


NO_LIMITS = Limits()


def check_limits(limits: Limits) -> None:
    """Refuse what means nothing."""
    bucket = limits.bucket
    if limits.rate is not None and (bucket is None or bucket.starts > MAX_LIMIT):
        raise InvalidLimitsError(
            f"`{limits.rate[:40]}` is no rate: write `10/s`, `100/m` or `1000/h`, up to {MAX_LIMIT:,}"
        )
    if limits.burst is not None and limits.rate is None:
        raise InvalidLimitsError("a burst belongs to a rate")
    for name, least in (("burst", 1), ("running", 1), ("waiting", 1)):
        value = getattr(limits, name)
        if value is not None and not least <= value <= MAX_LIMIT:
            raise InvalidLimitsError(f"{name}: a number between {least} and {MAX_LIMIT:,}")


class AppliedLimits(msgspec.Struct, frozen=True):
    """What a start is held to: the limits of these, and nothing at all while a queue is `full`, which says why."""

    subjects: tuple[str, ...] = ()
    full: str = ""


def of_workflow(workflow: str) -> str:
    """Whose limits those of a workflow are."""
    return f"workflow:{workflow}"


def of_key(id: str) -> str:
    """Whose limits those of a key are: the name of its principal."""
    return f"key:{id}"


def start_limit_error(limit: str, subject: str, pause: int = 0, full: str = "") -> StartLimitError:
    """Why a start was refused."""
    if limit == FULL:
        return StartLimitError(full, FULL)
    kind, _, name = subject.partition(":")
    whose = f"the {'key' if kind == 'key' else 'workflow'} `{name}`"
    if limit == RATE:
        after = max(1, -(-pause // 1000))
        return StartLimitError(
            f"the limit `rate` of {whose}: the next start has room in {after} s", RATE, after
        )
    return StartLimitError(
        f"the limit `running` of {whose}: too many executions that have not ended", RUNNING
    )


class StartLimitStore(Protocol):
    """Limits by whom they are for. What they have counted so far is kept with them; the journal reads both when it
    accepts a start."""

    async def put(self, subject: str, limits: Limits, at: int) -> None:
        """Set them from now on; those without any limit are removed. What a rate has counted stays while it is the
        same. Durable when this returns."""

    async def all(self) -> dict[str, Limits]:
        """All there are."""
