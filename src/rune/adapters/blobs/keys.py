"""Names of blobs outside: what a key becomes where its parts are read as a path."""

from __future__ import annotations

import hashlib
from typing import NamedTuple
from urllib.parse import quote

from rune.errors import RuneError

MAX_KEY_CHARS = 200
"""Characters of a name as it is; file systems take 255 bytes."""


class InvalidBlobKeyError(RuneError):
    """A key that names no blob of any execution."""

    code = "BAD_KEY"


class BlobKey(NamedTuple):
    """Two plain names; neither holds a slash or a dot, nor is it empty."""

    execution: str
    blob: str


def parse_blob_key(key: str) -> BlobKey:
    """The place of a key. Different keys have different places."""
    execution, slash, rest = key.partition("/")
    if not slash or not rest:
        raise InvalidBlobKeyError(f"`{_shown(key)}` is no key of a blob: it has to be `execution/name`")
    return BlobKey(execution_folder(execution), _plain(rest))


def execution_folder(execution: str) -> str:
    """The place of everything that an execution has. An empty one would stand for all of them."""
    if not execution or "/" in execution:
        raise InvalidBlobKeyError(f"`{_shown(execution)}` is no id of an execution")
    return _plain(execution)


def fan_out(execution: str) -> tuple[str, str]:
    """Two folders to lie in, so that none holds too many."""
    digest = hashlib.sha256(execution.encode()).hexdigest()
    return digest[:2], digest[2:4]


def _plain(part: str) -> str:
    """Readable where it can be. A dot is spelled out, so that no name means a folder or hides a file."""
    plain = quote(part, safe="@", errors="surrogatepass").replace(".", "%2E")
    if len(plain) <= MAX_KEY_CHARS:
        return plain
    # No name above begins with a plus: it would be spelled out.
    return "+" + hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest()


def _shown(key: str) -> str:
    return key[:80].encode("ascii", "backslashreplace").decode()
