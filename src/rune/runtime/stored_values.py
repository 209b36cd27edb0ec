"""How values are stored: small ones inline, large ones as blobs, the items of a fan-out in pages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from rune.codec.facts import (
    encode_value,
)
from rune.core.execution.stored_value import Inline, Large, StoredValue
from rune.core.limits import LIMITS, Limits
from rune.errors import LimitExceededError
from rune.nodes.base import check_json
from rune.off_loop import off_loop
from rune.ports.journal import BlobStore, ExecutionRecord


def input_size(accepted: ExecutionRecord) -> int:
    """Return how long the start payload of an execution is."""
    stored = accepted.input
    return len(stored.data) if type(stored) is Inline else stored.size if type(stored) is Large else 0


def input_digest(stored: StoredValue) -> str:
    """Return a digest of a start payload. The key of a blob ends with it."""
    if type(stored) is Inline:
        return hashlib.sha256(stored.data).hexdigest()
    assert type(stored) is Large
    return stored.key.rpartition("/")[2]


def same_input(one: StoredValue, other: StoredValue) -> bool:
    """Return whether two start payloads are the same."""
    return one == other or input_digest(one) == input_digest(other)


async def store_start(
    blob: BlobStore, execution: str, data: bytes, limits: Limits = LIMITS
) -> Inline | Large:
    """Return how to store a start payload: in its record if it is small, else as a blob. The key ends with a digest of
    the bytes, so that a second start with the same id, but another payload, does not change the first."""
    if len(data) <= limits.inline_bytes:
        return Inline(data)
    if len(data) > limits.payload_bytes:
        raise LimitExceededError("bytes of a start payload", limits.payload_bytes, len(data))
    digest = await off_loop(lambda: input_digest(Inline(data)))
    return await store_value(blob, f"{execution}/start/{digest}", data, limits)


async def store_value(blob: BlobStore, key: str, data: bytes, limits: Limits = LIMITS) -> Inline | Large:
    """Return how to store a value: inline if small, else as a blob, written before any row refers to it."""
    if len(data) <= limits.inline_bytes:
        return Inline(data)
    if len(data) > limits.output_bytes:
        raise LimitExceededError("output bytes", limits.output_bytes, len(data))
    await blob.put(key, data)
    return Large(key, len(data))


def pages(items: list[Any], limits: Limits) -> Iterator[tuple[int, bytes]]:
    """Yield pages of whole items as JSON, each with the index of its first item."""
    page: list[bytes] = []
    size = first = total = 0
    for index, item in enumerate(items):
        check_json(item, limits)
        data = encode_value(item)
        total += len(data)
        if total > limits.output_bytes:
            raise LimitExceededError("bytes of the items", limits.output_bytes)
        if page and (len(page) >= limits.page_items or size + len(data) > limits.page_bytes):
            yield first, b"[" + b",".join(page) + b"]"
            page, size, first = [], 0, index
        page.append(data)
        size += len(data)
    if page:
        yield first, b"[" + b",".join(page) + b"]"


def page_number(starts: tuple[int, ...], index: int) -> int:
    low, high = 0, len(starts) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if starts[middle] <= index else (low, middle - 1)
    return low
