"""A plain AMQP client: publishes messages written by hand and reads what the workers tell. Knows nothing of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aio_pika
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schemas"
PATIENCE = 60.0


def valid(kind: str, message: Any) -> None:
    """Refuse what does not fit its schema."""
    checker = Draft202012Validator.FORMAT_CHECKER
    Draft202012Validator(_schemas()[kind], registry=_registry(), format_checker=checker).validate(message)


@cache
def _schemas() -> dict[str, Any]:
    return {each.stem: json.loads(each.read_text()) for each in SCHEMAS.glob("*.json")}


@cache
def _registry() -> Registry[Any]:
    """Schemas name each other by their files."""
    found = ((f"{name}.json", Resource.from_contents(each)) for name, each in _schemas().items())
    made: Registry[Any] = Registry()
    return made.with_resources(found)


class Client:
    """Statuses and completions by execution, each in the order in which they came."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._statuses: dict[str, list[dict[str, Any]]] = {}
        self._completions: dict[str, list[bytes]] = {}
        self._overheard: dict[str, list[dict[str, Any]]] = {}
        self._came = asyncio.Event()

    async def publish(self, message: Any, *, checked: bool = True, queue: str = "workflow.execution") -> None:
        """As the appendix has it, through the exchange of the work."""
        if checked:
            valid("node-execution-message", message)
        exchange = await self._channel.get_exchange("workflow.execution", ensure=False)
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        await exchange.publish(aio_pika.Message(body, delivery_mode=2), routing_key=queue)

    async def listen(self) -> None:
        for name, take in (("workflow.node.status", self._status), ("workflow.completion", self._completion)):
            queue = await self._channel.get_queue(name, ensure=False)
            await queue.consume(take, no_ack=True)

    async def overhear(self) -> None:
        """Get a copy of every message of the work, beside those who do it."""
        queue = await self._channel.declare_queue(exclusive=True)
        for lane in ("", ".high", ".low"):
            await queue.bind("workflow.execution", f"workflow.execution{lane}")
        await queue.consume(self._work, no_ack=True)

    async def _work(self, message: Any) -> None:
        told = json.loads(message.body)
        valid("node-execution-message", told)
        self._overheard.setdefault(told["execution_id"], []).append(told)
        self._came.set()

    def overheard(self, execution: str) -> list[dict[str, Any]]:
        return self._overheard.get(execution, [])

    async def _status(self, message: Any) -> None:
        told = json.loads(message.body)
        batched = message.type == "NodeStatusBatch"
        valid("node-status-batch" if batched else "node-status-message", told)
        for each in told if batched else [told]:
            self._statuses.setdefault(each["execution_id"], []).append(each)
        self._came.set()

    async def _completion(self, message: Any) -> None:
        told = json.loads(message.body)
        valid("completion-message", told)
        self._completions.setdefault(told["execution_id"], []).append(message.body)
        self._came.set()

    def statuses(self, execution: str) -> list[dict[str, Any]]:
        return self._statuses.get(execution, [])

    def steps(self, execution: str) -> list[tuple[str, str]]:
        return [(each["node_id"], each["status"]) for each in self.statuses(execution)]

    def completions(self, execution: str) -> list[bytes]:
        return self._completions.get(execution, [])

    async def came(self) -> None:
        """Wait for one more message."""
        self._came.clear()
        await self._came.wait()

    async def completion(self, execution: str, statuses: int = 0) -> dict[str, Any]:
        """The message of its end, once so many statuses have come too: they are in another queue."""
        async with asyncio.timeout(PATIENCE):
            while not self.completions(execution) or len(self.statuses(execution)) < statuses:
                await self.came()
        found: dict[str, Any] = json.loads(self.completions(execution)[0])
        return found

    async def dead_letter(self, execution: str) -> tuple[str, bytes]:
        """The code and the body of its dead letter, which is taken away; others stay."""
        queue = await self._channel.get_queue("workflow.execution.dead", ensure=False)
        async with asyncio.timeout(PATIENCE), queue.iterator() as letters:
            async for letter in letters:
                if execution.encode() in letter.body:
                    await letter.ack()
                    return letter.headers["rune-code"], letter.body
        raise AssertionError("the queue was closed")

    async def letters(self, execution: str) -> list[str]:
        """The codes of all its dead letters, which stay where they are."""
        queue = await self._channel.get_queue("workflow.execution.dead", ensure=False)
        found = []
        while (letter := await queue.get(fail=False)) is not None:
            found.append(letter)
        for letter in found:
            await letter.nack()
        return [each.headers["rune-code"] for each in found if execution.encode() in each.body]


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    """A connection of its own, listening."""
    connection = await aio_pika.connect(url)
    async with connection:
        made = Client(await connection.channel())
        await made.listen()
        yield made
