"""Which child workflows a document names that are not deployed where it is to run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from rune.core.definition.problems import UNKNOWN_CHILD, Problem
from rune.core.validation.validate import ValidationResult
from rune.documents.loader import locate
from rune.ports.workflows import WorkflowNotFoundError, WorkflowStore

MAX_CHILDREN = 100
"""So many different children of a document are looked up."""

IsDeployed = Callable[[str, str | None], Awaitable[bool]]
"""Returns whether a workflow has a version: a number, an alias, or any."""


class Child(NamedTuple):
    """A workflow that a node starts."""

    at: int
    node: str
    workflow: str
    version: str | None


def children(document: ValidationResult) -> Iterator[Child]:
    """Yield the children that a valid document names. A name that an expression computes is known only when the node
    runs."""
    definition = document.definition
    if definition is None or not document.valid:
        return
    for at, (node, kind, compiled) in enumerate(
        zip(definition.nodes, document.types, document.parameters, strict=False)
    ):
        if kind is None or not kind.launches or compiled is None:
            continue
        workflow, version = compiled.fixed.get("workflow"), compiled.fixed.get("version")
        if "version" in dict(compiled.dynamic) or not isinstance(workflow, str):
            continue
        if workflow != definition.id or version is not None:
            yield Child(at, node.id, workflow, None if version is None else str(version))


async def undeployed_children(document: ValidationResult, is_deployed: IsDeployed) -> tuple[Problem, ...]:
    """Return a warning for each node whose child is not deployed."""
    known: dict[tuple[str, str | None], bool] = {}
    found = []
    for child in children(document):
        key = child.workflow, child.version
        if key not in known:
            if len(known) == MAX_CHILDREN:
                break
            known[key] = await is_deployed(*key)
        if not known[key]:
            found.append(_warning(child))
    return tuple(locate(tuple(found), document.source)) if found else ()


def _warning(child: Child) -> Problem:
    named = child.workflow if child.version is None else f"{child.workflow}@{child.version}"
    return Problem(
        f"nodes[{child.at}].parameters.workflow",
        UNKNOWN_CHILD,
        f"`{child.node}` starts `{named}`, which is not deployed",
        "deploy it before this workflow runs: until then the node fails with UNKNOWN_WORKFLOW",
        "warning",
    )


async def is_stored(store: WorkflowStore, workflow: str, version: str | None) -> bool:
    """Return whether a store has a workflow, and the version of it."""
    with suppress(WorkflowNotFoundError):
        await store.find(workflow, version)
        return True
    return False
