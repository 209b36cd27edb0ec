"""The services that commands use over the HTTP API of a server."""

from __future__ import annotations

from rune.cli.remote.credentials import RemoteCredentialService
from rune.cli.remote.dead_letters import RemoteDeadLetterService, RemoteDeadMessageService
from rune.cli.remote.executions import RemoteBulkService, RemoteExecutionService
from rune.cli.remote.workers import RemoteWorkerService
from rune.cli.remote.workflows import RemoteWorkflowService
from rune.client import AsyncClient


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
