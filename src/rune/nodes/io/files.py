"""Files that go out with a request or a mail: given as text, as JSON, as base64, or by reference to a blob."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rune.core import codes
from rune.errors import NodeFailure
from rune.nodes.blobs import BINARY, Blobs, file_name, is_reference, media_type
from rune.nodes.declare import Model
from rune.nodes.rules import plain

TEXT = "text/plain"


class File(Model, kw_only=True, frozen=True):
    """One file. A reference to a blob is one as it stands; `filename` may give it another name."""

    filename: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Name of the file. Default: the blob's."),
    ] = None
    content: Annotated[Any, Meta(description="Text, a reference to a blob, or anything else as JSON.")] = None
    content_type: Annotated[str | None, Meta(description="Media type. Default: by the file's name.")] = None
    encoding: Annotated[
        Literal["text", "base64"], Meta(description="How `content` is written, if it is text.")
    ] = "text"
    blob: Annotated[str | None, Meta(description="Key of a blob, instead of `content`.")] = None
    size: Annotated[int | None, Meta(description="Size of the blob.")] = None
    name: Annotated[str | None, Meta(description="Name of the blob.")] = None


class Loaded(msgspec.Struct, frozen=True):
    """A file with its bytes."""

    name: str
    content_type: str
    data: bytes


def is_file(value: Any) -> bool:
    """Whether an object describes a file and not a value."""
    return is_reference(value) or (type(value) is dict and "filename" in value and "content" in value)


def as_file(value: Any, where: str) -> File:
    """An object as a file."""
    try:
        return msgspec.convert(value, File)
    except msgspec.ValidationError as error:
        raise refused(where, str(error)) from None


def refused(where: str, why: str) -> NodeFailure:
    """A file that cannot be sent."""
    return NodeFailure(f"{where}: {why}", code=codes.BAD_PARAMETER)


async def load(file: File, blobs: Blobs, most: int, where: str) -> Loaded:
    """The bytes of a file, at most so many."""
    reference = _reference(file, where)
    given = None if reference is None else reference.get("name")
    name = file_name(file.filename or given) or "file"
    if reference is not None:
        if reference["size"] > most:
            raise refused(where, f"the file has {reference['size']:,} bytes, and there is room for {most:,}")
        data = await blobs.get(reference)
        kind = file.content_type or reference.get("content_type")
    else:
        data, kind = _given(file, name, where)
    if len(data) > most:
        raise refused(where, f"the file has {len(data):,} bytes, and there is room for {most:,}")
    return Loaded(name, media_type(kind), data)


def _reference(file: File, where: str) -> dict[str, Any] | None:
    if file.blob is not None:
        if file.content is not None:
            raise refused(where, "`content` and `blob` are both given")
        found = {"blob": file.blob, "size": file.size, "name": file.name}
        if not is_reference(found):
            raise refused(where, "this is no reference to a blob")
        return {**found, "content_type": file.content_type or BINARY}
    return file.content if is_reference(file.content) else None


def _given(file: File, name: str, where: str) -> tuple[bytes, str]:
    import mimetypes  # noqa: PLC0415 - reads the system's tables when it is loaded

    kind = file.content_type or mimetypes.guess_type(name)[0]
    content = "" if file.content is None else file.content
    if not isinstance(content, str):
        return msgspec.json.encode(content), kind or "application/json"
    if file.encoding == "base64":
        return decoded(content, where), kind or BINARY
    return plain(content).encode("utf-8", "replace"), kind or TEXT


def decoded(text: str, where: str) -> bytes:
    """Bytes written as base64; line breaks are let pass."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise refused(where, "this is no base64") from None
