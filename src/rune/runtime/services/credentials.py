"""Operations on credentials, on the grants that allow principals to use them, and a search for the workflows that do.

Values are stored and never returned: results, logs and error messages do not contain what `add` and `rotate` receive.
Arguments and results are plain data, so that the owner of a database file can run them for other processes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from rune.core.permissions import is_grant
from rune.ports.clock import Clock
from rune.ports.credentials import (
    ANY_HOST,
    CredentialError,
    CredentialGrants,
    CredentialNotFoundError,
    CredentialStore,
    CredentialSummary,
    NewCredential,
    Smtp,
    fields_of,
    is_id,
)
from rune.ports.workflows import WorkflowStore
from rune.runtime.plan_cache import PlanCache
from rune.runtime.services.audit_log import AuditLog, audited
from rune.runtime.services.principal import current_principal

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*|[0-9a-f:]+")
MAX_HOSTS = 100
MAX_GRANTS = 64


class CredentialService:
    """Stores, rotates, removes and grants credentials."""

    def __init__(
        self, store: CredentialStore, grants: CredentialGrants, clock: Clock, audit_log: AuditLog
    ) -> None:
        self.audit_log = audit_log
        self._store = store
        self._grants = grants
        self._clock = clock

    @audited("credential.add", "name", ("type", "hosts", "insecure", "grants"))
    async def add(
        self,
        name: str,
        type: str,
        values: dict[str, Any],
        hosts: tuple[str, ...] = (),
        id: str | None = None,
        insecure: bool = False,
        grants: tuple[str, ...] = (),
    ) -> CredentialSummary:
        """Store a new credential, granted to `grants`; if there are none, to the principal that adds it.

        It must name its hosts. A caller that may have to repeat the call passes an id.
        """
        if id is not None and not is_id(id):
            raise CredentialError("the id of a credential is a `c` and 32 hexadecimal digits")
        if not _NAME.fullmatch(name) or is_id(name):
            raise CredentialError(
                f"`{name[:60]}` cannot be the name of a credential: letters, digits, `.`, `_` and `-`, at most 128"
            )
        _check_grants(grants)
        fields = fields_of(type, values)
        if not hosts and isinstance(fields, Smtp):
            hosts = (fields.host,)
        draft = NewCredential(
            id=id or new_id(),
            name=name,
            fields=fields,
            hosts=_hosts(hosts),
            insecure=insecure,
            grants=frozenset(grants or (current_principal(),)),
            at=self._clock.now(),
        )
        return await self._store.put(draft)

    async def list(self) -> tuple[CredentialSummary, ...]:
        """Return all credentials without their values."""
        return tuple(await self._store.list())

    async def show(self, reference: str) -> CredentialSummary:
        """Return one credential without its values."""
        found = await self._store.find(reference)
        if found is None:
            raise CredentialNotFoundError(f"there is no credential `{reference[:128]}`")
        return found

    @audited("credential.rotate", "reference", ("hosts", "insecure"))
    async def rotate(
        self,
        reference: str,
        values: dict[str, Any],
        hosts: tuple[str, ...] | None = None,
        insecure: bool | None = None,
    ) -> CredentialSummary:
        """Replace values of a credential; values that are not given stay."""
        if not values and hosts is None and insecure is None:
            raise CredentialError("no new value and no new hosts were given")
        if hosts is None and "host" in values and (await self.show(reference)).type == "smtp":
            hosts = (str(values["host"]),)
        bound = None if hosts is None else _hosts(hosts)
        return await self._store.rotate(reference, values, bound, self._clock.now(), insecure)

    @audited("credential.remove", "reference")
    async def remove(self, reference: str) -> CredentialSummary:
        """Delete a credential."""
        return await self._store.remove(reference)

    @audited("credential.rekey")
    async def reencrypt(self) -> int:
        """Encrypt all credentials with the newest key; return how many were not yet."""
        return await self._store.reencrypt()

    @audited("credential.grant", "reference", ("whom",))
    async def grant(self, reference: str, whom: tuple[str, ...]) -> frozenset[str]:
        """Allow principals to use a credential; return all that may afterwards."""
        return await self._change_grants(reference, whom, ())

    @audited("credential.withdraw", "reference", ("whom",))
    async def withdraw(self, reference: str, whom: tuple[str, ...]) -> frozenset[str]:
        """Withdraw grants of a credential; return those that remain."""
        return await self._change_grants(reference, (), whom)

    async def _change_grants(
        self, reference: str, add: tuple[str, ...], remove: tuple[str, ...]
    ) -> frozenset[str]:
        _check_grants((*add, *remove))
        found = await self.show(reference)
        if len(add) + len(await self._grants.of(found.id)) > MAX_GRANTS:
            raise CredentialError(f"a credential has at most {MAX_GRANTS} grants")
        return await self._grants.change(found.id, add, remove)


def new_id() -> str:
    """Return a random credential id."""
    return f"c{secrets.token_hex(16)}"


def _check_grants(given: Sequence[str]) -> None:
    if len(given) > MAX_GRANTS:
        raise CredentialError(f"a credential has at most {MAX_GRANTS} grants")
    for each in given:
        if not is_grant(each):
            raise CredentialError(
                f"`{each[:60]}` is no principal: `everyone`, `queue`, `local`, `bootstrap`, `key:ID`,"
                " `trigger:ID`, `handler:WORKFLOW` or `workflow:ID`, where an ID may hold `*`"
            )


def _hosts(given: Sequence[str]) -> tuple[str, ...]:
    """Normalise host names, `*.domain` patterns and addresses for comparison."""
    if not given:
        raise CredentialError(
            "name the hosts that may receive the credential, such as `api.example.com`; `*` is any host",
            code="CREDENTIAL_HOSTS",
        )
    found = tuple(dict.fromkeys(each.strip().lower().removesuffix(".").strip("[]") for each in given))
    if len(found) > MAX_HOSTS:
        raise CredentialError(f"a credential is bound to at most {MAX_HOSTS} hosts")
    for each in found:
        if each != ANY_HOST and not _HOST.fullmatch(each):
            raise CredentialError(f"`{each[:80]}` is neither a host nor a `*.domain`")
    return found


class CredentialUse(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a workflow, and those of its nodes that refer to the credential."""

    workflow: str
    name: str
    version: int
    aliases: tuple[str, ...]
    nodes: tuple[str, ...]


async def credential_uses(
    credential: str, name: str, workflows: WorkflowStore, plans: PlanCache, sees: Callable[[str], bool]
) -> AsyncIterator[CredentialUse]:
    """Yield the uses of a credential by its id or name, ordered by workflow and version, in the workflows that the
    caller sees. Only the latest version and those with an alias are considered; references by expressions are not."""
    for entry in filter(lambda each: sees(each.workflow), await workflows.list()):
        for number in sorted({entry.latest, *entry.aliases.values()}):
            found = await workflows.find(entry.workflow, str(number))
            definition = (await plans.plan(found.hash)).definition
            nodes = [each.id for each in definition.nodes if _refers(each.credentials, credential, name)]
            if nodes:
                yield CredentialUse(
                    workflow=entry.workflow,
                    name=entry.name,
                    version=number,
                    aliases=found.aliases,
                    nodes=tuple(nodes),
                )


def _refers(given: dict[str, object] | None, credential: str, name: str) -> bool:
    return given is not None and (given.get("name") == name or given.get("id") == credential)
