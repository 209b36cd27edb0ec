"""Counts the calls of this process to PostgreSQL, Redis and RabbitMQ by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from rune.adapters.postgres.database import Database, queries
from rune.adapters.rabbitmq.amqp.channel import Channel
from rune.adapters.rabbitmq.consumer import Consumer
from rune.adapters.rabbitmq.publisher import Publisher
from rune.adapters.redis.client import Connection


@contextmanager
def counted_calls(add: Callable[[str, str], None]) -> Iterator[None]:
    """Pass the server and the name of each call of the block to a function."""
    names = {text: name for name, text in queries().items()}
    send, fetch = Connection.send, Database.fetch
    publish, post, ack, take = Publisher.publish, Publisher.post, Channel.ack, Consumer._take

    def counted_send(connection: Any, *parts: Any) -> Any:
        add("redis", str(parts[1]).rpartition("_")[0] if parts[0] == "FCALL" else str(parts[0]))
        return send(connection, *parts)

    async def counted_fetch(database: Any, statement: str, *values: Any) -> Any:
        add("postgres", names.get(statement, statement[:30]))
        return await fetch(database, statement, *values)

    async def counted_publish(publisher: Any, messages: Any) -> None:
        add("rabbitmq", "publish")
        await publish(publisher, messages)

    def counted_post(publisher: Any, *parts: Any) -> bool:
        add("rabbitmq", f"post {parts[0]}")
        return post(publisher, *parts)

    def counted_ack(channel: Any, *parts: Any, **options: Any) -> None:
        add("rabbitmq", "ack")
        ack(channel, *parts, **options)

    def counted_take(consumer: Any, *parts: Any) -> None:
        add("rabbitmq", "deliver")
        take(consumer, *parts)

    with ExitStack() as stack:
        for where, name, changed in (
            (Connection, "send", counted_send),
            (Database, "fetch", counted_fetch),
            (Publisher, "publish", counted_publish),
            (Publisher, "post", counted_post),
            (Channel, "ack", counted_ack),
            (Consumer, "_take", counted_take),
        ):
            stack.enter_context(patch.object(where, name, changed))
        yield
