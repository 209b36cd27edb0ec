"""Where a credential is used: the nodes that refer to it in the versions that starts choose."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from rune.ports.workflows import WorkflowStore
from rune.runtime.plan_cache import PlanCache


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
