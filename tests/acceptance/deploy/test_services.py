"""`deploy/services.py` starts, restarts and stops the servers of a checkout."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import asyncpg  # type: ignore[import-untyped]
import msgspec
import pytest
import redis

from rune.settings import Settings, load_settings
from tests.lint.tree import ROOT
from tests.support.services.keeper import MIN_FREE_BYTES

pytestmark = pytest.mark.long

TOOL = ROOT / "deploy" / "services.py"
SERVERS = ("redis", "postgres", "rabbitmq")


def call(folder: Path, action: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), action, "--folder", str(folder)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def statuses(folder: Path, action: str) -> dict[str, str]:
    """Run the tool and return the printed status of each server."""
    done = call(folder, action)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    return {name: lines[name] for name in SERVERS}


def settings(folder: Path, name: str) -> dict[str, str]:
    lines = (folder / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def processes(folder: Path) -> dict[int, str]:
    """The command lines, by process id, of processes that run in a folder or have it as an argument."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = os.readlink(process / "cwd")
        except OSError:
            continue
        if f"{folder}/" in words or f"{place}/".startswith(f"{folder}/"):
            found[int(process.name)] = words
    return found


def process_ids(folder: Path) -> dict[str, int]:
    known = json.loads((folder / "services.json").read_text())
    return {name: known[f"{name}.process"][0] for name in (*SERVERS, "epmd")}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other users can read, unlike those of pytest; in memory if there is enough."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > MIN_FREE_BYTES
    outer = Path(tempfile.mkdtemp(prefix="rune-services-", dir=memory if roomy else None)).resolve()
    outer.chmod(0o755)
    inner = outer / "services"
    try:
        yield inner
    finally:
        call(inner, "down")
        shutil.rmtree(outer)


async def query_postgres(url: str) -> int:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (n integer)")
        await connection.execute("INSERT INTO kept VALUES (1)")
        return int(await connection.fetchval("SELECT count(*) FROM kept"))
    finally:
        await connection.close()


async def query_rabbitmq(url: str) -> bytes:
    connection = await aio_pika.connect(url, timeout=10)
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue("probe", auto_delete=True)
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), "probe")
        message = await queue.get(timeout=10)
        await message.ack()
        return message.body


def test_servers_start_restart_and_stop(folder: Path) -> None:
    assert all(status.startswith("started on port ") for status in statuses(folder, "up").values())
    first = process_ids(folder)
    in_redis, in_rabbitmq = settings(folder, "redis.env"), settings(folder, "rabbitmq.env")

    with redis.Redis.from_url(in_redis["RUNE_STATE"]) as client:
        assert client.set("kept", "1")
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert asyncio.run(query_postgres(in_redis["RUNE_JOURNAL"])) == 1
    assert asyncio.run(query_rabbitmq(in_rabbitmq["RUNE_QUEUE"])) == b"hello"

    assert all(status.startswith("already runs on port ") for status in statuses(folder, "up").values())
    assert process_ids(folder) == first
    assert all(status.startswith("runs on port ") for status in statuses(folder, "status").values())

    os.kill(first["redis"], signal.SIGKILL)
    again = statuses(folder, "up")
    assert [status.split(" on ")[0] for status in again.values()] == [
        "started",
        "already runs",
        "already runs",
    ]
    assert settings(folder, "redis.env") == in_redis
    with redis.Redis.from_url(in_redis["RUNE_STATE"]) as client:
        assert client.get("kept") == b"1"

    assert set(statuses(folder, "down").values()) == {"stopped"}
    assert processes(folder) == {}
    assert call(folder, "status").returncode == 1
    assert set(statuses(folder, "down").values()) == {"did not run"}

    statuses(folder, "up")
    assert asyncio.run(query_postgres(settings(folder, "redis.env")["RUNE_JOURNAL"])) == 2
    statuses(folder, "down")
    assert processes(folder) == {}

    check_files(folder)


def check_files(folder: Path) -> None:
    """The environment files contain existing settings and are private."""
    known = {f"RUNE_{field.name.upper()}" for field in msgspec.structs.fields(Settings)}
    in_redis, in_rabbitmq = settings(folder, "redis.env"), settings(folder, "rabbitmq.env")
    assert in_redis.keys() == in_rabbitmq.keys() <= known
    assert in_redis["RUNE_QUEUE"] == in_redis["RUNE_STATE"]
    assert {name for name in in_redis if in_redis[name] != in_rabbitmq[name]} == {"RUNE_QUEUE"}
    assert load_settings(in_redis, folder).clustered
    for name in ("redis.env", "rabbitmq.env", "services.json"):
        assert (folder / name).stat().st_mode & 0o077 == 0
    for name in SERVERS:
        assert (folder / name).stat().st_mode & 0o077 == 0


def test_missing_server_is_reported_with_package(tmp_path: Path) -> None:
    done = call(tmp_path / "services", "up", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "redis-server (package redis-server)" in done.stderr
    assert "apt-get install" in done.stderr
    assert not (tmp_path / "services").exists()


def test_down_without_started_servers(tmp_path: Path) -> None:
    done = call(tmp_path / "services", "down")
    assert done.returncode == 0
    assert "no servers were started in this folder" in done.stdout
