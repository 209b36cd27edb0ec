"""The part of the desk that says how many starts there may be.

The part of the desk that says who may do what: keys of the API, and grants of credentials.
"""

from __future__ import annotations

from typing import Any

from rune.core.permissions import ROLES, Role, is_grant, is_scope
from rune.ports.access import (
    NO_LIMITS,
    ApiKey,
    InvalidKeyError,
    InvalidLimitsError,
    Limits,
    check_limits,
    is_key_id,
    key_not_found,
    of_key,
    of_workflow,
)
from rune.ports.credentials import CredentialError, CredentialNotFoundError
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.backend import Backend
from rune.runtime.queries.history import iso
from rune.runtime.services.audit_log import AuditLog, audited, current_principal
from rune.runtime.services.limits import Limiter


@audited
class LimitService:
    """What people ask of limits."""

    def __init__(self, backend: Backend, limiter: Limiter) -> None:
        self._access = backend
        self._limiter = limiter
        self.logbook = AuditLog(backend.log, backend.clock)

    async def limit_workflow(self, workflow: str, limits: Limits) -> Limits:
        """Set all limits of a workflow, from the next start on; those that are not given are lifted."""
        check_limits(limits)
        if not await self._access.library.aliases(workflow):
            raise workflow_not_found(workflow, (), LATEST)
        await self._limit(of_workflow(workflow), limits)
        return limits

    async def limit_key(self, id: str, limits: Limits) -> Limits:
        """Set all limits of a key, from its next start on; those that are not given are lifted."""
        _check_key_limits(limits)
        if await self._access.keys.find(id) is None:
            raise key_not_found(id)
        await self._limit(of_key(id), limits)
        return limits

    async def _limit_new_key(self, id: str, limits: Limits) -> None:
        """Set the limits of a key that is about to be made: there is no moment at which it has none."""
        _check_key_limits(limits)
        if limits:
            await self._limit(of_key(id), limits)

    async def _limit(self, subject: str, limits: Limits) -> None:
        await self._access.limits.put(subject, limits, self._access.clock.now())
        self._limiter.forget()


def _check_key_limits(limits: Limits) -> None:
    check_limits(limits)
    if limits.waiting is not None:
        raise InvalidLimitsError("a queue is not a key's: `waiting` is set with a workflow")


MAX_SCOPES = 32
MAX_GRANTS = 64
DIGEST = 32


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


@audited
class AccessService(LimitService):
    """Verbs of admins."""

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
        """Keep a key that somebody made up. Its secret stays with whoever made it; what comes here is the digest."""
        now = self._access.clock.now()
        _check(id, digest, name, role, scopes)
        if expires_at is not None and expires_at <= now:
            raise InvalidKeyError("a key that ended before it was made opens nothing")
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
        await self._limit_new_key(id, limits)
        return await self._access.keys.put(key)

    async def revoke_key(self, id: str) -> ApiKey:
        """Let a key open nothing any more, at once and everywhere."""
        return await self._access.keys.revoke(id, self._access.clock.now())

    async def grant_credential(self, reference: str, whom: tuple[str, ...]) -> frozenset[str]:
        """Let somebody use a credential; who may, afterwards."""
        return await self._regrant(reference, whom, ())

    async def withdraw_credential(self, reference: str, whom: tuple[str, ...]) -> frozenset[str]:
        """Let somebody use a credential no more; who may, afterwards."""
        return await self._regrant(reference, (), whom)

    async def _regrant(self, reference: str, add: tuple[str, ...], remove: tuple[str, ...]) -> frozenset[str]:
        for each in (*add, *remove):
            if not is_grant(each):
                raise CredentialError(
                    f"`{each[:60]}` names nobody: `everyone`, `queue`, `local`, `bootstrap`, `key:ID`, `trigger:ID` or"
                    " `workflow:ID`, where an ID may hold `*`"
                )
        found = await self._access.secret.find(reference)
        if found is None:
            raise CredentialNotFoundError(f"there is no credential `{reference[:128]}`")
        if len(add) + len(await self._access.grants.of(found.id)) > MAX_GRANTS:
            raise CredentialError(f"a credential is granted to at most {MAX_GRANTS}")
        return await self._access.grants.change(found.id, add, remove)


def _check(id: str, digest: bytes, name: str, role: str, scopes: tuple[str, ...]) -> None:
    if not is_key_id(id) or len(digest) != DIGEST:
        raise InvalidKeyError("a key is a `k` with 16 hexadecimal digits, and a digest of 32 bytes")
    if not 0 < len(name) <= 128 or not name.isprintable():
        raise InvalidKeyError("the name of a key has 1 to 128 printable characters")
    if role not in ROLES:
        raise InvalidKeyError(f"`{role[:40]}` is no role; there are {', '.join(ROLES)}")
    if len(scopes) > MAX_SCOPES or not all(map(is_scope, scopes)):
        raise InvalidKeyError(
            f"a scope is the id of a workflow, perhaps with `*`; at most {MAX_SCOPES} of them"
        )
    if scopes and role == "admin":
        raise InvalidKeyError("an admin changes what belongs to no workflow: the role cannot have a scope")
