"""Checks and decodes payloads that clients send. Small ones at once, others in a thread, one at a time."""

from __future__ import annotations

from functools import partial

from rune.core.definition.model import Definition
from rune.core.definition.strict_json import Decoded, parse_input
from rune.documents.loader import check_input
from rune.runtime.off_loop import off_loop_in_turn

MAX_INLINE_BYTES = 64 * 1024
"""Larger payloads are checked in a thread."""


async def check_start(definition: Definition, data: bytes) -> None:
    """Raise InvalidDocumentError with the problems of a start payload, if it has any."""
    if len(data) <= MAX_INLINE_BYTES:
        check_input(definition, data)
    else:
        await off_loop_in_turn(partial(check_input, definition, data))


async def decode_payload(data: bytes) -> Decoded:
    """Decode a payload, with its problems."""
    if len(data) <= MAX_INLINE_BYTES:
        return parse_input(data)
    return await off_loop_in_turn(partial(parse_input, data))
