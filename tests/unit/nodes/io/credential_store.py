"""An in-memory credential store, and a run of a node with a credential."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rune.core.execution.outcome import Failure, Outcome
from rune.core.plan.model import compile_parameters
from rune.errors import RuneError
from rune.nodes.base import Resources
from rune.nodes.blobs import Blobs
from rune.nodes.registry import execute_async, prepare, standard_registry
from rune.ports.credentials import Credential, CredentialSummary, NewCredential, fields_of
from rune.testing.mocks import MemoryBlob
from tests.support.io_nodes import KEY, NAMES, NOW

CANARY = 'kanari-9/f3"+\u00fc d0c7'
"""A secret that differs in every encoding."""

TOKEN = "kanari-9f3d0c7-e51b"
"""A secret that is valid in a header."""

NO_CREDENTIAL: dict[str, Any] = {}
"""Marks a node without a credential."""


class FakeCredentialStore:
    """A credential store with fixed credentials that only resolves."""

    def __init__(self, *credentials: Credential, error: RuneError | None = None) -> None:
        self.credentials = list(credentials)
        self.error = error
        self.resolve_count = 0

    async def resolve(self, reference: str) -> Credential | None:
        self.resolve_count += 1
        if self.error is not None:
            raise self.error
        return next((each for each in self.credentials if reference in (each.name, each.id)), None)

    async def put(self, draft: NewCredential) -> CredentialSummary:
        raise NotImplementedError

    async def list(self) -> Sequence[CredentialSummary]:
        raise NotImplementedError

    async def find(self, reference: str) -> CredentialSummary | None:
        raise NotImplementedError

    async def rotate(
        self,
        reference: str,
        values: Mapping[str, Any],
        hosts: tuple[str, ...] | None,
        at: int,
        insecure: bool | None = None,
    ) -> CredentialSummary:
        raise NotImplementedError

    async def remove(self, reference: str) -> CredentialSummary:
        raise NotImplementedError

    async def rekey(self) -> int:
        raise NotImplementedError


def credential(
    type: str,
    values: Mapping[str, Any],
    *,
    name: str = "shop",
    hosts: tuple[str, ...] = (),
    version: int = 1,
    insecure: bool | None = True,
) -> Credential:
    fields = fields_of(type, values)
    return Credential(
        id="c" + "0" * 32,
        name=name,
        type=type,
        version=version,
        fields=fields,
        hosts=hosts,
        insecure=insecure,
    )


async def run_with_credential(
    type: str,
    parameters: Mapping[str, Any],
    resources: Resources,
    reference: Mapping[str, Any] | None = None,
    store: MemoryBlob | None = None,
) -> Outcome:
    """Run a node with a credential; the outcome is redacted as in the engine."""
    kind = standard_registry()[type]
    compiled = compile_parameters(kind.type, parameters, NAMES)
    prepared = prepare(
        kind,
        compiled,
        {"$json": None},
        now=NOW,
        idempotency_key=KEY,
        resources=resources,
        blobs=Blobs(store or MemoryBlob(), "x1"),
        credentials=None if reference is NO_CREDENTIAL else reference or {"name": "shop"},
    )
    assert not isinstance(prepared, Failure)
    outcome = await execute_async(kind, prepared)
    if prepared.usage is None:
        return outcome
    prepared.usage.close()
    return prepared.usage.close_run(outcome)
