"""Access control: API keys, the audit log, and limits on starts.

Of a key's secret only the digest is stored. Audit entries are append-only and contain no secrets.
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

DONE = "done"
"""Outcome of the second entry of an action that has made something, such as a version."""

REQUESTED = "asked"
"""Outcome of an audit entry, which is written before the action. A rejected action gets a second entry with the error
code as its outcome."""

PERIODS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
"""Length of the unit of a rate, in ms."""

MAX_LIMIT = 1_000_000
FULL, RATE, RUNNING = "waiting", "rate", "running"
_KEY_PATTERN = re.compile(r"rune_(k[0-9a-f]{16})_([0-9a-f]{64})")
_KEY_ID_PATTERN = re.compile(r"k[0-9a-f]{16}")
_RATE_PATTERN = re.compile(r"([1-9][0-9]{0,6})/([smh])")


class InvalidKeyError(RuneError):
    """An API key cannot be created with these properties."""

    code = "BAD_KEY"


class KeyNotFoundError(RuneError):
    """No API key has this id."""

    code = "UNKNOWN_KEY"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key as it is stored. `used_at` is accurate to about a minute."""

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
        return f"ApiKey({self.id}, {self.role})"

    @property
    def principal(self) -> Principal:
        return Principal(f"key:{self.id}", self.role, self.scopes)

    def is_valid(self, now: int) -> bool:
        """Return whether the key is valid at this time: neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def has_secret(self, secret: str) -> bool:
        """Compare a secret with the key's digest in constant time."""
        return hmac.compare_digest(digest_of(secret), self.digest)


class NewApiKey(msgspec.Struct, frozen=True):
    """Id and secret of an API key. The secret is shown once, when the key is created, and is not stored."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"NewApiKey({self.id})"

    @property
    def text(self) -> str:
        """The value to send as `Authorization: Bearer …`."""
        return f"rune_{self.id}_{self.secret}"


def new_key() -> NewApiKey:
    """Generate a random API key."""
    return NewApiKey(f"k{secrets.token_hex(8)}", secrets.token_hex(32))


def read_key(text: str) -> NewApiKey | None:
    """Parse an API key as it is sent in a request; None if the text is not one."""
    match = _KEY_PATTERN.fullmatch(text)
    return NewApiKey(match[1], match[2]) if match else None


def is_key_id(text: str) -> bool:
    """Return whether the text has the form of a key id."""
    return _KEY_ID_PATTERN.fullmatch(text) is not None


def digest_of(secret: str) -> bytes:
    """Return the digest of a secret. A fast hash is sufficient, because the secret has 256 random bits."""
    return hashlib.sha256(secret.encode()).digest()


def key_not_found(id: str) -> KeyNotFoundError:
    return KeyNotFoundError(f"there is no key `{id[:40]}`")


class ApiKeyStore(Protocol):
    """API keys by id. Keys are never deleted: audit entries refer to revoked ones."""

    async def put(self, key: ApiKey) -> ApiKey:
        """Store a new key and return it; a key that is stored already is returned unchanged. Durable when this
        returns."""

    async def find(self, id: str) -> ApiKey | None:
        """Return the key with this id, revoked or not."""

    async def list(self) -> list[ApiKey]:
        """Return all keys, the oldest first."""

    async def revoke(self, id: str, at: int) -> ApiKey:
        """Revoke a key and return it; KeyNotFoundError if it is unknown. A second call keeps the time of the first."""

    async def mark_used(self, id: str, at: int) -> None:
        """Record when a key was last used."""

    async def exist(self) -> bool:
        """Return whether any key was ever created; from then on the server requires authentication."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser session. `id` is the digest of the token in its cookie. `proof` is the digest of the API key that
    created it: a session is valid only while that key is."""

    id: str
    principal: str
    proof: bytes
    created_at: int
    expires_at: int

    def __repr__(self) -> str:
        return f"Session({self.principal})"


class SessionStore(Protocol):
    """Browser sessions by id."""

    async def put(self, session: Session) -> None:
        """Store a new session and remove those that expired before it was created. Durable when this returns."""

    async def find(self, id: str) -> Session | None:
        """Return the session with this id, expired or not."""

    async def remove(self, id: str) -> None:
        """Remove a session. Idempotent."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A request to change something. `number` increases with each entry; 0 before the entry is stored. `address` and
    `request` are the client's address and the id of its request over HTTP; empty for commands on the stores."""

    id: str
    at: int
    actor: str
    action: str
    target: str
    details: dict[str, str] = {}
    outcome: str = REQUESTED
    number: int = 0
    address: str = ""
    request: str = ""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to return. `action` may be a prefix: `workflow` matches `workflow.deploy`."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None


ALL_ENTRIES = AuditFilter()


def new_entry_id() -> str:
    """Generate the id of an entry, by which the store recognises a repeated write."""
    return f"l{secrets.token_hex(12)}"


class AuditLogStore(Protocol):
    """Append-only log of audit entries."""

    async def write(self, entry: AuditEntry) -> None:
        """Append an entry; one whose id is stored already is ignored. Durable when this returns."""

    async def read(
        self, wanted: AuditFilter = ALL_ENTRIES, *, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return entries, newest first, with numbers below `before`."""

    async def follow(
        self, after: int, wanted: AuditFilter = ALL_ENTRIES, *, limit: int = 100
    ) -> list[AuditEntry]:
        """Return entries, oldest first, with numbers above `after`. An entry that is written later has a number above
        all of these."""


class InvalidLimitsError(RuneError):
    """Start limits that are malformed or out of range."""

    code = "BAD_LIMITS"


class StartLimitError(RuneError):
    """A start was rejected by a limit and nothing was written. `retry_after` is in seconds."""

    code = "TOO_MANY"

    def __init__(self, message: str, limit: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after = retry_after


class Bucket(msgspec.Struct, frozen=True):
    """A token bucket: `starts` per `period` ms, with bursts of up to `burst`.

    Its level is counted in fractions of a start: one start costs `period` units and every ms adds `starts` units, so
    that nothing is rounded.
    """

    starts: int
    period: int
    burst: int

    @property
    def full(self) -> int:
        """The maximum level."""
        return self.burst * self.period

    def level(self, before: int, since: int) -> int:
        """Return the level `since` ms after it was `before`. A clock that was set back adds nothing."""
        return min(self.full, before + max(0, since) * self.starts)

    def pause(self, level: int) -> int:
        """Return after how many ms the level suffices for one start."""
        return -(-max(0, self.period - level) // self.starts)


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits on starts: their rate, the number of unfinished executions (`running`) and the number of waiting hints in
    the queue (`waiting`). `rate` is a text such as `100/m`; `burst` is the number of starts accepted at once after an
    idle period, by default that of the rate."""

    rate: str | None = None
    burst: int | None = None
    running: int | None = None
    waiting: int | None = None

    @property
    def bucket(self) -> Bucket | None:
        """The token bucket of the rate; None without a rate."""
        match = _RATE_PATTERN.fullmatch(self.rate or "")
        if match is None:
            return None
        starts = int(match[1])
        return Bucket(starts, PERIODS[match[2]], self.burst or starts)

    def __str__(self) -> str:
        fields = msgspec.to_builtins(self)
        return ", ".join(f"{name} {value}" for name, value in fields.items()) or "none"

    def __bool__(self) -> bool:
        return self != NO_LIMITS


NO_LIMITS = Limits()


def check_limits(limits: Limits) -> None:
    """Raise InvalidLimitsError for malformed or out-of-range limits."""
    bucket = limits.bucket
    if limits.rate is not None and (bucket is None or bucket.starts > MAX_LIMIT):
        raise InvalidLimitsError(
            f"`{limits.rate[:40]}` is not a rate: use a form such as `10/s`, `100/m` or `1000/h`, up to {MAX_LIMIT:,}"
        )
    if limits.burst is not None and limits.rate is None:
        raise InvalidLimitsError("`burst` requires `rate`")
    for name, least in (("burst", 1), ("running", 1), ("waiting", 1)):
        value = getattr(limits, name)
        if value is not None and not least <= value <= MAX_LIMIT:
            raise InvalidLimitsError(f"{name}: must be between {least} and {MAX_LIMIT:,}")


class AppliedLimits(msgspec.Struct, frozen=True):
    """The limits that apply to one start: those of `subjects`. If `full` is set, the queue is full and the start is
    rejected with this message."""

    subjects: tuple[str, ...] = ()
    full: str = ""


def of_workflow(workflow: str) -> str:
    """Return the limit subject of a workflow."""
    return f"workflow:{workflow}"


def of_key(id: str) -> str:
    """Return the limit subject of an API key, which is the name of its principal."""
    return f"key:{id}"


def start_limit_error(limit: str, subject: str, pause: int = 0, full: str = "") -> StartLimitError:
    if limit == FULL:
        return StartLimitError(full, FULL)
    kind, _, name = subject.partition(":")
    owner = f"the {'key' if kind == 'key' else 'workflow'} `{name}`"
    if limit == RATE:
        after = max(1, -(-pause // 1000))
        return StartLimitError(f"the limit `rate` of {owner} is reached: retry in {after} s", RATE, after)
    return StartLimitError(
        f"the limit `running` of {owner} is reached: too many unfinished executions", RUNNING
    )


class StartLimitStore(Protocol):
    """Start limits by subject (a workflow or an API key), stored with their counters. The journal checks and updates
    them in the transaction that accepts a start."""

    async def put(self, subject: str, limits: Limits, at: int) -> None:
        """Replace the limits of a subject; empty limits are removed. The level of the token bucket is kept if its rate
        and burst do not change. Durable when this returns."""

    async def all(self) -> dict[str, Limits]:
        """Return all limits by subject."""
