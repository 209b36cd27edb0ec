"""The server named by RUNE_URL: its client, its errors, the API key, and the services, readers and stores that
commands use over its HTTP API.

Errors of the API are raised as the local services would raise them.

RUNE_API_KEY belongs to the server of RUNE_URL. It is never sent to a server that `rune.toml` of the current folder
names, because that file may come with a checkout from anywhere. Keys of such servers are in a file of the user.
"""

from __future__ import annotations

import asyncio
import os
import tomllib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from rune.cli.live import RemoteLogs
from rune.client import ApiError, AsyncClient, AsyncRun, models
from rune.client.models import Credential, Worker
from rune.client.transport import ServerKeyError, require_encryption
from rune.codec.decode import MalformedDataError
from rune.core.definition.model import canonical
from rune.core.definition.parser import NO_PINS, Pins
from rune.core.definition.problems import UNKNOWN_CHILD, Problem
from rune.core.execution.explain import Waiting
from rune.core.execution.outcome import Error, ErrorOrigin
from rune.core.execution.stored_value import Inline
from rune.core.validation.validate import ValidationResult
from rune.documents.loader import locate
from rune.errors import InvalidDocumentError, RuneError
from rune.ports.clock import iso
from rune.ports.credentials import CredentialSummary
from rune.ports.journal import DeadLetter, ExecutionRecord
from rune.ports.processes import ProcessInfo
from rune.ports.queries import ALL_EXECUTIONS, Event, ExecutionFilter, Frame, Summary
from rune.ports.workflows import (
    JSON_TYPE,
    LATEST,
    YAML_TYPE,
    Alias,
    DeployedVersion,
    Version,
    VersionSource,
    WorkflowEntry,
    choose,
)
from rune.runtime.lifecycle.launcher import DEFAULT_OPTIONS, StartOptions
from rune.runtime.services.dead_letters import DeadMessage
from rune.runtime.services.executions import SignalResult
from rune.settings import Settings

KEYS_FILE = Path("rune", "keys.toml")
"""In the configuration folder of the user: `"https://host:port" = "key"`, one line for each server."""

DEFAULT_PORTS = {"http": 80, "https": 443}


def key_for_server(settings: Settings, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the key to send to the server of the settings; None: no key.

    ServerKeyError if a key exists that must not be sent there.
    """
    given = os.environ if environment is None else environment
    if settings.api_key and not settings.url_in_file:
        require_encryption(settings.url, "RUNE_API_KEY")
        return settings.api_key
    file = keys_file(given)
    key = _read_keys(file).get(_origin(settings.url))
    if key is not None:
        require_encryption(settings.url, str(file))
        return key
    if settings.api_key:
        raise ServerKeyError(
            f"rune.toml of this folder names the server {settings.url}, and RUNE_API_KEY is sent only to the server of"
            f" RUNE_URL: set RUNE_URL={settings.url}, or add the server with its key to {file}, or unset RUNE_API_KEY"
        )
    return None


def keys_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's file with keys."""
    folder = environment.get("XDG_CONFIG_HOME")
    return (
        Path(folder) if folder else Path(environment.get("HOME", "~")).expanduser() / ".config"
    ) / KEYS_FILE


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme)


def _read_keys(file: Path) -> dict[tuple[str, str, int | None], str]:
    """Read the file of the user. Errors never quote its content."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & 0o077:
                raise ServerKeyError(
                    f"{file} can be read by other users (mode {mode & 0o777:04o}): chmod 600 it"
                )
            values = tomllib.load(opened)
        if not all(isinstance(key, str) for key in values.values()):
            raise ValueError
        return {_origin(url): key for url, key in values.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ServerKeyError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise ServerKeyError(f'{file} is not a list of keys: a line is "https://host:port" = "key"') from None


@asynccontextmanager
async def client(settings: Settings) -> AsyncIterator[AsyncClient]:
    """Open a client of the server named by RUNE_URL."""
    async with AsyncClient(settings.url, key=key_for_server(settings)) as opened:
        with raise_local_errors(settings.url):
            yield opened


def local_problems(given: Iterable[models.Problem]) -> tuple[Problem, ...]:
    """Return problems of the API as those of the local services."""
    return tuple(msgspec.convert(msgspec.to_builtins(each), Problem) for each in given)


@contextmanager
def raise_local_errors(url: str) -> Iterator[None]:
    """Raise errors of the API as the local services would raise them."""
    try:
        yield
    except ApiError as refused:
        if refused.problems:
            raise InvalidDocumentError(local_problems(refused.problems)) from None
        if refused.code == "UNAUTHORIZED":
            raise RuneError(
                f"{url} requires an API key, and RUNE_API_KEY does not contain a valid one: an administrator of the "
                "server creates one with `rune keys create`",
                code="UNAUTHORIZED",
            ) from None
        if refused.code == "HTTP_STATUS":
            raise RuneError(
                f"{url} does not respond like a Rune server: status {refused.status}", code="UNREACHABLE"
            ) from None
        raise
    except (msgspec.DecodeError, MalformedDataError) as error:
        raise RuneError(f"{url} does not respond like a Rune server: {error}", code="UNREACHABLE") from None


PAGE_SIZE = 1_000
BULK_INTERVAL_S = 0.2
MAX_ID_LENGTH = 128


def epoch(moment: str) -> int:
    """Convert ISO 8601 text to epoch ms."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def process_info(each: Worker) -> ProcessInfo:
    return ProcessInfo(
        name=each.id,
        host=each.host,
        pid=each.pid,
        roles=tuple(each.roles),
        version=each.version,
        build=each.build,
        started_at=epoch(each.started_at),
        seen_at=epoch(each.seen_at),
        queues=each.queues,
        types=each.types,
        slots=each.slots,
        busy=each.busy,
        draining=not each.ready,
    )


class RemoteWorkflows:
    """Read-only access to deployed workflows."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def versions(self, workflow: str) -> list[Version]:
        """Return all versions, oldest first; none for an unknown workflow."""
        try:
            return [
                Version(
                    workflow,
                    each.version,
                    each.hash,
                    epoch(each.deployed_at),
                    tuple(each.aliases),
                    principal=each.principal,
                    note=each.note,
                )
                async for each in self._client.versions(workflow, page=PAGE_SIZE)
            ]
        except ApiError as refused:
            if refused.status != 404:
                raise
            return []

    async def source(self, workflow: str, number: int) -> VersionSource | None:
        """Return the text of a version; the media type is that of its first character."""
        try:
            data = await self._client.source(workflow, number)
        except ApiError as refused:
            if refused.code != "NO_SOURCE":
                raise
            return None
        return VersionSource(data, JSON_TYPE if data.lstrip()[:1] == b"{" else YAML_TYPE)

    async def aliases(self, workflow: str) -> list[Alias]:
        """Return all aliases by name; none for an unknown workflow."""
        try:
            found = await self._client.aliases(workflow)
        except ApiError as refused:
            if refused.status != 404:
                raise
            return []
        return [Alias(each.alias, each.version, each.revision, each.weights) for each in found]

    async def list(self, *, hidden: bool = False) -> list[WorkflowEntry]:
        """Return the workflows by name; `hidden` includes archived ones."""
        return [
            WorkflowEntry(
                workflow=each.workflow_id,
                name=each.name,
                latest=each.latest,
                versions=each.versions,
                aliases=each.aliases,
                deployed_at=epoch(each.deployed_at),
                hidden=each.hidden,
            )
            async for each in self._client.workflows(hidden=hidden, page=PAGE_SIZE)
        ]


FOLLOWED_S = 0.001
"""The wait of a start whose end the command waits for by itself: the server refuses what it cannot follow."""


class _RemoteService:
    """One service of a server, with the methods that the API has."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client


class RemoteExecutionService(_RemoteService):
    """The execution service of a server. Payloads are sent as the bytes they are."""

    async def start_definition(
        self,
        definition: bytes,
        input: bytes,
        options: StartOptions = DEFAULT_OPTIONS,
        *,
        execution: str | None = None,
    ) -> ExecutionRecord:
        """Start an execution; the server chooses its id, `execution` is ignored."""
        document: Any = msgspec.Raw(definition)
        started = await self._client.start_definition(
            document,
            msgspec.Raw(input),
            key=options.key,
            labels=options.labels,
            fake_time=options.fake_time,
            pins=options.pins.outputs or None,
            outlets=options.pins.outlets or None,
            wait=FOLLOWED_S if options.followed else 0.0,
        )
        return _accepted(started, input)

    async def start(
        self,
        workflow: str,
        which: str | None,
        input: bytes,
        options: StartOptions = DEFAULT_OPTIONS,
        *,
        priority: int | None = None,
        execution: str | None = None,
    ) -> ExecutionRecord:
        """Start an execution; the server chooses its id, `execution` is ignored."""
        started = await self._client.start(
            workflow,
            msgspec.Raw(input),
            version=which,
            key=options.key,
            labels=options.labels,
            priority=priority,
            fake_time=options.fake_time,
            pins=options.pins.outputs or None,
            outlets=options.pins.outlets or None,
            wait=FOLLOWED_S if options.followed else 0.0,
        )
        return _accepted(started, input)

    async def signal(
        self,
        execution: str,
        name: str,
        value: bytes = b"null",
        *,
        key: str | None = None,
        item: str | None = None,
    ) -> SignalResult:
        result = await self._client.signal(execution, name, msgspec.Raw(value), item=item, key=key)
        return SignalResult(result.id, result.resumed)

    async def cancel(self, execution: str, reason: str = "") -> str:
        """Cancel an execution. Unlike the API, raise if it was cancelled before, as the local service does."""
        result = await self._client.cancel(execution, reason)
        if result.status == "cancelled" and not result.changed:
            raise RuneError("the execution has ended as cancelled", code="ENDED")
        return result.status

    async def pause(self, execution: str) -> bool:
        return (await self._client.pause(execution)).changed

    async def resume(self, execution: str) -> bool:
        return (await self._client.resume(execution)).changed

    async def retry(
        self,
        execution: str,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> ExecutionRecord:
        return _accepted(
            await self._client.retry(
                execution, failed_items=failed_items, split=split, item=item, code=code, key=key
            )
        )

    async def rerun(
        self,
        execution: str,
        node: str,
        *,
        item: str | None = None,
        key: str | None = None,
        input: bytes | None = None,
        parameters: bytes | None = None,
        version: str | None = None,
        definition: bytes | None = None,
        pins: Pins = NO_PINS,
    ) -> ExecutionRecord:
        changed: Any = None if parameters is None else msgspec.Raw(parameters)
        draft: Any = None if definition is None else msgspec.Raw(definition)
        return _accepted(
            await self._client.rerun(
                execution,
                node,
                item=item,
                key=key,
                input=None if input is None else msgspec.Raw(input),
                parameters=changed,
                version=version,
                definition=draft,
                pins=pins.outputs or None,
                outlets=pins.outlets or None,
            )
        )


class RemoteDeadLetterService(_RemoteService):
    """The dead-letter service of a server."""

    async def requeue(self, letter: str) -> ExecutionRecord:
        return _accepted(await self._client.requeue(letter))

    async def discard(self, letter: str) -> bool:
        try:
            await self._client.drop(letter)
        except ApiError as refused:
            if refused.code != "UNKNOWN_DEAD_LETTER":
                raise
            return False
        return True


class RemoteDeadMessageService(_RemoteService):
    """The service for dead messages of a server. The messages of a list have no bodies."""

    async def list(self, limit: int) -> list[DeadMessage]:
        return [_dead_message(each) for each in await self._client.dead_messages(limit)]

    async def find(self, message: str) -> DeadMessage | None:
        try:
            found = await self._client.dead_message(message)
        except ApiError as refused:
            if refused.code != "UNKNOWN_DEAD_LETTER":
                raise
            return None
        return _dead_message(found, found.body)

    async def requeue(self, message: str) -> int:
        return (await self._client.requeue_message(message)).count

    async def discard(self, message: str) -> int:
        await self._client.drop_message(message)
        return 1


class RemoteWorkflowService(_RemoteService):
    """The workflow service of a server."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
        self._workflows = RemoteWorkflows(client)

    async def undeployed_children(self, document: ValidationResult) -> tuple[Problem, ...]:
        """Return a warning for each child of a document that the server lacks."""
        assert document.definition is not None
        checked = await self._client.check(canonical(document.definition).decode())
        found = tuple(each for each in local_problems(checked.problems) if each.code == UNKNOWN_CHILD)
        return tuple(locate(found, document.source))

    async def deploy(
        self,
        definition: bytes,
        *,
        alias: str | None = None,
        source: VersionSource | None = None,
        note: str = "",
    ) -> Version:
        """Deploy, then set the alias: two requests. A retry after the first one finds the version deployed. The server
        keeps the text that it gets, so that it gets the source."""
        name = msgspec.json.decode(definition)["id"]
        sent = source or VersionSource(definition, JSON_TYPE)
        made = await self._client.deploy(
            sent.data, workflow=name, note=note or None, media_type=sent.media_type
        )
        change: Any = made.change
        if alias is not None and alias != LATEST:
            moved = await self.set_alias(name, alias, made.version)
            change = moved.change if change == "none" else change
        version = await self._version(name, made.version, change)
        return DeployedVersion(**msgspec.structs.asdict(version), problems=local_problems(made.problems))

    async def set_alias(
        self,
        workflow: str,
        alias: str,
        version: int | None,
        *,
        weights: dict[int, float] | None = None,
    ) -> Version:
        before = {each.name: each.revision for each in await self._workflows.aliases(workflow)}
        after = await self._client.set_alias(workflow, alias, version, weights=weights)
        change = "none" if before.get(alias) == after.revision else "moved"
        return await self._version(workflow, after.version, change)

    async def archive(self, workflow: str) -> bool:
        seen = {each.workflow for each in await self._workflows.list()}
        await self._client.delete(workflow)
        return workflow in seen

    async def _version(self, workflow: str, number: int, change: Any) -> Version:
        found = choose(workflow, await self._workflows.versions(workflow), str(number))
        return msgspec.structs.replace(found, change=change)


def _accepted(started: AsyncRun, input: bytes = b"") -> ExecutionRecord:
    return ExecutionRecord(
        id=started.execution_id,
        workflow=started.workflow_id,
        hash=started.hash,
        at=epoch(started.started_at),
        input=Inline(input),
        retry_of=started.retry_of,
        version=started.version,
        alias=started.alias,
    )


class RemoteHistory:
    """The history of one execution."""

    def __init__(self, client: AsyncClient, execution: str) -> None:
        self._client = client
        self._execution = execution

    async def document(self, *, not_reached: bool = False) -> dict[str, Any]:
        """Return the document that `rune run --json` prints; `not_reached` adds the nodes without a run."""
        written = b"".join([each async for each in self._client.download(self._execution, "document")])
        parts = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        output = parts.pop("output")  # may be large, and takes many times as much memory as an object
        document = {name: msgspec.json.decode(part) for name, part in parts.items()} | {"output": output}
        if not_reached and document["status"] in ("failed", "halted", "cancelled"):
            async for each in self._client.nodes(self._execution, status="not_reached"):
                shown = msgspec.to_builtins(each)
                del shown["output_bytes"]
                document["nodes"].append(shown)
        return document

    async def run_output(self, node: str, item: str = "") -> bytes:
        """Return the whole output of a node run as JSON."""
        found = self._client.download(self._execution, "output", node=node, lineage=item or None)
        return b"".join([each async for each in found])

    async def start_payload(self) -> bytes:
        """Return the whole start payload as JSON."""
        return b"".join([each async for each in self._client.download(self._execution, "input")])


class RemoteReader:
    """The reader of a server: the queries of ExecutionReader that the API answers. Beyond those it returns what an
    execution waits for and streams its events."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.workflows = RemoteWorkflows(client)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """Do nothing: the API has no snapshots, two requests may see different states."""
        yield

    async def executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS, *, after: str | None = None, limit: int = 50
    ) -> list[Summary]:
        """Return executions, newest first, after a given id."""
        found: list[Summary] = []
        async for each in self._client.executions(
            status=wanted.statuses,
            workflow=wanted.workflow,
            failed_items=wanted.failed_items,
            stuck=wanted.stuck,
            labels=wanted.labels,
            since=iso(wanted.since),
            until=iso(wanted.until),
            code=wanted.code,
            principal=wanted.principal,
            parent=wanted.parent,
            retry_of=wanted.retry_of,
            after=after,
            page=min(limit, PAGE_SIZE),
        ):
            if wanted.hash not in (None, each.hash):
                continue
            found.append(_summary(each))
            if len(found) == limit:
                break
        return found

    async def execution(self, execution: str) -> Summary | None:
        if not execution or len(execution) > MAX_ID_LENGTH:
            return None
        try:
            return _summary(await self._client.execution(execution))
        except ApiError as refused:
            if refused.code not in {"UNKNOWN_EXECUTION", "NOT_FOUND"}:
                raise
            return None

    async def matching(self, prefix: str, limit: int) -> list[str]:
        """Return up to `limit` ids that start with `prefix`."""
        found: list[str] = []
        if len(prefix) > MAX_ID_LENGTH:
            return found
        async for each in self._client.executions(q=prefix, page=PAGE_SIZE):
            if each.execution_id.startswith(prefix):
                found.append(each.execution_id)
                if len(found) == limit:
                    break
        return found

    async def history(self, execution: str) -> RemoteHistory:
        return RemoteHistory(self._client, execution)

    async def definition(self, hash: str) -> bytes | None:
        """Return a definition in canonical form."""
        return msgspec.json.encode(await self._client.definition(hash))

    async def dead_letters(self, limit: int, after: str | None = None) -> list[DeadLetter]:
        """Return dead letters, newest first, after a given id."""
        found: list[DeadLetter] = []
        async for each in self._client.dead_letters(after=after, page=min(limit, PAGE_SIZE)):
            found.append(_dead_letter(each))
            if len(found) == limit:
                break
        return found

    async def waiting(self, execution: str) -> tuple[bool, list[Waiting], int | None]:
        """Return whether an execution is paused, what it waits for, and when it is late."""
        found = await self._client.explain(execution)
        waiting = [msgspec.convert(msgspec.to_builtins(each), Waiting) for each in found.waiting]
        return found.status == "paused", waiting, found.expected_by

    async def watch(self, execution: str, after: int) -> AsyncIterator[Event | dict[str, Any]]:
        """Yield events of an execution until it has ended and, in between, what runs now."""
        async for each in self._client.follow(execution, after=after):
            yield _event(each) if isinstance(each, models.Event) else msgspec.to_builtins(each)

    def log_source(self, execution: str, node: str | None) -> RemoteLogs:
        """Return the logs of an execution."""
        return RemoteLogs(self._client, execution, node)

    async def end(self, execution: str) -> str:
        """Wait for the end of an execution and return its status."""
        return (await self._client.wait(execution)).status


def _summary(each: models.Execution) -> Summary:
    return Summary(
        id=each.execution_id,
        workflow=each.workflow_id,
        hash=each.hash,
        status=each.status,
        started_at=epoch(each.started_at),
        ended_at=None if each.completed_at is None else epoch(each.completed_at),
        error=None if each.error is None else _error(each.error),
        labels=each.labels,
        failed_items=each.failed_items,
        version=each.version,
        alias=each.alias,
    )


def _error(each: models.ErrorInfo) -> Error:
    origin = None
    if each.node_id is not None:
        lineage = tuple((item.split_node_id, item.item_index) for item in each.lineage or ())
        origin = ErrorOrigin(each.node_id, each.node_type or "", lineage, each.attempt or 1)
    return Error(each.code, each.message, each.details or {}, origin=origin)


def _dead_message(each: models.DeadMessage, body: str = "") -> DeadMessage:
    return DeadMessage(
        id=each.id,
        code=each.code,
        reason=each.message,
        queue=each.queue,
        execution=each.execution_id,
        body=body.encode(),
        at=None if each.at is None else epoch(each.at),
        workflow=each.workflow_id,
        node=each.node_id,
    )


def _dead_letter(each: models.DeadLetter) -> DeadLetter:
    return DeadLetter(
        id=each.id,
        execution=each.execution_id,
        workflow=each.workflow_id,
        node=each.node_id or "",
        code=each.code,
        message=each.message,
        at=epoch(each.at),
    )


def _event(each: models.Event) -> Event:
    return Event(
        number=each.number,
        at=epoch(each.at),
        kind=each.kind,
        node_id=each.node_id,
        lineage=tuple(msgspec.convert(msgspec.to_builtins(frame), Frame) for frame in each.lineage),
        details=each.details,
    )


class RemoteCredentialService(_RemoteService):
    """The credential service of a server. Values are sent and never returned."""

    async def list(self) -> tuple[CredentialSummary, ...]:
        return tuple(_credential(each) for each in await self._client.credentials())

    async def show(self, reference: str) -> CredentialSummary:
        return _credential(await self._client.credential(reference))

    async def add(
        self,
        name: str,
        type: str,
        values: dict[str, Any],
        hosts: Sequence[str] = (),
        id: str | None = None,
        insecure: bool = False,
        grants: Sequence[str] = (),
    ) -> CredentialSummary:
        """Add a credential; the server chooses its id, `id` is ignored."""
        found = await self._client.add_credential(
            name, type, values, hosts=hosts, insecure=insecure, grants=grants
        )
        return _credential(found)

    async def rotate(
        self,
        reference: str,
        values: dict[str, Any],
        hosts: Sequence[str] | None = None,
        insecure: bool | None = None,
    ) -> CredentialSummary:
        """Replace the given values; the others stay."""
        found = await self._client.rotate_credential(reference, values, hosts=hosts, insecure=insecure)
        return _credential(found)

    async def remove(self, reference: str) -> CredentialSummary:
        """Remove a credential and return its last summary."""
        found = await self.show(reference)
        await self._client.remove_credential(found.id)
        return found

    async def grant(self, reference: str, grantees: Sequence[str]) -> frozenset[str]:
        """Return the grants after the change."""
        return frozenset(await self._client.grant(reference, grantees))

    async def withdraw(self, reference: str, grantees: Sequence[str]) -> frozenset[str]:
        """Return the grants after the change."""
        return frozenset(await self._client.grant(reference, withdraw=grantees))

    async def granted(self, reference: str) -> Sequence[str] | None:
        """Return the grants of a credential; None if the API key may not read them."""
        try:
            return await self._client.granted(reference)
        except ApiError as refused:
            if refused.status != 403:
                raise
            return None


class RemoteBulkService(_RemoteService):
    """The bulk jobs of a server, which carries them out."""

    async def finish(self, id: str) -> None:
        """Wait for the end of a job."""
        while True:
            job = await self._client.bulk_job(id)
            if job.status != "running":
                return
            await asyncio.sleep(BULK_INTERVAL_S)


class RemoteWorkerService(_RemoteService):
    """The workers of a server."""

    async def drain(self, worker: str) -> None:
        await self._client.drain_worker(worker)

    async def resume(self, worker: str) -> None:
        await self._client.resume_worker(worker)


class RemoteServices:
    """The services of a server. Triggers, API keys and limits have none: their commands call the client."""

    local = False

    def __init__(self, client: AsyncClient) -> None:
        self.executions = RemoteExecutionService(client)
        self.workflows = RemoteWorkflowService(client)
        self.dead_letters = RemoteDeadLetterService(client)
        self.dead_messages = RemoteDeadMessageService(client)
        self.credentials = RemoteCredentialService(client)
        self.bulk = RemoteBulkService(client)
        self.workers = RemoteWorkerService(client)


def _credential(each: Credential) -> CredentialSummary:
    return CredentialSummary(
        id=each.id,
        name=each.name,
        type=each.type,
        version=each.version,
        fields=tuple(each.fields),
        hosts=tuple(each.hosts),
        insecure=each.insecure,
        key=each.key,
        created_at=epoch(each.created_at),
        changed_at=epoch(each.changed_at),
    )
