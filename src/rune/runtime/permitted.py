"""Permits: which credentials an execution may use, decided each time one is asked for."""

from __future__ import annotations

from rune.core.rights import permits
from rune.nodes.usage import Resolving
from rune.ports.grants import Grants
from rune.ports.journal import Accepted
from rune.ports.library import Library
from rune.ports.secret import Credential, Denied


class Permits:
    """Knows who may use which credential."""

    def __init__(self, grants: Grants, library: Library) -> None:
        self._grants = grants
        self._library = library

    def of(self, secret: Resolving | None, execution: Accepted) -> PermittedSecret | None:
        """The credentials as an execution may use them."""
        return None if secret is None else PermittedSecret(secret, self, execution)

    async def check(self, credential: Credential, execution: Accepted) -> None:
        """Refuse an execution whose principal was not granted the credential."""
        grants = await self._grants.of(credential.id)
        asks, workflow = execution.principal, execution.workflow
        if permits(grants, asks, workflow, stored=False):
            return
        by_workflow = permits(grants, asks, workflow, stored=True)
        if by_workflow and await self._is_stored(workflow, execution.hash):
            return
        raise Denied(f"`{asks}`, who started this, was not granted the credential `{credential.name}`")

    async def _is_stored(self, workflow: str, hash: str) -> bool:
        return any(each.hash == hash for each in await self._library.versions(workflow))


class PermittedSecret:
    """The credentials of everybody, of which one execution is given its own."""

    def __init__(self, secret: Resolving, permits: Permits, execution: Accepted) -> None:
        self._secret = secret
        self._permits = permits
        self._execution = execution

    async def resolve(self, reference: str) -> Credential | None:
        """A credential with its values, if the execution may use it."""
        found = await self._secret.resolve(reference)
        if found is not None:
            await self._permits.check(found, self._execution)
        return found
