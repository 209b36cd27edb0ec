"""Keys of the API: what somebody who asks a server is known by. Of their secrets only digests are kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Protocol

import msgspec

from rune.core.rights import Principal, Role
from rune.errors import RuneError

_TEXT = re.compile(r"rune_(k[0-9a-f]{16})_([0-9a-f]{64})")
_ID = re.compile(r"k[0-9a-f]{16}")


class BadKey(RuneError):
    """A key that cannot be made like this."""

    code = "BAD_KEY"


class UnknownKey(RuneError):
    """No key has this id."""

    code = "UNKNOWN_KEY"


class Key(msgspec.Struct, frozen=True, kw_only=True):
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


class Made(msgspec.Struct, frozen=True):
    """A key that was thought up: what is public of it, and what is shown once and kept nowhere."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"Made({self.id})"

    @property
    def text(self) -> str:
        """What is sent as `Authorization: Bearer …`."""
        return f"rune_{self.id}_{self.secret}"


def new_key() -> Made:
    """A key that nobody can guess."""
    return Made(f"k{secrets.token_hex(8)}", secrets.token_hex(32))


def read_key(text: str) -> Made | None:
    """The parts of a key that somebody sends; None where it is none of ours."""
    found = _TEXT.fullmatch(text)
    return Made(found[1], found[2]) if found else None


def is_key_id(text: str) -> bool:
    """Whether a key could have this id."""
    return _ID.fullmatch(text) is not None


def digest_of(secret: str) -> bytes:
    """What is kept of a secret. It has 256 bits of chance, so nothing slower is needed."""
    return hashlib.sha256(secret.encode()).digest()


def unknown_key(id: str) -> UnknownKey:
    """Why nothing was done."""
    return UnknownKey(f"there is no key `{id[:40]}`")


class Keys(Protocol):
    """Keys by id. They are never removed: a revoked one still tells who did what with it."""

    async def put(self, key: Key) -> Key:
        """Keep a new key; the same one twice is one. Durable when this returns."""

    async def find(self, id: str) -> Key | None:
        """One of them."""

    async def list(self) -> list[Key]:
        """All of them, the oldest first."""

    async def revoke(self, id: str, at: int) -> Key:
        """Let it open nothing any more; UnknownKey if there is none. The first time counts."""

    async def used(self, id: str, at: int) -> None:
        """Note that it was used."""

    async def exist(self) -> bool:
        """Whether one was ever made."""
