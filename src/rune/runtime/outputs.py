"""Outputs as messages show them: as they are stored, or, where they are large, by name."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.fact import Result
from rune.core.token import Ref, token_name
from rune.core.values import failure_value
from rune.runtime.book import Book
from rune.wire.codec import Inline, Large, Same, encode_value
from rune.wire.rabbit import NOTHING

MOST = 32 * 1024
"""Bytes of one output in a message; what is larger is named."""


def output_of(book: Book, result: Result) -> msgspec.Raw:
    """What a node put out, as far as that is in memory."""
    if result.status == "failed":
        return msgspec.Raw(encode_value(failure_value(result)))
    kept = result.value
    while type(kept) is Same:
        ref = kept.ref
        if ref.kind == "start":
            return shown(f"{book.accepted.id}/start", book.accepted.input)
        found = book.known(ref.node, ref.path) if ref.kind == "result" else None
        if found is None:
            return _elsewhere(book, ref)
        if found.status == "failed":
            return msgspec.Raw(encode_value(failure_value(found)))
        result, kept = found, found.value
    name = f"{book.accepted.id}/{token_name(result.node, result.path, book.plan.ids)}"
    if type(kept) is Inline:
        return shown(name, kept.data)
    return reference(kept.key, kept.size) if type(kept) is Large else NOTHING


def shown(name: str, data: bytes, most: int = MOST) -> msgspec.Raw:
    """A value, or its name where it is large."""
    return msgspec.Raw(data) if len(data) <= most else reference(name, len(data))


def reference(name: str, size: int) -> msgspec.Raw:
    """Where a value that is too large for a message lies."""
    return msgspec.Raw(encode_value({"$ref": name, "bytes": size}))


def _elsewhere(book: Book, ref: Ref) -> msgspec.Raw:
    """What a node only passed on, and that is not in memory."""
    named: dict[str, Any] = {"$ref": f"{book.accepted.id}/{token_name(ref.node, ref.path, book.plan.ids)}"}
    return msgspec.Raw(encode_value(named))
