"""Credentials for tests of nodes: a drawer that holds them open, and a call that uses one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rune.core.execution.outcome import Failure, Outcome
from rune.core.plan.parameters import compile_parameters
from rune.errors import RuneError
from rune.nodes.blobs import Blobs
from rune.nodes.registry import execute_async, prepare, standard_registry
from rune.nodes.resources import Resources
from rune.ports.credentials import Credential, CredentialSummary, NewCredential, fields_of
from rune.testing.nodes import MemoryBlob
from tests.unit.nodes.io.calling import KEY, NAMES, NOW

CANARY = 'kanari-9/f3"+\u00fc d0c7'
"""Looks different in every encoding."""

TOKEN = "kanari-9f3d0c7-e51b"
"""Fits into a header."""

NONE: dict[str, Any] = {}
"""For a node that names no credential."""


class Drawer:
    """A store of credentials that does nothing but answer."""

    def __init__(self, *credentials: Credential, error: RuneError | None = None) -> None:
        self.credentials = list(credentials)
        self.error = error
        self.asked = 0

    async def resolve(self, reference: str) -> Credential | None:
        self.asked += 1
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
        self, reference: str, values: Mapping[str, Any], hosts: tuple[str, ...] | None, at: int
    ) -> CredentialSummary:
        raise NotImplementedError

    async def remove(self, reference: str) -> CredentialSummary:
        raise NotImplementedError

    async def rekey(self) -> int:
        raise NotImplementedError


def credential(
    type: str, values: Mapping[str, Any], *, name: str = "shop", hosts: tuple[str, ...] = (), version: int = 1
) -> Credential:
    fields = fields_of(type, values)
    return Credential(id="c" + "0" * 32, name=name, type=type, version=version, fields=fields, hosts=hosts)


async def use(
    type: str,
    parameters: Mapping[str, Any],
    world: Resources,
    reference: Mapping[str, Any] | None = None,
    store: MemoryBlob | None = None,
) -> Outcome:
    """The outcome of one run with a credential, redacted as the engine does."""
    kind = standard_registry()[type]
    compiled = compile_parameters(kind.type, parameters, NAMES)
    prepared = prepare(
        kind,
        compiled,
        {"$json": None},
        now=NOW,
        idempotency_key=KEY,
        resources=world,
        blobs=Blobs(store or MemoryBlob(), "x1"),
        credentials=None if reference is NONE else reference or {"name": "shop"},
    )
    assert not isinstance(prepared, Failure)
    outcome = await execute_async(kind, prepared)
    if prepared.usage is None:
        return outcome
    prepared.usage.close()
    return prepared.usage.close_run(outcome)
