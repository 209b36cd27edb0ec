"""Hostile and invalid blob keys."""

from __future__ import annotations

import pytest

from rune.adapters.blobs.keys import InvalidBlobKeyError
from rune.ports.journal import BlobStore

HOSTILE_KEYS = (
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
"""Valid keys: each is stored and found, and nothing else is touched."""

INVALID_KEYS = ("", "x", "x/", "/", "/x", "/etc/passwd")
INVALID_EXECUTIONS = ("", "/", "x/..")


async def check_hostile_keys(blob: BlobStore) -> None:
    """Put and get every hostile key."""
    for number, key in enumerate(HOSTILE_KEYS):
        await blob.put(key, str(number).encode())
    for number, key in enumerate(HOSTILE_KEYS):
        assert await blob.get(key) == str(number).encode()


async def check_invalid_keys(blob: BlobStore) -> None:
    """Check that invalid keys are rejected by put and never found."""
    for key in INVALID_KEYS:
        with pytest.raises(InvalidBlobKeyError):
            await blob.put(key, b"data")
        assert await blob.get(key) is None


async def check_invalid_executions(blob: BlobStore) -> None:
    """Check that invalid execution ids are rejected by delete."""
    for execution in INVALID_EXECUTIONS:
        with pytest.raises(InvalidBlobKeyError):
            await blob.delete(execution)
