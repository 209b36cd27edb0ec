"""The blobs of an execution as its nodes see them: bytes are put away, and a small reference travels in their place."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rune.core.limits import LIMITS
from rune.errors import LimitExceededError, NodeFailure
from rune.nodes.schema import Model
from rune.ports.blobs import BlobStore

BINARY = "application/octet-stream"
UNKNOWN = "BLOB_UNKNOWN"
_KEY = r"^[A-Za-z0-9_-]{1,128}/files/[0-9a-f]{64}$"
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff/\\\u202a-\u202e\u2066-\u2069]+")
_MAX_NAME_CHARS = 200
_SLOW = 1024 * 1024
"""From this size on a hash is worth a thread."""


class Reference(Model, kw_only=True, frozen=True):
    """Stands for bytes. It is plain JSON and can be handed from node to node like any other value."""

    blob: Annotated[str, Meta(pattern=_KEY, description="Key in the blob store; begins with the execution.")]
    size: Annotated[int, Meta(ge=0, description="Number of bytes.")]
    content_type: Annotated[str, Meta(description="Media type.")] = BINARY
    name: Annotated[str | None, Meta(description="Name of the file, if it has one.")] = None


def is_reference(value: Any) -> bool:
    """Whether a value has exactly the shape of a reference."""
    if type(value) is not dict or "blob" not in value or "size" not in value:
        return False
    try:
        msgspec.convert(value, Reference)
    except msgspec.ValidationError:
        return False
    return True


def file_name(text: str | None) -> str | None:
    """The last part of a name, without what could be taken for a path or a line of its own."""
    if not text:
        return None
    last = " ".join(_NOT_IN_NAMES.sub(" ", re.split(r"[/\\]", text)[-1]).split()).strip(" .")
    return last[-_MAX_NAME_CHARS:].strip(" .") or None


def media_type(text: str | None) -> str:
    """A media type without its parameters; whatever is none counts as bytes."""
    plain = (text or "").partition(";")[0].strip().lower()
    return plain if _TYPE.fullmatch(plain) else BINARY


class Blobs:
    """Puts bytes away for one execution and gets them back; those of others are out of reach, unless they were lent."""

    def __init__(self, store: BlobStore, execution: str, lent: tuple[str, ...] = ()) -> None:
        self._store = store
        self._within_reach = frozenset((execution, *lent))
        self.execution = execution

    async def put(self, data: bytes, name: str | None = None, content_type: str = BINARY) -> dict[str, Any]:
        """Keep bytes; durable when this returns. The answer is the reference, as JSON.

        A key follows from the bytes, so an attempt that comes late changes nothing that is named already.
        """
        if len(data) > LIMITS.output_bytes:
            raise LimitExceededError("bytes of a blob", LIMITS.output_bytes, len(data))
        digest = await asyncio.to_thread(_digest, data) if len(data) > _SLOW else _digest(data)
        key = f"{self.execution}/files/{digest}"
        await self._store.put(key, data)
        made = Reference(
            blob=key, size=len(data), content_type=media_type(content_type), name=file_name(name)
        )
        found: dict[str, Any] = msgspec.to_builtins(made)
        return found

    async def get(self, reference: Reference | Mapping[str, Any]) -> bytes:
        """The bytes that a reference stands for."""
        try:
            wanted = reference if isinstance(reference, Reference) else msgspec.convert(reference, Reference)
        except msgspec.ValidationError as error:
            raise NodeFailure(f"this is no reference to a blob: {error}", code=UNKNOWN) from None
        if wanted.blob.partition("/")[0] not in self._within_reach:
            raise NodeFailure("the blob belongs to another execution", code=UNKNOWN)
        data = await self._store.get(wanted.blob)
        if data is None:
            raise NodeFailure(f"there is no blob `{wanted.blob}`", code=UNKNOWN)
        return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def names_blobs(data: bytes) -> bool:
    """Whether JSON may hold a reference; it errs on the safe side."""
    return b"/files/" in data


async def adopt(store: BlobStore, value: Any, execution: str) -> Any:
    """A value with its references turned into ones of an execution that it is handed to; their bytes come along."""
    if type(value) is list:
        return [await adopt(store, each, execution) for each in value]
    if type(value) is not dict:
        return value
    if not is_reference(value):
        return {name: await adopt(store, each, execution) for name, each in value.items()}
    data = await store.get(value["blob"])
    if data is None:
        return value
    key = f"{execution}/files/{value['blob'].rpartition('/')[2]}"
    await store.put(key, data)
    return {**value, "blob": key}


class _NoBlobStore:
    """For calls outside of an engine: there is no place to put anything."""

    async def put(self, key: str, data: bytes) -> None:
        raise NodeFailure("this call was given no blob store", code=UNKNOWN)

    async def get(self, key: str) -> bytes | None:
        return None

    async def delete(self, execution: str) -> int:
        return 0


NO_BLOBS = Blobs(_NoBlobStore(), "nowhere")
"""For calls that keep nothing."""
