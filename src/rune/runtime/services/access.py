"""API keys."""

from __future__ import annotations

from typing import Any

from rune.core.permissions import ROLES, Role, is_scope
from rune.ports.access import (
    NO_LIMITS,
    ApiKey,
    ApiKeyStore,
    InvalidKeyError,
    Limits,
    is_key_id,
)
from rune.ports.clock import Clock, iso
from rune.runtime.services.audit_log import AuditLog, audited
from rune.runtime.services.principal import current_principal
from rune.runtime.services.start_limits import LimitService

MAX_SCOPES = 32
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
