"""The use of a credential by one call: resolved when it is asked for, checked against what it may be used for,
hidden in everything that the call leaves behind, and forgotten with it.

Tokens that were fetched with a credential, for as long as they are good; in memory and nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from rune.core.execution.outcome import Outcome
from rune.errors import NodeFailure, RuneError
from rune.nodes.blobs import BINARY, Blobs
from rune.nodes.redaction import SECRETS_IN_USE, Redactor
from rune.ports.credentials import Credential, CredentialDeniedError
from rune.ports.journal import StoreUnavailableError

MISSING = "CREDENTIAL_MISSING"
FORBIDDEN = "CREDENTIAL_FORBIDDEN"
UNREADABLE = "CREDENTIAL_UNREADABLE"
DENIED = "CREDENTIAL_DENIED"

CREDENTIAL_ERRORS = {
    MISSING: "the credential does not exist",
    FORBIDDEN: "the credential is of another type, or may not be sent to this host",
    UNREADABLE: "the credential cannot be opened: its key is missing or another",
    DENIED: "whoever started the execution was not granted the credential",
}
"""For the declaration of a node type that takes credentials."""

Reference = Mapping[str, Any]
"""As a document writes it: `name` or `id`, perhaps `type`."""


class CredentialResolver(Protocol):
    """Where credentials are resolved."""

    async def resolve(self, reference: str) -> Credential | None:
        """A credential with its values, or None."""


class CredentialUse:
    """What one call uses, and must not show."""

    def __init__(self) -> None:
        self.redactor = Redactor()
        self._credential: Credential | None = None
        self.renewed = False  # a token that was refused has been fetched anew

    async def credential(
        self,
        reference: Reference,
        secret: CredentialResolver | None,
        types: tuple[str, ...],
        host: str | None,
    ) -> Credential:
        """The credential, if this call may use it here."""
        if self._credential is None:
            self._credential = await _resolved(reference, secret)
            self.protect(*self._credential.fields.secrets())
        found = self._credential
        if types and found.type not in types:
            raise _forbidden(found, f"is of type {found.type}; this node takes {' or '.join(types)}")
        if host is not None:
            check_host(found, host)
        return found

    def protect(self, *values: str) -> None:
        """Hide these as well from now on."""
        self.redactor.add(values)
        SECRETS_IN_USE.add(self.redactor)

    def redact(self, progress: Callable[[float | str], None]) -> Callable[[float | str], None]:
        """What lookers-on are told, without what they must not see."""
        return lambda what: progress(self.redactor.text(what) if isinstance(what, str) else what)

    def close_run(self, outcome: Outcome) -> Outcome:
        """The outcome as it may be kept."""
        return self.redactor.outcome(outcome)

    def close(self) -> None:
        """The call is over."""
        SECRETS_IN_USE.remove(self.redactor)
        self._credential = None


async def _resolved(reference: Reference, secret: CredentialResolver | None) -> Credential:
    name, id, type = (reference.get(key) for key in ("name", "id", "type"))
    label = f"the credential `{name or id}`"
    try:
        found = await secret.resolve(str(id or name)) if secret is not None else None
    except StoreUnavailableError:
        raise
    except CredentialDeniedError as error:
        raise NodeFailure(error.message, code=DENIED) from None
    except RuneError as error:
        raise NodeFailure(f"{label} cannot be read: {error.message}", code=UNREADABLE) from None
    if found is None:
        raise NodeFailure(f"{label} does not exist here", code=MISSING)
    if (id is not None and found.id != id) or (name is not None and found.name != name):
        raise NodeFailure(
            f"{label} does not exist here: its name and id belong to different ones", code=MISSING
        )
    if type is not None and found.type != type:
        raise _forbidden(found, f"is of type {found.type}, and the node asks for {type}")
    return found


def check_host(credential: Credential, host: str) -> None:
    """Refuse to send a credential to a host that it is not for."""
    if not credential.fits(host):
        raise _forbidden(
            credential, f"may not be sent to {host}: it is bound to {', '.join(credential.hosts)}"
        )


def _forbidden(credential: Credential, why: str) -> NodeFailure:
    return NodeFailure(f"the credential `{credential.name}` {why}", code=FORBIDDEN)


class RedactingBlobs(Blobs):
    """Keeps bytes as all else is kept: without the values that are in use."""

    def __init__(self, blobs: Blobs, redactor: Redactor) -> None:
        super().__init__(blobs._store, blobs.execution)
        self._redactor = redactor

    async def put(self, data: bytes, name: str | None = None, content_type: str = BINARY) -> dict[str, Any]:
        """Keep bytes without the values in use."""
        return await super().put(self._redactor.bytes(data), name, content_type)


MAX_TOKENS = 256
EXPIRY_MARGIN_S = 30.0
"""A token is not used in its last seconds: it would expire on the way."""

Key = tuple[str, int]
"""Id and version of a credential: what was rotated gets a new token."""

Fetch = Callable[[], Awaitable[tuple[str, float]]]
"""A new token, and the seconds that it is good for."""


class TokenCache:
    """One for each worker process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[str, float]] = OrderedDict()
        self._fetching: dict[Key, asyncio.Lock] = {}

    async def get(self, key: Key, fetch: Fetch, *, instead_of: str | None = None) -> str:
        """The token of a credential; one that was refused is not given again. Of many who ask at once one fetches."""
        found = self._good(key, instead_of)
        if found is not None:
            return found
        lock = self._fetching.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                found = self._good(key, instead_of)
                if found is not None:
                    return found
                token, seconds = await fetch()
                self._keep(key, token, seconds)
                return token
        finally:
            if not lock.locked():
                self._fetching.pop(key, None)

    def _good(self, key: Key, refused: str | None) -> str | None:
        token, until = self._kept.get(key, ("", 0.0))
        return token if token and token != refused and time.monotonic() < until else None

    def _keep(self, key: Key, token: str, seconds: float) -> None:
        self._kept.pop(key, None)
        self._kept[key] = token, time.monotonic() + seconds - min(EXPIRY_MARGIN_S, seconds / 2)
        for old in [each for each in self._kept if each[0] == key[0] and each != key]:
            del self._kept[old]
        if len(self._kept) > MAX_TOKENS:
            self._kept.popitem(last=False)
