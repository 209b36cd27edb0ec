"""An execution that has ended leaves nothing in memory."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.codec.facts import Inline
from rune.core.execution.fact import Result
from rune.runtime.values import MOST_KEYS, Book, Cache


def book(cache: Cache, id: str) -> Book:
    accepted: Any = msgspec.defstruct("Accepted", ["id", "workflow"])(id, "w")
    nothing: Any = None
    return Book(accepted, nothing, nothing, nothing, cache)


def result(node: int) -> Result:
    return Result(node, (), 1, "ok", value=Inline(b"1"))


def test_what_is_forgotten_is_forgotten_of_this_execution_alone() -> None:
    cache = Cache(1_000_000)
    ended, other = book(cache, "ended"), book(cache, "other")
    for each in (ended, other):
        each.keep(result(1))
        each.keep_decoded(result(1), 1, 1)
        each.keep_page(f"{each.accepted.id}/items/0", [1], 1)
    before = cache._size
    ended.forget()
    assert (ended.known(1, ()), ended.decoded(1, ()), ended.page_of("ended/items/0")) == (None, None, None)
    assert (other.known(1, ()), other.decoded(1, ())) == (result(1), 1)
    assert cache._size == before / 2


def test_a_book_does_not_grow_with_what_it_has_kept() -> None:
    cache = Cache(10_000_000)
    long = book(cache, "long")
    for node in range(3 * MOST_KEYS):
        long.keep(result(node))
    assert len(long._keys) == MOST_KEYS
    long.forget()
    assert long.known(0, ()) is None
    assert long.known(3 * MOST_KEYS - 1, ()) is not None, "it goes when others need the place"
