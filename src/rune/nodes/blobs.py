"""Blobs of an execution: nodes store bytes and pass a small reference from node to node instead."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rune.core.limits import LIMITS
from rune.errors import LimitExceededError, NodeFailure
from rune.nodes.schema import Model
from rune.ports.journal import BlobStore

BINARY = "application/octet-stream"
UNKNOWN = "BLOB_UNKNOWN"
_KEY = r"^[A-Za-z0-9_-]{1,128}/files/[0-9a-f]{64}$"
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff/\\\u202a-\u202e\u2066-\u2069]+")
_MAX_NAME_CHARS = 200
# Larger blobs are hashed in a thread, so that they do not block the event loop.
_HASH_IN_THREAD_BYTES = 1024 * 1024


class Reference(Model, kw_only=True, frozen=True):
    """Reference to a blob: plain JSON that can be passed between nodes like any other value."""

    blob: Annotated[
        str, Meta(pattern=_KEY, description="Key in the blob store; starts with the execution id.")
    ]
    size: Annotated[int, Meta(ge=0, description="Size in bytes.")]
    content_type: Annotated[str, Meta(description="Media type.")] = BINARY
    name: Annotated[str | None, Meta(description="File name, if any.")] = None


def is_reference(value: Any) -> bool:
    """Return whether a value is a blob reference."""
    if type(value) is not dict or "blob" not in value or "size" not in value:
        return False
    try:
        msgspec.convert(value, Reference)
    except msgspec.ValidationError:
        return False
    return True


def file_name(text: str | None) -> str | None:
    """Return the last segment of a name without path separators and control characters, or None if empty."""
    if not text:
        return None
    last = " ".join(_NOT_IN_NAMES.sub(" ", re.split(r"[/\\]", text)[-1]).split()).strip(" .")
    return last[-_MAX_NAME_CHARS:].strip(" .") or None


def media_type(text: str | None) -> str:
    """Return a media type without parameters; `application/octet-stream` if it is not valid."""
    plain = (text or "").partition(";")[0].strip().lower()
    return plain if _TYPE.fullmatch(plain) else BINARY


class Blobs:
    """Stores and loads the blobs of one execution, and loads those of the executions in `lent`."""

    def __init__(self, store: BlobStore, execution: str, lent: tuple[str, ...] = ()) -> None:
        self._store = store
        self._accessible = frozenset((execution, *lent))
        self.execution = execution

    async def put(self, data: bytes, name: str | None = None, content_type: str = BINARY) -> dict[str, Any]:
        """Store bytes durably and return their reference as JSON.

        The key is derived from the content, so a late attempt cannot change a blob that is already referenced.
        """
        if len(data) > LIMITS.output_bytes:
            raise LimitExceededError("bytes of a blob", LIMITS.output_bytes, len(data))
        digest = await _digest_in_thread(data) if len(data) > _HASH_IN_THREAD_BYTES else _digest(data)
        key = f"{self.execution}/files/{digest}"
        await self._store.put(key, data)
        made = Reference(
            blob=key, size=len(data), content_type=media_type(content_type), name=file_name(name)
        )
        found: dict[str, Any] = msgspec.to_builtins(made)
        return found

    async def get(self, reference: Reference | Mapping[str, Any]) -> bytes:
        """Load the bytes of a reference."""
        try:
            wanted = reference if isinstance(reference, Reference) else msgspec.convert(reference, Reference)
        except msgspec.ValidationError as error:
            raise NodeFailure(f"not a blob reference: {error}", code=UNKNOWN) from None
        if wanted.blob.partition("/")[0] not in self._accessible:
            raise NodeFailure("the blob belongs to another execution", code=UNKNOWN)
        data = await self._store.get(wanted.blob)
        if data is None:
            raise NodeFailure(f"the blob `{wanted.blob}` does not exist", code=UNKNOWN)
        return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def _digest_in_thread(data: bytes) -> str:
    from asyncio import to_thread  # noqa: PLC0415 - writing a workflow needs no event loop

    return await to_thread(_digest, data)


def names_blobs(data: bytes) -> bool:
    """Return whether encoded JSON may contain a blob reference; false positives are possible."""
    return b"/files/" in data


async def adopt(store: BlobStore, value: Any, execution: str) -> Any:
    """Copy the blobs a value references to another execution and return the value with the new references. Parts that
    are the same object are copied once and stay the same object."""
    return await _Adoption(store, execution).value(value)


class _Adoption:
    """Copies the blobs of one value. It keeps the parts it has seen, so that no other object takes their place."""

    def __init__(self, store: BlobStore, execution: str) -> None:
        self._store = store
        self._execution = execution
        self._seen: dict[int, tuple[Any, Any]] = {}

    async def value(self, value: Any) -> Any:
        kind = type(value)
        if kind is not list and kind is not dict:
            return value
        seen = self._seen.get(id(value))
        if seen is not None:
            return seen[1]
        found: Any
        if kind is list:
            found = [await self.value(each) for each in value]
        elif is_reference(value):
            found = await self._copied(value)
        else:
            found = {name: await self.value(each) for name, each in value.items()}
        self._seen[id(value)] = (value, found)
        return found

    async def _copied(self, reference: dict[str, Any]) -> dict[str, Any]:
        data = await self._store.get(reference["blob"])
        if data is None:
            return reference
        key = f"{self._execution}/files/{reference['blob'].rpartition('/')[2]}"
        await self._store.put(key, data)
        return {**reference, "blob": key}


class _NoBlobStore:
    """Blob store of calls outside an engine: stores nothing."""

    async def put(self, key: str, data: bytes) -> None:
        raise NodeFailure("this call has no blob store", code=UNKNOWN)

    async def get(self, key: str) -> bytes | None:
        return None

    async def delete(self, execution: str) -> int:
        return 0


NO_BLOBS = Blobs(_NoBlobStore(), "nowhere")
"""For calls that store no blobs."""
