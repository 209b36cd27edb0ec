"""What the parts of a client need of it: one way to ask, which either answers or is awaited.

What clients ask of credentials. Values go in and never come out.

What clients ask of triggers.

What clients ask of limits.

What clients ask of the machinery: processes, and the node types that they know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Literal, Protocol
from urllib.parse import quote

import msgspec

from rune.client.calls import API, Call
from rune.client.models import Limits, Model


class SendsCalls(Protocol):
    """A client that waits for one thing at a time."""

    def _ask(self, call: Call[Any]) -> Any: ...


class SendsCallsAsync(Protocol):
    """A client that waits for many things at once."""

    def _ask(self, call: Call[Any]) -> Awaitable[Any]: ...


class Credential(Model, frozen=True, kw_only=True):
    """What is told of a credential: everything but its values."""

    id: str
    name: str
    type: str
    version: int
    fields: list[str]
    hosts: list[str]
    created_at: str
    changed_at: str
    key: str = ""


class CredentialList(Model, frozen=True, kw_only=True):
    """All of them."""

    credentials: list[Credential]


class Granted(Model, frozen=True, kw_only=True):
    """Who may use a credential."""

    granted: list[str]


def list_credentials() -> Call[CredentialList]:
    return Call(method="GET", path=f"{API}/credentials", answer=CredentialList, repeatable=True)


def get_credential(name: str) -> Call[Credential]:
    return Call(method="GET", path=_credential_path(name), answer=Credential, repeatable=True)


def add_credential(name: str, type: str, values: dict[str, Any], hosts: Sequence[str]) -> Call[Credential]:
    body = msgspec.json.encode({"name": name, "type": type, "values": values, "hosts": list(hosts)})
    return Call(method="POST", path=f"{API}/credentials", answer=Credential, body=body)


def rotate_credential(name: str, values: dict[str, Any], hosts: Sequence[str] | None) -> Call[Credential]:
    given = {"values": values} | ({} if hosts is None else {"hosts": list(hosts)})
    return Call(
        method="PATCH", path=_credential_path(name), answer=Credential, body=msgspec.json.encode(given)
    )


def remove_credential(name: str) -> Call[None]:
    return Call(method="DELETE", path=_credential_path(name), answer=None)


def list_grants(name: str) -> Call[Granted]:
    return Call(method="GET", path=f"{_credential_path(name)}/grants", answer=Granted, repeatable=True)


def change_grants(name: str, grant: Sequence[str], withdraw: Sequence[str]) -> Call[Granted]:
    body = msgspec.json.encode({"grant": list(grant), "withdraw": list(withdraw)})
    return Call(
        method="POST", path=f"{_credential_path(name)}/grants", answer=Granted, body=body, repeatable=True
    )


def _credential_path(name: str) -> str:
    return f"{API}/credentials/{quote(name, safe='')}"


class CredentialCalls:
    """Credentials, for the client that waits for one thing at a time."""

    def credentials(self: SendsCalls) -> list[Credential]:
        """All of them by name, without values."""
        found: CredentialList = self._ask(list_credentials())
        return found.credentials

    def credential(self: SendsCalls, name: str) -> Credential:
        """One of them, by its name or id."""
        found: Credential = self._ask(get_credential(name))
        return found

    def add_credential(
        self: SendsCalls, name: str, type: str, values: dict[str, Any], *, hosts: Sequence[str] = ()
    ) -> Credential:
        """Store one; `hosts` are the only ones that it is sent to."""
        found: Credential = self._ask(add_credential(name, type, values, hosts))
        return found

    def rotate_credential(
        self: SendsCalls, name: str, values: dict[str, Any], *, hosts: Sequence[str] | None = None
    ) -> Credential:
        """Give it new values; what is not given stays."""
        found: Credential = self._ask(rotate_credential(name, values, hosts))
        return found

    def remove_credential(self: SendsCalls, name: str) -> None:
        """Forget it."""
        self._ask(remove_credential(name))

    def granted(self: SendsCalls, name: str) -> list[str]:
        """Who may use it."""
        found: Granted = self._ask(list_grants(name))
        return found.granted

    def grant(
        self: SendsCalls, name: str, whom: Sequence[str] = (), *, withdraw: Sequence[str] = ()
    ) -> list[str]:
        """Say who may use it from now on, and who no more; who may, afterwards."""
        found: Granted = self._ask(change_grants(name, whom, withdraw))
        return found.granted


class AsyncCredentialCalls:
    """Credentials, for the client that waits for many things at once."""

    async def credentials(self: SendsCallsAsync) -> list[Credential]:
        """All of them by name, without values."""
        found: CredentialList = await self._ask(list_credentials())
        return found.credentials

    async def credential(self: SendsCallsAsync, name: str) -> Credential:
        """One of them, by its name or id."""
        found: Credential = await self._ask(get_credential(name))
        return found

    async def add_credential(
        self: SendsCallsAsync, name: str, type: str, values: dict[str, Any], *, hosts: Sequence[str] = ()
    ) -> Credential:
        """Store one; `hosts` are the only ones that it is sent to."""
        found: Credential = await self._ask(add_credential(name, type, values, hosts))
        return found

    async def rotate_credential(
        self: SendsCallsAsync, name: str, values: dict[str, Any], *, hosts: Sequence[str] | None = None
    ) -> Credential:
        """Give it new values; what is not given stays."""
        found: Credential = await self._ask(rotate_credential(name, values, hosts))
        return found

    async def remove_credential(self: SendsCallsAsync, name: str) -> None:
        """Forget it."""
        await self._ask(remove_credential(name))

    async def granted(self: SendsCallsAsync, name: str) -> list[str]:
        """Who may use it."""
        found: Granted = await self._ask(list_grants(name))
        return found.granted

    async def grant(
        self: SendsCallsAsync, name: str, whom: Sequence[str] = (), *, withdraw: Sequence[str] = ()
    ) -> list[str]:
        """Say who may use it from now on, and who no more; who may, afterwards."""
        found: Granted = await self._ask(change_grants(name, whom, withdraw))
        return found.granted


class Webhook(Model, frozen=True, kw_only=True):
    """A hook. `path` is told to those who may start executions."""

    path: str | None = None
    method: str = "POST"
    auth: str = "none"
    secret: str = "none"
    window: int = 300
    respond: str = "accepted"


class Schedule(Model, frozen=True, kw_only=True):
    """A schedule, and how far it is."""

    cron: str | None = None
    timezone: str = "UTC"
    every_ms: int | None = None
    catch_up: str = "none"
    overlap: str = "skip"
    next_at: str | None = None
    waiting: int = 0
    last_execution_id: str | None = None
    trouble: str = ""


class Trigger(Model, frozen=True, kw_only=True):
    """What starts executions by itself. `new_secret` is there once: after it was made."""

    id: str
    workflow_id: str
    node_id: str
    kind: str
    version: int
    enabled: bool
    created_at: str
    webhook: Webhook | None = None
    schedule: Schedule | None = None
    new_secret: str | None = None

    def __repr__(self) -> str:
        return f"Trigger({self.id})"


class TriggerList(Model, frozen=True, kw_only=True):
    """All of them."""

    triggers: list[Trigger]


def list_triggers(workflow: str | None) -> Call[TriggerList]:
    params = {} if workflow is None else {"workflow": workflow}
    return Call(method="GET", path=f"{API}/triggers", answer=TriggerList, params=params, repeatable=True)


def change_trigger(
    id: str, verb: Literal["enable", "disable", "rotate"], body: dict[str, Any] | None
) -> Call[Trigger]:
    return Call(
        method="POST",
        path=f"{API}/triggers/{quote(id, safe='')}/{verb}",
        answer=Trigger,
        body=None if body is None else msgspec.json.encode(body),
        repeatable=verb != "rotate",
    )


class TriggerCalls:
    """Triggers, for the client that waits for one thing at a time."""

    def triggers(self: SendsCalls, workflow: str | None = None) -> list[Trigger]:
        """All of them, or those of a workflow."""
        found: TriggerList = self._ask(list_triggers(workflow))
        return found.triggers

    def enable_trigger(self: SendsCalls, id: str, *, enabled: bool = True) -> Trigger:
        """Switch one on or off."""
        found: Trigger = self._ask(change_trigger(id, "enable" if enabled else "disable", None))
        return found

    def rotate_trigger(self: SendsCalls, id: str, *, secret: bool = False) -> Trigger:
        """Give a hook a new path, or a new secret, which is told this once."""
        found: Trigger = self._ask(change_trigger(id, "rotate", {"secret": secret}))
        return found


class AsyncTriggerCalls:
    """Triggers, for the client that waits for many things at once."""

    async def triggers(self: SendsCallsAsync, workflow: str | None = None) -> list[Trigger]:
        """All of them, or those of a workflow."""
        found: TriggerList = await self._ask(list_triggers(workflow))
        return found.triggers

    async def enable_trigger(self: SendsCallsAsync, id: str, *, enabled: bool = True) -> Trigger:
        """Switch one on or off."""
        found: Trigger = await self._ask(change_trigger(id, "enable" if enabled else "disable", None))
        return found

    async def rotate_trigger(self: SendsCallsAsync, id: str, *, secret: bool = False) -> Trigger:
        """Give a hook a new path, or a new secret, which is told this once."""
        found: Trigger = await self._ask(change_trigger(id, "rotate", {"secret": secret}))
        return found


def get_limits(workflow: str) -> Call[Limits]:
    return Call(method="GET", path=_limits_path(workflow), answer=Limits, repeatable=True)


def put_limits(workflow: str, limits: Limits) -> Call[Limits]:
    body = msgspec.json.encode(limits)
    return Call(method="PUT", path=_limits_path(workflow), answer=Limits, body=body, repeatable=True)


def put_key_limits(id: str, limits: Limits) -> Call[Limits]:
    body = msgspec.json.encode(limits)
    path = f"{API}/keys/{quote(id, safe='')}/limits"
    return Call(method="PUT", path=path, answer=Limits, body=body, repeatable=True)


def _limits_path(workflow: str) -> str:
    return f"{API}/workflows/{quote(workflow, safe='')}/limits"


class LimitCalls:
    """Limits, for the client that waits for one thing at a time."""

    def limits(self: SendsCalls, workflow: str) -> Limits:
        """What the starts of a workflow are held to."""
        found: Limits = self._ask(get_limits(workflow))
        return found

    def limit(self: SendsCalls, workflow: str, limits: Limits) -> Limits:
        """Set all limits of a workflow; those that are not given are lifted."""
        found: Limits = self._ask(put_limits(workflow, limits))
        return found

    def limit_key(self: SendsCalls, id: str, limits: Limits) -> Limits:
        """Set all limits of a key; those that are not given are lifted."""
        found: Limits = self._ask(put_key_limits(id, limits))
        return found


class AsyncLimitCalls:
    """Limits, for the client that waits for many things at once."""

    async def limits(self: SendsCallsAsync, workflow: str) -> Limits:
        """What the starts of a workflow are held to."""
        found: Limits = await self._ask(get_limits(workflow))
        return found

    async def limit(self: SendsCallsAsync, workflow: str, limits: Limits) -> Limits:
        """Set all limits of a workflow; those that are not given are lifted."""
        found: Limits = await self._ask(put_limits(workflow, limits))
        return found

    async def limit_key(self: SendsCallsAsync, id: str, limits: Limits) -> Limits:
        """Set all limits of a key; those that are not given are lifted."""
        found: Limits = await self._ask(put_key_limits(id, limits))
        return found


class Worker(Model, frozen=True, kw_only=True):
    """A process that takes part."""

    id: str
    host: str
    pid: int
    roles: list[str]
    version: str
    started_at: str
    seen_at: str
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    slots: int = 0
    busy: int = 0
    ready: bool = True


class WorkerList(Model, frozen=True, kw_only=True):
    """All of them."""

    workers: list[Worker]


class NodeTypeList(Model, frozen=True, kw_only=True):
    """All node types, each as a document."""

    nodes: list[dict[str, Any]]


def workers() -> Call[WorkerList]:
    return Call(method="GET", path=f"{API}/workers", answer=WorkerList, repeatable=True)


def node_types() -> Call[NodeTypeList]:
    return Call(method="GET", path=f"{API}/nodes", answer=NodeTypeList, repeatable=True)


class SystemCalls:
    """The machinery, for the client that waits for one thing at a time."""

    def workers(self: SendsCalls) -> list[Worker]:
        """The processes that were seen of late."""
        found: WorkerList = self._ask(workers())
        return found.workers

    def node_types(self: SendsCalls) -> list[dict[str, Any]]:
        """The node types that the server knows, with the schemas of their parameters."""
        found: NodeTypeList = self._ask(node_types())
        return found.nodes


class AsyncSystemCalls:
    """The machinery, for the client that waits for many things at once."""

    async def workers(self: SendsCallsAsync) -> list[Worker]:
        """The processes that were seen of late."""
        found: WorkerList = await self._ask(workers())
        return found.workers

    async def node_types(self: SendsCallsAsync) -> list[dict[str, Any]]:
        """The node types that the server knows, with the schemas of their parameters."""
        found: NodeTypeList = await self._ask(node_types())
        return found.nodes
