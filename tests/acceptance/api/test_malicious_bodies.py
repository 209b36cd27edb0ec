"""Malicious request bodies are rejected quickly."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from pathlib import Path

import pytest

from tests.support.api_server import HELLO, RunningServer, run

pytestmark = pytest.mark.long

DEEP = 200_000
BOMBS: dict[str, bytes] = {
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep input": b'{"input":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep and never closed": b'{"input":' + b"[" * DEEP,
    "huge number": b'{"input":' + b"9" * 500_000 + b"}",
    "huge exponent": b'{"input": 1e999999}',
    "not a number": b'{"input": NaN}',
    "doubled key": b'{"input": 1, "input": 2}',
    "half a pair": b'{"input": "\\ud800"}',
    "not text": b'{"input": "\xff"}',
    "quotes": b'"' * 900_000,
    "many labels": json.dumps({"labels": {f"l{n}": "" for n in range(20_000)}}).encode(),
    "long label": json.dumps({"labels": {"l": "x" * 900_000}}).encode(),
    "unknown field": b'{"inputs": {}}',
    "not an object": b"[]",
    "nothing": b"",
    "list of lists": b'{"labels": ' + b"[" * 90 + b"]" * 90 + b"}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_malicious_body_is_rejected_quickly(tmp_path: Path, name: str) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        began = time.process_time()
        answer = await server.http.post(
            "/api/v1/executions", content=BOMBS[name], headers={"Content-Type": "application/json"}
        )
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        stored = await server.http.post(
            "/api/v1/workflows", content=BOMBS[name], headers={"Content-Type": "application/json"}
        )
        assert 400 <= stored.status_code < 500, stored.text
        yaml = await server.http.post(
            "/api/v1/workflows/validate", content=BOMBS[name][:100_000], headers={"Content-Type": "text/yaml"}
        )
        assert yaml.status_code in (200, 422)
        assert time.process_time() - began < 5

    run(tmp_path, work)


def test_yaml_alias_bomb_is_rejected(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    async def work(server: RunningServer) -> None:
        checked = await server.client.check("\n".join(lines))
        assert not checked.valid

    run(tmp_path, work)


def test_oversized_body_is_rejected_before_it_is_read(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        host, port = server.url.removeprefix("http://").split(":")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for path, size in (
            ("workflows", 3 << 20),
            ("executions/x/signals", 2 << 20),
            ("executions", 1 << 40),
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                f"POST /api/v1/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                f"content-length: {size}\r\n\r\n".encode()
            )
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
            writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /api/v1/workflows HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(40):
            writer.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        writer.close()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 100_000, f"{grown} KiB more for bodies that were refused"

    run(tmp_path, work)
