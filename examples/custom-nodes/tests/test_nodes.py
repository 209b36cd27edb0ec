"""Tests call the node functions directly, without an engine."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from acme_nodes import PIECE, checksum, document, slug

from rune.errors import NodeFailure
from rune.testing import context


@pytest.mark.parametrize(
    ("text", "expected"), [("Hello, World!", "hello-world"), ("  A--b  ", "a-b"), ("x" * 99, "x" * 60)]
)
def test_a_slug_fits_into_an_address(text: str, expected: str) -> None:
    assert slug(text) == expected


def test_nothing_is_no_slug() -> None:
    with pytest.raises(NodeFailure) as failed:
        slug("!!!")

    assert failed.value.code == "ACME_NO_SLUG"


def test_a_document_is_kept_and_named() -> None:
    async def scenario() -> tuple[str | None, bytes]:
        ctx = context()
        reference = await document(ctx, "Big News", ["one", "two"])
        return reference["name"], await ctx.blob.get(reference)

    name, data = asyncio.run(scenario())

    assert name == "big-news.txt"
    assert data == b"Big News\n========\n\none\ntwo\n"


def test_a_checksum_is_told_on_the_way() -> None:
    async def scenario() -> tuple[str, int]:
        ctx = context(loop=asyncio.get_running_loop())
        file = await ctx.blob.put(b"x" * (3 * PIECE))
        found = await asyncio.to_thread(checksum, ctx, file)
        return found["checksum"], len(ctx.reported)

    assert asyncio.run(scenario()) == (hashlib.sha256(b"x" * (3 * PIECE)).hexdigest(), 3)


def test_a_checksum_nobody_waits_for_stops() -> None:
    async def scenario() -> None:
        ctx = context(loop=asyncio.get_running_loop())
        ctx.abandon()
        await asyncio.to_thread(checksum, ctx, {})

    with pytest.raises(NodeFailure):
        asyncio.run(scenario())
