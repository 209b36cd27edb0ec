"""Keys of blobs, mapped to names of files and objects that are safe as parts of a path."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from rune.errors import RuneError

if TYPE_CHECKING:
    pass


MAX_KEY_CHARS = 200
"""Longer names are replaced by their digest; file systems limit a name to 255 bytes."""


class InvalidBlobKeyError(RuneError):
    """A key does not have the form `execution/name`."""

    code = "BAD_KEY"


class BlobKey(NamedTuple):
    """Escaped names of an execution and a blob: not empty, without slashes and dots."""

    execution: str
    blob: str


def parse_blob_key(key: str) -> BlobKey:
    """Split and escape a key. Different keys have different results."""
    execution, slash, rest = key.partition("/")
    if not slash or not rest:
        raise InvalidBlobKeyError(f"`{_printable(key)}` is not a blob key: the form is `execution/name`")
    return BlobKey(execution_folder(execution), _escape(rest))


def execution_folder(execution: str) -> str:
    """Return the escaped name of an execution. An empty name is rejected, because it would match all executions."""
    if not execution or "/" in execution:
        raise InvalidBlobKeyError(f"`{_printable(execution)}` is not an execution id")
    return _escape(execution)


def fan_out(execution: str) -> tuple[str, str]:
    """Return two levels of folders for an execution, so that no folder has too many entries."""
    digest = hashlib.sha256(execution.encode()).hexdigest()
    return digest[:2], digest[2:4]


def is_fan_out(name: str) -> bool:
    """Return whether a name in the root folder is one of the folders of `fan_out`."""
    return len(name) == 2 and set(name) <= set("0123456789abcdef")


def _escape(part: str) -> str:
    """Percent-encode a name. Dots are encoded too, so that no name is `..` or starts with a dot."""
    plain = quote(part, safe="@", errors="surrogatepass").replace(".", "%2E")
    if len(plain) <= MAX_KEY_CHARS:
        return plain
    # No percent-encoded name starts with a plus, so digests cannot collide with other names.
    return "+" + hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest()


def _printable(key: str) -> str:
    return key[:80].encode("ascii", "backslashreplace").decode()
