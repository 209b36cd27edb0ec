"""The definition: an immutable graph of nodes and edges, addressed by its content hash."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

Policy = Literal["halt", "ignore", "branch"]
JoinMode = Literal["all", "any"]


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether and when a failed attempt is retried. Delays are in seconds."""

    max_attempts: int = 1
    initial_delay: float = 1.0
    backoff: float = 2.0
    max_delay: float = 300.0
    jitter: bool = True
    on: tuple[str, ...] = ()


class ErrorPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens after the last attempt of a node failed."""

    type: Policy
    error_edge: str | None = None


class Pin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The output of a node that is given instead of calling the node, and the outlet that it leaves by. The output of a
    fan-out is the list of its items."""

    output: Any = None
    outlet: str | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One step of a definition. Without `error` a failure halts the execution, or is collected inside a split."""

    id: str
    type: str
    name: str = ""
    parameters: dict[str, Any] = {}
    credentials: dict[str, Any] | None = None
    retry: Retry | None = None
    timeout: float | None = None
    join: JoinMode | None = None
    error: ErrorPolicy | None = None
    queue: str | None = None
    at_most_once: bool = False
    idempotency_key: bool = True
    trigger: bool = False
    pin: Pin | None = None
    output: Any = None
    position: Any = None
    metadata: Any = None
    notes: Any = None


class Edge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A connection from one node to another, from the outlet that `label` names."""

    id: str
    src: str
    dst: str
    label: str | None = None
    is_error: bool = False


HookStatus = Literal["failed", "halted", "cancelled", "failed_items"]
HOOKED: tuple[HookStatus, ...] = ("failed", "halted")
NO_HANDLER = "none"
DEFAULT_QUEUE = "default"


class HookHandler(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The workflow that is started when an execution ends with one of these statuses. `failed` selects halted ones too;
    `failed_items`: completed, but items failed. `none`: none is."""

    workflow: str
    version: int | str | None = None
    statuses: tuple[HookStatus, ...] = HOOKED

    def __str__(self) -> str:
        return self.workflow if self.version is None else f"{self.workflow}@{self.version}"

    def handles(self, status: str) -> bool:
        """Return whether it is started for an end with this status."""
        return status in self.statuses or (status == "halted" and "failed" in self.statuses)


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How executions of this definition run. Timeouts are in seconds. `callable_by`: the workflows that may start this
    one as a child although it is outside of their scope. An execution that is open `expect_within` s after its start is
    late, which changes nothing but starts `on_late`. A deployed workflow none of whose executions completes for
    `expect_every` s starts `on_missing`."""

    timeout: float | None = None
    join_timeout: float = 300.0
    max_parallel: int | None = None
    priority: int = 5
    executor: Literal["rune", "legacy"] = "rune"
    callable_by: tuple[str, ...] = ()
    on_failure: HookHandler | None = None
    expect_within: float | None = None
    on_late: HookHandler | None = None
    expect_every: float | None = None
    on_missing: HookHandler | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow. Documents with the same meaning have the same canonical form and hash."""

    id: str
    name: str = ""
    inputs: dict[str, Any] | None = None
    settings: Settings = Settings()
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    metadata: Any = None
    notes: Any = None


_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical(definition: Definition) -> bytes:
    """Return the canonical form of a definition: JSON with sorted keys, without defaults, and without the fields that
    only present it (`position` and `notes`): a moved box is the same definition."""
    return _ENCODER.encode(_without_presentation(definition))


def _without_presentation(definition: Definition) -> Definition:
    nodes = definition.nodes
    if any(node.position is not None or node.notes is not None for node in nodes):
        nodes = tuple(msgspec.structs.replace(node, position=None, notes=None) for node in nodes)
    elif definition.notes is None:
        return definition
    return msgspec.structs.replace(definition, nodes=nodes, notes=None)


def content_hash(definition: Definition) -> str:
    """Return the SHA-256 of the canonical form, which identifies the definition."""
    return hashlib.sha256(canonical(definition)).hexdigest()
