"""Keys that somebody would try."""

from __future__ import annotations

import pytest

from rune.adapters.blobs.keys import InvalidBlobKeyError
from rune.ports.blobs import BlobStore

HOSTILE = (
    "../outside",
    "../../outside/a",
    "./a",
    "x/../../outside",
    "x/..",
    "x/.",
    "x//../../outside",
    "x/%2e%2e/%2F",
    "x/..%2f..%2foutside",
    "x/\\..\\outside",
    "x/a\0b",
    "x/a\nb",
    "x/.hidden",
    "x/+aaaa",
    "x/ ",
    "x/ünïcode ☃",
    "x/lone \udc80 surrogate",
    "x/" + "long" * 500,
    "..%2f/a",
    "~/a",
    "C:/a",
)
"""Each is a key like any other: it is kept and found, and nothing else is touched."""

NO_KEYS = ("", "x", "x/", "/", "/x", "/etc/passwd")
NO_EXECUTIONS = ("", "/", "x/..")


async def keep_hostile(blob: BlobStore) -> None:
    """Put and find them all."""
    for number, key in enumerate(HOSTILE):
        await blob.put(key, str(number).encode())
    for number, key in enumerate(HOSTILE):
        assert await blob.get(key) == str(number).encode()


async def refuse_no_keys(blob: BlobStore) -> None:
    """What is no key is not taken, and never found."""
    for key in NO_KEYS:
        with pytest.raises(InvalidBlobKeyError):
            await blob.put(key, b"data")
        assert await blob.get(key) is None


async def refuse_no_executions(blob: BlobStore) -> None:
    """No id stands for all executions, or for another's."""
    for execution in NO_EXECUTIONS:
        with pytest.raises(InvalidBlobKeyError):
            await blob.delete(execution)
