"""Blobs in a bucket of anything that speaks S3."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from rune.adapters.blobs.keys import InvalidBlobKeyError, execution_folder, parse_blob_key
from rune.ports.journal import StoreUnavailableError

TIMEOUT_S = 30.0
"""How long one act may take with all of its tries, in seconds."""

CONNECT_TIMEOUT_S = 5.0
RETRIES = 3
BATCH = 1000
"""As many as one request may delete."""

_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_STATUS = re.compile(r"status code: (\d{3}[^:\n]{0,40})")


class Keys(NamedTuple):
    """Who we are to the server."""

    id: str
    secret: str
    session: str = ""

    def __repr__(self) -> str:
        return f"Keys({self.id})"


class Bucket(NamedTuple):
    """Where the blobs lie. Without an endpoint it is Amazon's own of the region."""

    name: str
    prefix: str = ""
    endpoint: str = ""
    region: str = "us-east-1"

    def __str__(self) -> str:
        return f"{self.endpoint or f'S3 in {self.region}'}, bucket `{self.name}`"


class S3Blobs:
    """Bytes by key; an execution's lie under one prefix."""

    def __init__(self, bucket: Bucket, keys: Keys, *, patience: float = TIMEOUT_S) -> None:
        self._bucket = bucket
        self._patience = patience
        self._store = _store(bucket, keys, patience)

    async def put(self, key: str, data: bytes) -> None:
        name = parse_blob_key(key)
        # One request whatever the size: it happens as a whole or not at all, and leaves no parts behind.
        async with self._telling():
            await self._store.put_async(f"{name.execution}/{name.blob}", data, use_multipart=False)

    async def get(self, key: str) -> bytes | None:
        try:
            name = parse_blob_key(key)
        except InvalidBlobKeyError:
            return None
        async with self._telling():
            try:
                found = await self._store.get_async(f"{name.execution}/{name.blob}")
                return bytes(await found.bytes_async())
            except FileNotFoundError as error:
                # A bucket that is missing says nothing about what was kept in it.
                if _code(error) == "NoSuchBucket":
                    raise
                return None

    async def delete(self, execution: str) -> int:
        listing = self._store.list(execution_folder(execution), chunk_size=BATCH)
        count = 0
        while True:
            async with self._telling():
                page = await anext(listing, None)
                if page is None:
                    return count
                await self._store.delete_async([each["path"] for each in page])
            count += len(page)

    @asynccontextmanager
    async def _telling(self) -> AsyncIterator[None]:
        """What goes wrong becomes our error, and nothing takes longer than our patience."""
        try:
            async with asyncio.timeout(self._patience):
                yield
        except TimeoutError as error:
            raise StoreUnavailableError(f"{self._bucket}: no answer within {self._patience:g} s") from error
        except (BaseError, OSError) as error:
            said = f"access is refused ({_said(error)})" if _refused(error) else _said(error)
            raise StoreUnavailableError(f"{self._bucket}: {said}") from error


def _store(bucket: Bucket, keys: Keys, patience: float) -> S3Store:
    given = {"endpoint": bucket.endpoint} if bucket.endpoint else {}
    if keys.session:
        given["session_token"] = keys.session
    return S3Store(
        bucket.name,
        prefix=bucket.prefix or None,
        region=bucket.region,
        access_key_id=keys.id,
        secret_access_key=keys.secret,
        virtual_hosted_style_request=not bucket.endpoint,
        client_options={
            "allow_http": bucket.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT_S, patience)),
            "timeout": timedelta(seconds=patience),
        },
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=patience),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
        **given,  # type: ignore[arg-type]
    )


def _refused(error: Exception) -> bool:
    status = _STATUS.search(str(error))  # a listing wraps what it was told
    return isinstance(error, PermissionDeniedError | UnauthenticatedError) or (
        status is not None and status[1].startswith(("401", "403"))
    )


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else ""


def _said(error: Exception) -> str:
    """What the server said, or that it did not; without the rest, which repeats the request."""
    text = str(error)
    code, message, status = _code(error), _MESSAGE.search(text), _STATUS.search(text)
    if code:
        return f"{code}: {message[1]}" if message else code
    if status:
        return f"status {status[1].strip()}"
    if "error sending request" in text or "HTTP error" in text:
        return "it cannot be reached"
    return text.partition("\n")[0][:300]
