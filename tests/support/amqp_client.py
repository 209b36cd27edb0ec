"""An external AMQP client, which publishes work messages and reads statuses, completions and dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import aio_pika
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.support.paths import ROOT

SCHEMAS = ROOT / "docs" / "schemas"
TIMEOUT_S = 60.0


def check_schema(kind: str, message: Any) -> None:
    """Validate a message against its published schema."""
    checker = Draft202012Validator.FORMAT_CHECKER
    Draft202012Validator(_schemas()[kind], registry=_registry(), format_checker=checker).validate(message)


@cache
def _schemas() -> dict[str, Any]:
    return {each.stem: json.loads(each.read_text()) for each in SCHEMAS.glob("*.json")}


@cache
def _registry() -> Registry[Any]:
    """Resolve references between schemas, which are file names."""
    found = ((f"{name}.json", Resource.from_contents(each)) for name, each in _schemas().items())
    made: Registry[Any] = Registry()
    return made.with_resources(found)


class Client:
    """Collects statuses, completions and work messages by execution, in the order of arrival."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._statuses: dict[str, list[dict[str, Any]]] = {}
        self._completions: dict[str, list[bytes]] = {}
        self._work: dict[str, list[dict[str, Any]]] = {}
        self._arrived = asyncio.Event()

    async def publish(self, message: Any, *, checked: bool = True, queue: str = "workflow.execution") -> None:
        """Publish a work message, by default to the default queue."""
        if checked:
            check_schema("node-execution-message", message)
        exchange = await self._channel.get_exchange("workflow.execution", ensure=False)
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        await exchange.publish(aio_pika.Message(body, delivery_mode=2), routing_key=queue)

    async def listen(self, *, copies: bool = False) -> None:
        """Consume statuses and completions, or copies of them where API processes consume the queues."""
        for name, take in (
            ("workflow.node.status", self._take_status),
            ("workflow.completion", self._take_completion),
        ):
            if copies:
                queue = await self._channel.declare_queue(exclusive=True)
                await queue.bind(name, name)
            else:
                queue = await self._channel.get_queue(name, ensure=False)
            await queue.consume(take, no_ack=True)

    async def copy_work(self) -> None:
        """Receive a copy of every work message from now on."""
        queue = await self._channel.declare_queue(exclusive=True)
        for lane in ("", ".high", ".low"):
            await queue.bind("workflow.execution", f"workflow.execution{lane}")
        await queue.consume(self._take_work, no_ack=True)

    async def _take_work(self, message: Any) -> None:
        content = json.loads(message.body)
        check_schema("node-execution-message", content)
        self._work.setdefault(content["execution_id"], []).append(content)
        self._arrived.set()

    def work_messages(self, execution: str) -> list[dict[str, Any]]:
        return self._work.get(execution, [])

    async def _take_status(self, message: Any) -> None:
        content = json.loads(message.body)
        batched = message.type == "NodeStatusBatch"
        check_schema("node-status-batch" if batched else "node-status-message", content)
        for each in content if batched else [content]:
            self._statuses.setdefault(each["execution_id"], []).append(each)
        self._arrived.set()

    async def _take_completion(self, message: Any) -> None:
        content = json.loads(message.body)
        check_schema("completion-message", content)
        self._completions.setdefault(content["execution_id"], []).append(message.body)
        self._arrived.set()

    def statuses(self, execution: str) -> list[dict[str, Any]]:
        return self._statuses.get(execution, [])

    def steps(self, execution: str) -> list[tuple[str, str]]:
        return [(each["node_id"], each["status"]) for each in self.statuses(execution)]

    def completions(self, execution: str) -> list[bytes]:
        return self._completions.get(execution, [])

    async def wait_for_message(self) -> None:
        """Wait for one more message of any kind."""
        self._arrived.clear()
        await self._arrived.wait()

    async def wait_for_completion(self, execution: str, statuses: int = 0) -> dict[str, Any]:
        """Wait for the completion and for so many statuses, which come through another queue; return the completion."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self.completions(execution) or len(self.statuses(execution)) < statuses:
                await self.wait_for_message()
        found: dict[str, Any] = json.loads(self.completions(execution)[0])
        return found

    async def take_dead_letter(self, execution: str) -> tuple[str, bytes]:
        """Wait for the dead letter of an execution, remove it, and return its code and body."""
        return (await self.take_dead_letters([execution]))[execution]

    async def take_dead_letters(self, executions: Collection[str]) -> dict[str, tuple[str, bytes]]:
        """Wait for a dead letter of each execution, remove them, and return their codes and bodies."""
        queue = await self._channel.get_queue("workflow.execution.dead", ensure=False)
        taken: dict[str, tuple[str, bytes]] = {}
        async with asyncio.timeout(TIMEOUT_S), queue.iterator() as letters:
            async for letter in letters:
                for execution in executions:
                    if execution.encode() in letter.body:
                        await letter.ack()
                        taken[execution] = letter.headers["rune-code"], letter.body
                if len(taken) == len(executions):
                    return taken
        raise AssertionError("the queue was closed")

    async def dead_letter_codes(self, execution: str) -> list[str]:
        """Return the codes of all dead letters of an execution without removing them."""
        queue = await self._channel.get_queue("workflow.execution.dead", ensure=False)
        found = []
        while (letter := await queue.get(fail=False)) is not None:
            found.append(letter)
        for letter in found:
            await letter.nack()
        return [each.headers["rune-code"] for each in found if execution.encode() in each.body]


@asynccontextmanager
async def open_client(url: str, *, copies: bool = False) -> AsyncIterator[Client]:
    """Open a connection and consume statuses and completions, or copies of them."""
    connection = await aio_pika.connect(url)
    async with connection:
        made = Client(await connection.channel())
        await made.listen(copies=copies)
        yield made
