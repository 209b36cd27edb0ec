"""Blobs in a bucket of an S3-compatible service."""

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
"""Time limit of one operation including its retries, in seconds."""

CONNECT_TIMEOUT_S = 5.0
RETRIES = 3
DELETE_BATCH = 1000
"""Maximum number of objects that S3 deletes per request."""

_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_STATUS = re.compile(r"status code: (\d{3}[^:\n]{0,40})")


class AccessKeys(NamedTuple):
    """Access keys of the S3 service."""

    id: str
    secret: str
    session: str = ""

    def __repr__(self) -> str:
        return f"AccessKeys({self.id})"


class Bucket(NamedTuple):
    """Location of the blobs. Without an endpoint, Amazon S3 in the region is used."""

    name: str
    prefix: str = ""
    endpoint: str = ""
    region: str = "us-east-1"

    def __str__(self) -> str:
        return f"{self.endpoint or f'S3 in {self.region}'}, bucket `{self.name}`"


class S3Blobs:
    """Bytes by key. The objects of an execution share a prefix."""

    def __init__(self, bucket: Bucket, keys: AccessKeys, *, timeout: float = TIMEOUT_S) -> None:
        self._bucket = bucket
        self._timeout = timeout
        self._store = _store(bucket, keys, timeout)

    async def put(self, key: str, data: bytes) -> None:
        name = parse_blob_key(key)
        # A single request is atomic; an interrupted multipart upload would leave parts behind.
        async with self._errors_translated():
            await self._store.put_async(f"{name.execution}/{name.blob}", data, use_multipart=False)

    async def get(self, key: str) -> bytes | None:
        try:
            name = parse_blob_key(key)
        except InvalidBlobKeyError:
            return None
        async with self._errors_translated():
            try:
                found = await self._store.get_async(f"{name.execution}/{name.blob}")
                return bytes(await found.bytes_async())
            except FileNotFoundError as error:
                # With the bucket missing, the blob is unreachable, not missing.
                if _code(error) == "NoSuchBucket":
                    raise
                return None

    async def delete(self, execution: str) -> int:
        listing = self._store.list(execution_folder(execution), chunk_size=DELETE_BATCH)
        count = 0
        while True:
            async with self._errors_translated():
                page = await anext(listing, None)
                if page is None:
                    return count
                await self._store.delete_async([each["path"] for each in page])
            count += len(page)

    @asynccontextmanager
    async def _errors_translated(self) -> AsyncIterator[None]:
        """Limit the duration and translate errors of the client library to StoreUnavailableError."""
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except TimeoutError as error:
            raise StoreUnavailableError(f"{self._bucket}: no response within {self._timeout:g} s") from error
        except (BaseError, OSError) as error:
            reason = f"access denied ({_describe(error)})" if _is_access_denied(error) else _describe(error)
            raise StoreUnavailableError(f"{self._bucket}: {reason}") from error


def _store(bucket: Bucket, keys: AccessKeys, timeout: float) -> S3Store:
    options = {"endpoint": bucket.endpoint} if bucket.endpoint else {}
    if keys.session:
        options["session_token"] = keys.session
    return S3Store(
        bucket.name,
        prefix=bucket.prefix or None,
        region=bucket.region,
        access_key_id=keys.id,
        secret_access_key=keys.secret,
        virtual_hosted_style_request=not bucket.endpoint,
        client_options={
            "allow_http": bucket.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT_S, timeout)),
            "timeout": timedelta(seconds=timeout),
        },
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=timeout),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
        **options,  # type: ignore[arg-type]
    )


def _is_access_denied(error: Exception) -> bool:
    # A listing wraps the response in a generic error, so the exception class does not suffice.
    status = _STATUS.search(str(error))
    return isinstance(error, PermissionDeniedError | UnauthenticatedError) or (
        status is not None and status[1].startswith(("401", "403"))
    )


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else ""


def _describe(error: Exception) -> str:
    """Return the reason of a failure, without the parts of the message that repeat the request."""
    text = str(error)
    code, message, status = _code(error), _MESSAGE.search(text), _STATUS.search(text)
    if code:
        return f"{code}: {message[1]}" if message else code
    if status:
        return f"status {status[1].strip()}"
    if "error sending request" in text or "HTTP error" in text:
        return "the service cannot be reached"
    return text.partition("\n")[0][:300]
