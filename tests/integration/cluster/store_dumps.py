"""Contents of the stores and the broker, and the commands of Redis, as bytes to be searched."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from collections.abc import Iterator

import aio_pika

from rune.adapters.redis.client import Client
from tests.support.services.postgres import programs, server
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_server import redis_server

TAP = "tap"
_BYTES = re.compile(rb"\\\\x((?:[0-9a-f]{2})+)")


def dump_database(dsn: str) -> bytes:
    """Dump a database as text, followed by the decoded bytes of its binary values."""
    done = subprocess.run([str(programs() / "pg_dump"), dsn], check=True, capture_output=True)
    return done.stdout + b"\n".join(bytes.fromhex(each.decode()) for each in _BYTES.findall(done.stdout))


def count_rows(dsn: str) -> dict[str, int]:
    """Count the rows of each table."""
    name = dsn.rpartition("/")[2]
    found = server().sql(
        "SELECT relname || '=' || (xpath('/row/c/text()', query_to_xml("
        "format('SELECT count(*) AS c FROM %I', relname), false, true, '')))[1]"
        " FROM pg_stat_user_tables",
        name,
    )
    return {line.partition("=")[0]: int(line.partition("=")[2]) for line in found.splitlines()}


async def dump_redis() -> dict[str, bytes]:
    """Dump every key of Redis, including streams."""
    client = Client(redis_server().url)
    try:
        await client.call("CONFIG", "SET", "rdbcompression", "no")  # compressed values cannot be searched
        names = await client.call("KEYS", "*")
        found = {each: await client.call("DUMP", each) for each in names}
    finally:
        await client.close()
    return {_text(name): bytes(value) for name, value in found.items() if value is not None}


def _text(name: bytes | str) -> str:
    return name if isinstance(name, str) else name.decode(errors="backslashreplace")


class RecordedCommands:
    """All commands that Redis has received, including those of its scripts."""

    def __init__(self) -> None:
        self.data = bytearray()


@contextlib.contextmanager
def record_commands() -> Iterator[RecordedCommands]:
    """Record the commands of Redis while the block runs."""
    recorded = RecordedCommands()
    with socket.socket(socket.AF_UNIX) as there:
        there.connect(redis_server().socket)
        there.sendall(b"MONITOR\r\n")
        assert there.recv(5) == b"+OK\r\n"

        def listen() -> None:
            with contextlib.suppress(OSError):
                while data := there.recv(1 << 20):
                    recorded.data += data

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield recorded
        finally:
            there.shutdown(socket.SHUT_RDWR)
            thread.join()


def bind_tap(url: str) -> int:
    """Declare a queue that receives a copy of every message of every exchange; return the number of its bindings."""
    vhost = url.rpartition("/")[2]
    broker().api("PUT", f"queues/{vhost}/{TAP}", {"durable": True})
    sources = {
        (each["source"], each["routing_key"])
        for each in broker().api("GET", f"bindings/{vhost}")
        if each["source"]
    }
    for source, key in sources:
        broker().api("POST", f"bindings/{vhost}/e/{source}/q/{TAP}", {"routing_key": key})
    return len(sources)


async def take_messages(url: str) -> dict[str, list[bytes]]:
    """Take all messages, with their headers, by queue."""
    vhost = url.rpartition("/")[2]
    found: dict[str, list[bytes]] = {}
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        for name in [each["name"] for each in broker().api("GET", f"queues/{vhost}")]:
            queue = await channel.get_queue(name, ensure=False)
            while (message := await queue.get(no_ack=True, fail=False)) is not None:
                head = f"{message.headers} {message.properties} {message.routing_key}\n"
                found.setdefault(name, []).append(head.encode() + message.body)
    return found
