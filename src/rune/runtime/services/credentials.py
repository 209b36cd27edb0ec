"""The vault: what may be done to credentials. Values go in and never come out.

The verbs take and give plain data, so that they can be called from another process. What `add` and `rotate` are given
is secret: it is neither logged nor repeated in a refusal.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

from rune.ports.clock import Clock
from rune.ports.credentials import (
    CredentialError,
    CredentialNotFoundError,
    CredentialStore,
    CredentialSummary,
    NewCredential,
    fields_of,
    is_id,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*|[0-9a-f:]+")
MAX_HOSTS = 100


class CredentialService:
    """The verbs of `rune credentials`."""

    def __init__(self, secret: CredentialStore, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock

    async def add(
        self, name: str, type: str, values: dict[str, Any], hosts: tuple[str, ...] = (), id: str | None = None
    ) -> CredentialSummary:
        """Store a new credential. Whoever may have to ask again brings its id."""
        if id is not None and not is_id(id):
            raise CredentialError("the id of a credential is a `c` and 32 hexadecimal digits")
        if not _NAME.fullmatch(name) or is_id(name):
            raise CredentialError(
                f"`{name[:60]}` cannot be the name of a credential: letters, digits, `.`, `_` and `-`, at most 128"
            )
        draft = NewCredential(
            id=id or new_id(),
            name=name,
            fields=fields_of(type, values),
            hosts=_hosts(hosts),
            at=self._clock.now(),
        )
        return await self._secret.put(draft)

    async def credentials(self) -> tuple[CredentialSummary, ...]:
        """All of them, without values."""
        return tuple(await self._secret.list())

    async def show(self, reference: str) -> CredentialSummary:
        """One of them, without values."""
        found = await self._secret.find(reference)
        if found is None:
            raise CredentialNotFoundError(f"there is no credential `{reference[:128]}`")
        return found

    async def rotate(
        self, reference: str, values: dict[str, Any], hosts: tuple[str, ...] | None = None
    ) -> CredentialSummary:
        """Give a credential new values; what is not given stays as it is."""
        if not values and hosts is None:
            raise CredentialError("nothing was given that could take the place of the old")
        bound = None if hosts is None else _hosts(hosts)
        return await self._secret.rotate(reference, values, bound, self._clock.now())

    async def remove(self, reference: str) -> CredentialSummary:
        """Forget a credential."""
        return await self._secret.remove(reference)

    async def reencrypt(self) -> int:
        """Seal all of them with the newest key; answers how many were not."""
        return await self._secret.reencrypt()


def new_id() -> str:
    """An id for a credential."""
    return f"c{secrets.token_hex(16)}"


def _hosts(given: Sequence[str]) -> tuple[str, ...]:
    """Names, `*.domain`s and addresses, as they are compared."""
    found = tuple(dict.fromkeys(each.strip().lower().removesuffix(".").strip("[]") for each in given))
    if len(found) > MAX_HOSTS:
        raise CredentialError(f"a credential is bound to at most {MAX_HOSTS} hosts")
    for each in found:
        if not _HOST.fullmatch(each):
            raise CredentialError(f"`{each[:80]}` is neither a host nor a `*.domain`")
    return found
