"""Blobs in a bucket: pages, refusals, silence, and keys that somebody would try."""

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
from tests.contract.suites.scenario import scenario
from tests.integration.blobs.hostile import HOSTILE, keep_hostile, refuse_no_executions, refuse_no_keys
from tests.integration.blobs.s3_server import KEYS, PAGE, s3_server
from tests.support.services.postgres import free_port

SECRET = "a-secret-that-nobody-reads"


@pytest.fixture(autouse=True, scope="module")
def _running() -> None:
    s3_server()


def made(folder: Path) -> S3Blobs:
    return S3Blobs(s3_server().bucket(f"own/{folder.name}"), KEYS)


async def refusal(blob: S3Blobs, word: str = ".") -> list[str]:
    """Every act is refused as `StoreAway`; what was said."""
    said = []
    for act in (blob.put("x/a", b"data"), blob.get("x/a"), blob.delete("x")):
        with pytest.raises(StoreUnavailableError, match=word) as caught:
            await act
        said.append(caught.value.message)
    return said


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these answers, one a connection, and then hears without a word."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            if len(asked) <= len(answers):
                writer.write(answers[len(asked) - 1])
                await writer.drain()
            else:
                await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class TestPages:
    @scenario
    async def test_an_execution_with_many_pages_goes_whole(self, folder: Path) -> None:
        blob = made(folder)
        count = 3 * PAGE + 5
        await asyncio.gather(*(blob.put(f"x/{number}", b"data") for number in range(count)))
        await blob.put("xy/0", b"data")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(s3, "DELETE_BATCH", PAGE)
            assert await blob.delete("x") == count
        assert [await blob.get(f"x/{number}") for number in range(count)] == [None] * count
        assert await blob.get("xy/0") == b"data"

    @scenario
    async def test_prefixes_of_one_bucket_know_nothing_of_each_other(self, folder: Path) -> None:
        one, other = (S3Blobs(s3_server().bucket(f"{folder.name}/{each}"), KEYS) for each in "ab")
        whole = S3Blobs(s3_server().bucket(), KEYS)
        await one.put("x/a", b"one")
        assert await other.get("x/a") is None
        assert await other.delete("x") == await whole.delete("x") == 0
        assert await one.get("x/a") == b"one"


class TestRefused:
    @scenario
    async def test_wrong_keys(self, folder: Path) -> None:
        blob = S3Blobs(s3_server().bucket(), AccessKeys("nobody", SECRET))
        with s3_server().strict():
            said = await refusal(blob, r"access denied \(InvalidAccessKeyId: .+\)")
        assert all("blobs" in each and SECRET not in each for each in said), said

    @scenario
    async def test_a_bucket_that_is_missing_is_no_missing_blob(self, folder: Path) -> None:
        await refusal(S3Blobs(s3_server().bucket(name="nobody-made-it"), KEYS), "NoSuchBucket")

    def test_keys_are_shown_without_the_secret(self) -> None:
        assert SECRET not in repr(AccessKeys("id", SECRET))
        assert SECRET not in f"{AccessKeys('id', SECRET)}"


class TestAway:
    @scenario
    async def test_nobody_listens(self, folder: Path) -> None:
        url = f"http://127.0.0.1:{free_port()}"
        said = await refusal(S3Blobs(Bucket("blobs", endpoint=url), KEYS))
        assert said == [f"{url}, bucket `blobs`: the service cannot be reached"] * 3

    @scenario
    async def test_no_such_host(self, folder: Path) -> None:
        await refusal(S3Blobs(Bucket("blobs", endpoint="http://nowhere.invalid"), KEYS), "cannot be reached")

    @scenario
    async def test_a_server_that_says_nothing_is_waited_for_so_long_and_no_longer(self, folder: Path) -> None:
        async with serving() as (url, _):
            blob = S3Blobs(Bucket("blobs", endpoint=url), KEYS, timeout=0.3)
            began = time.monotonic()
            await refusal(blob, r"no response within 0\.3 s|cannot be reached")
            assert time.monotonic() - began < 60

    @scenario
    async def test_a_line_that_nobody_takes_up(self, folder: Path) -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
            await refusal(S3Blobs(Bucket("blobs", endpoint=url), KEYS, timeout=0.3))

    @scenario
    async def test_a_passing_trouble_is_not_noticed(self, folder: Path) -> None:
        trouble = answer("503 Slow Down")
        async with serving(trouble, trouble, answer("200 OK", b"", 'ETag: "a"')) as (url, asked):
            await S3Blobs(Bucket("blobs", endpoint=url), KEYS).put("x/a", b"data")
        assert len(asked) == 3

    @scenario
    async def test_a_lasting_trouble_is_told_after_few_tries(self, folder: Path) -> None:
        async with serving(*[answer("503 Slow Down")] * 20) as (url, asked):
            with pytest.raises(StoreUnavailableError, match="503"):
                await S3Blobs(Bucket("blobs", endpoint=url), KEYS).put("x/a", b"data")
        assert len(asked) == 1 + s3.RETRIES

    @scenario
    async def test_what_is_no_s3_keeps_nothing_and_that_is_told(self, folder: Path) -> None:
        async with serving(*[answer("200 OK", b"<html>hello</html>")] * 20) as (url, _):
            with pytest.raises(StoreUnavailableError, match=url):
                await S3Blobs(Bucket("blobs", endpoint=url), KEYS).put("x/a", b"data")


class TestHostile:
    @scenario
    async def test_nothing_leaves_the_prefix(self, folder: Path) -> None:
        blob = made(folder)
        beside = S3Blobs(s3_server().bucket("own"), KEYS)
        await beside.put("outside/a", b"mine")
        await keep_hostile(blob)
        assert await blob.delete("..") == 2
        assert await blob.delete(".") == 1
        assert await blob.delete("x") == sum(key.startswith("x/") for key in HOSTILE)
        assert await beside.get("outside/a") == b"mine"

    @scenario
    async def test_what_is_no_key_is_refused_and_never_found(self, folder: Path) -> None:
        blob = made(folder)
        await refuse_no_keys(blob)
        await refuse_no_executions(blob)
