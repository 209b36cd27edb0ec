"""Credentials of node calls: resolution, usage checks, redaction and cached access tokens.

A credential is resolved on first use, kept for the duration of the call and redacted from everything the call
records. Access tokens are cached in memory only, until they expire.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rune.core.execution.outcome import Outcome
from rune.errors import NodeFailure, RuneError
from rune.nodes.blobs import BINARY, Blobs
from rune.nodes.redaction import SECRETS_IN_USE, Redactor
from rune.ports.credentials import Credential, CredentialDeniedError
from rune.ports.journal import StoreUnavailableError

if TYPE_CHECKING:
    from asyncio import Lock

MISSING = "CREDENTIAL_MISSING"
FORBIDDEN = "CREDENTIAL_FORBIDDEN"
UNREADABLE = "CREDENTIAL_UNREADABLE"
DENIED = "CREDENTIAL_DENIED"

MAX_TOKENS = 256
# A token is not used in its last seconds: it could expire before the request arrives.
EXPIRY_MARGIN_S = 30.0

CREDENTIAL_ERRORS = {
    MISSING: "the credential does not exist",
    FORBIDDEN: "the credential has another type, or may not be sent to this host or without verified TLS",
    UNREADABLE: "the credential cannot be decrypted: its key is missing or different",
    DENIED: "the user who started the execution has no access to the credential",
}
"""Error codes of node types that accept credentials."""

PERMANENT_CREDENTIAL_ERRORS = frozenset({MISSING, FORBIDDEN, DENIED})
"""Not `CREDENTIAL_UNREADABLE`: the next attempt may run on a worker that has the key."""

Reference = Mapping[str, Any]
"""A credential reference in a document: `name` or `id`, optionally `type`."""

TokenKey = tuple[str, int]
"""Id and version of a credential; rotating the credential invalidates its token."""

FetchToken = Callable[[], Awaitable[tuple[str, float]]]
"""Fetch a new token; return it with its lifetime in seconds."""


class CredentialResolver(Protocol):
    """Resolves credential references."""

    async def resolve(self, reference: str) -> Credential | None:
        """Return the credential with its values, or None if it does not exist."""


class CredentialUse:
    """The credential of one call, with the values to redact from its results."""

    def __init__(self) -> None:
        self.redactor = Redactor()
        self._credential: Credential | None = None
        # Set after a rejected token was replaced, which happens once per call.
        self.renewed = False

    async def credential(
        self,
        reference: Reference,
        secret: CredentialResolver | None,
        types: tuple[str, ...],
        host: str | None,
    ) -> Credential:
        """Return the credential if this call may use it for this host."""
        if self._credential is None:
            self._credential = await _resolve(reference, secret)
            self.protect(*self._credential.fields.secrets())
        found = self._credential
        if types and found.type not in types:
            raise _forbidden(found, f"has type {found.type}; this node accepts {' or '.join(types)}")
        if host is not None:
            check_host(found, host)
        return found

    def protect(self, *values: str) -> None:
        """Redact these values from now on."""
        self.redactor.add(values)
        SECRETS_IN_USE.add(self.redactor)

    def redact(self, progress: Callable[[float | str], None]) -> Callable[[float | str], None]:
        """Wrap a progress callback so that its texts are redacted."""
        return lambda what: progress(self.redactor.text(what) if isinstance(what, str) else what)

    def close_run(self, outcome: Outcome) -> Outcome:
        """Return the outcome with secrets redacted."""
        return self.redactor.outcome(outcome)

    def close(self) -> None:
        """Drop the credential at the end of the call."""
        SECRETS_IN_USE.remove(self.redactor)
        self._credential = None


async def _resolve(reference: Reference, secret: CredentialResolver | None) -> Credential:
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
        raise NodeFailure(f"{label} does not exist", code=MISSING)
    if (id is not None and found.id != id) or (name is not None and found.name != name):
        raise NodeFailure(
            f"{label} does not exist: its name and id belong to different credentials", code=MISSING
        )
    if type is not None and found.type != type:
        raise _forbidden(found, f"has type {found.type}, but the node requires {type}")
    return found


def check_host(credential: Credential, host: str) -> None:
    """Fail the node if the credential is not bound to this host."""
    if not credential.fits(host):
        raise _forbidden(
            credential, f"may not be sent to {host}: it is bound to {', '.join(credential.hosts)}"
        )


def check_connection(credential: Credential, where: str, *, verified: bool) -> None:
    """Fail the node if the connection is not TLS with a verified certificate, unless the credential permits that.

    A credential of an older version does not state it and is not restricted.
    """
    if not verified and credential.insecure is False:
        raise _forbidden(
            credential,
            f"may not be sent to {where}: the connection is not TLS with a verified certificate, and the credential is"
            " not `insecure`",
        )


def _forbidden(credential: Credential, reason: str) -> NodeFailure:
    return NodeFailure(f"the credential `{credential.name}` {reason}", code=FORBIDDEN)


class RedactingBlobs(Blobs):
    """Stores blobs with the secrets of the call redacted."""

    def __init__(self, blobs: Blobs, redactor: Redactor) -> None:
        super().__init__(blobs._store, blobs.execution)
        self._redactor = redactor

    async def put(self, data: bytes, name: str | None = None, content_type: str = BINARY) -> dict[str, Any]:
        """Store bytes with secrets redacted."""
        return await super().put(self._redactor.bytes(data), name, content_type)


class TokenCache:
    """Access tokens of one worker process, by credential."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[TokenKey, tuple[str, float]] = OrderedDict()
        self._fetching: dict[TokenKey, Lock] = {}

    async def get(self, key: TokenKey, fetch: FetchToken, *, instead_of: str | None = None) -> str:
        """Return the token of a credential, never the rejected `instead_of`. Concurrent callers share one fetch."""
        found = self._valid_token(key, instead_of)
        if found is not None:
            return found
        from asyncio import Lock  # noqa: PLC0415 - writing a workflow needs no event loop

        lock = self._fetching.setdefault(key, Lock())
        try:
            async with lock:
                found = self._valid_token(key, instead_of)
                if found is not None:
                    return found
                token, seconds = await fetch()
                self._store(key, token, seconds)
                return token
        finally:
            if not lock.locked():
                self._fetching.pop(key, None)

    def _valid_token(self, key: TokenKey, rejected: str | None) -> str | None:
        token, until = self._tokens.get(key, ("", 0.0))
        return token if token and token != rejected and time.monotonic() < until else None

    def _store(self, key: TokenKey, token: str, seconds: float) -> None:
        self._tokens.pop(key, None)
        self._tokens[key] = token, time.monotonic() + seconds - min(EXPIRY_MARGIN_S, seconds / 2)
        for old in [each for each in self._tokens if each[0] == key[0] and each != key]:
            del self._tokens[old]
        if len(self._tokens) > MAX_TOKENS:
            self._tokens.popitem(last=False)
