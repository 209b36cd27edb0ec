"""Blobs in S3: pages, errors, timeouts and hostile keys."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rune.adapters.blobs import s3
from rune.adapters.blobs.s3 import AccessKeys, Bucket, S3Blobs
from rune.ports.journal import StoreUnavailableError
from tests.integration.blobs.hostile_keys import (
    HOSTILE_KEYS,
    check_hostile_keys,
    check_invalid_executions,
    check_invalid_keys,
)
from tests.support.async_test import async_test
from tests.support.services.listening import refusing_port
from tests.support.services.s3_server import KEYS, PAGE, s3_server

SECRET = "a-secret-password"


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    s3_server()


def make_blobs(folder: Path) -> S3Blobs:
    return S3Blobs(s3_server().bucket(f"own/{folder.name}"), KEYS)


async def error_messages(blob: S3Blobs, word: str = ".") -> list[str]:
    """Check that every call fails as unavailable; return the messages."""
    messages = []
    for call in (blob.put("x/a", b"data"), blob.get("x/a"), blob.delete("x")):
        with pytest.raises(StoreUnavailableError, match=word) as caught:
            await call
        messages.append(caught.value.message)
    return messages


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve these answers, one per connection, and then accept without answering."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            if len(requests) <= len(answers):
                writer.write(answers[len(requests) - 1])
                await writer.drain()
            else:
                await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
    finally:
        server.close()


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class TestPages:
    @async_test
    async def test_delete_removes_all_pages(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        count = 3 * PAGE + 5
        await asyncio.gather(*(blob.put(f"x/{number}", b"data") for number in range(count)))
        await blob.put("xy/0", b"data")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(s3, "DELETE_BATCH", PAGE)
            assert await blob.delete("x") == count
        assert [await blob.get(f"x/{number}") for number in range(count)] == [None] * count
        assert await blob.get("xy/0") == b"data"

    @async_test
    async def test_prefixes_are_isolated(self, tmp_path: Path) -> None:
        one, other = (S3Blobs(s3_server().bucket(f"{tmp_path.name}/{each}"), KEYS) for each in "ab")
        unprefixed = S3Blobs(s3_server().bucket(), KEYS)
        await one.put("x/a", b"one")
        assert await other.get("x/a") is None
        assert await other.delete("x") == await unprefixed.delete("x") == 0
        assert await one.get("x/a") == b"one"


class TestRejected:
    @async_test
    async def test_wrong_keys_are_rejected_without_showing_secret(self, tmp_path: Path) -> None:
        blob = S3Blobs(s3_server().bucket(), AccessKeys("unknown", SECRET))
        with s3_server().strict():
            messages = await error_messages(blob, r"access denied \(InvalidAccessKeyId: .+\)")
        assert all("blobs" in each and SECRET not in each for each in messages), messages

    @async_test
    async def test_missing_bucket_is_unavailable(self, tmp_path: Path) -> None:
        await error_messages(S3Blobs(s3_server().bucket(name="missing-bucket"), KEYS), "NoSuchBucket")

    def test_keys_repr_hides_secret(self) -> None:
        assert SECRET not in repr(AccessKeys("id", SECRET))
        assert SECRET not in f"{AccessKeys('id', SECRET)}"


class TestUnavailable:
    @async_test
    async def test_closed_port_is_unavailable(self, tmp_path: Path) -> None:
        with refusing_port() as port:
            url = f"http://127.0.0.1:{port}"
            messages = await error_messages(S3Blobs(Bucket("blobs", endpoint=url), KEYS))
        assert messages == [f"{url}, bucket `blobs`: the service cannot be reached"] * 3

    @async_test
    async def test_unknown_host_is_unavailable(self, tmp_path: Path) -> None:
        await error_messages(
            S3Blobs(Bucket("blobs", endpoint="http://nowhere.invalid"), KEYS), "cannot be reached"
        )

    @async_test
    async def test_silent_server_times_out(self, tmp_path: Path) -> None:
        async with serving() as (url, _):
            blob = S3Blobs(Bucket("blobs", endpoint=url), KEYS, timeout=0.3)
            began = time.monotonic()
            await error_messages(blob, r"no response within 0\.3 s|cannot be reached")
            assert time.monotonic() - began < 60

    @async_test
    async def test_unaccepted_connection_times_out(self, tmp_path: Path) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            await error_messages(S3Blobs(Bucket("blobs", endpoint=url), KEYS, timeout=0.3))

    @async_test
    async def test_transient_errors_are_retried(self, tmp_path: Path) -> None:
        error = answer("503 Slow Down")
        async with serving(error, error, answer("200 OK", b"", 'ETag: "a"')) as (url, requests):
            await S3Blobs(Bucket("blobs", endpoint=url), KEYS).put("x/a", b"data")
        assert len(requests) == 3

    @async_test
    async def test_persistent_error_fails_after_retries(self, tmp_path: Path) -> None:
        async with serving(*[answer("503 Slow Down")] * 20) as (url, requests):
            with pytest.raises(StoreUnavailableError, match="503"):
                await S3Blobs(Bucket("blobs", endpoint=url), KEYS).put("x/a", b"data")
        assert len(requests) == 1 + s3.RETRIES

    @async_test
    async def test_server_other_than_s3_is_unavailable(self, tmp_path: Path) -> None:
        async with serving(*[answer("200 OK", b"<html>hello</html>")] * 20) as (url, _):
            with pytest.raises(StoreUnavailableError, match=url):
                await S3Blobs(Bucket("blobs", endpoint=url), KEYS).put("x/a", b"data")


class TestHostile:
    @async_test
    async def test_hostile_keys_stay_in_prefix(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        parent = S3Blobs(s3_server().bucket("own"), KEYS)
        await parent.put("outside/a", b"other")
        await check_hostile_keys(blob)
        assert await blob.delete("..") == 2
        assert await blob.delete(".") == 1
        assert await blob.delete("x") == sum(key.startswith("x/") for key in HOSTILE_KEYS)
        assert await parent.get("outside/a") == b"other"

    @async_test
    async def test_invalid_keys_are_rejected(self, tmp_path: Path) -> None:
        blob = make_blobs(tmp_path)
        await check_invalid_keys(blob)
        await check_invalid_executions(blob)
