"""Checks, decodes and compares payloads that clients send. Small ones at once, others in a thread, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rune.codec.same_value import same_value
from rune.core.definition.model import Definition
from rune.core.definition.strict_json import Decoded, parse_input
from rune.core.execution.stored_value import Inline, Large, StoredValue
from rune.documents.json_schema import NeedsThreadError, short_checks
from rune.documents.loader import check_input
from rune.off_loop import off_loop, off_loop_in_turn
from rune.ports.journal import BlobStore

T = TypeVar("T")

MAX_INLINE_BYTES = 64 * 1024
"""Larger payloads are checked in a thread."""


async def checked(work: Callable[[], T]) -> T:
    """Return what `work` returns, which checks schemas or values against them: at once if the checks are short, else
    it is done again in a thread."""
    try:
        with short_checks():
            return work()
    except NeedsThreadError:
        return await off_loop(work)


async def check_start(definition: Definition, data: bytes) -> None:
    """Raise InvalidDocumentError with the problems of a start payload, if it has any."""
    if len(data) <= MAX_INLINE_BYTES:
        await checked(partial(check_input, definition, data))
    else:
        await off_loop_in_turn(partial(check_input, definition, data))


async def decode_payload(data: bytes) -> Decoded:
    """Decode a payload, with its problems."""
    if len(data) <= MAX_INLINE_BYTES:
        return parse_input(data)
    return await off_loop_in_turn(partial(parse_input, data))


async def for_size(size: int, work: Callable[[], T]) -> T:
    """Return what `work` returns, which takes time in proportion to a size: of a large one, computed in a thread."""
    return work() if size <= MAX_INLINE_BYTES else await off_loop_in_turn(work)


async def same_payload(blob: BlobStore, stored: StoredValue, given: StoredValue) -> bool:
    """Return whether a stored payload is the same value as a given one, however it is written."""
    if stored == given:
        return True
    one, other = await _text(blob, stored), await _text(blob, given)
    if one is None or other is None:
        return False
    if len(one) <= MAX_INLINE_BYTES and len(other) <= MAX_INLINE_BYTES:
        return same_value(one, other)
    return await off_loop_in_turn(partial(same_value, one, other))


async def _text(blob: BlobStore, stored: StoredValue) -> bytes | None:
    if type(stored) is Inline:
        return stored.data
    return await blob.get(stored.key) if type(stored) is Large else None
