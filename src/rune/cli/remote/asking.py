"""Asking a server: refusals come back as they would be raised here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime

import msgspec

from rune.client import AsyncClient, Refusal
from rune.compose import NotOverUrl
from rune.core.problem import Problem
from rune.errors import InvalidDocument, RuneError
from rune.settings import Settings


def not_over_url(what: str, settings: Settings) -> NotOverUrl:
    """Why it is refused, and what to do instead."""
    return NotOverUrl(
        f"{what} cannot be asked of the server at {settings.url}: unset RUNE_URL and run it where the server runs"
    )


@asynccontextmanager
async def client(settings: Settings) -> AsyncIterator[AsyncClient]:
    """A client of the server that the settings name."""
    async with AsyncClient(settings.url, key=settings.api_key or None) as opened:
        with _as_here(settings.url):
            yield opened


@contextmanager
def _as_here(url: str) -> Iterator[None]:
    try:
        yield
    except Refusal as refused:
        if refused.problems:
            problems = [msgspec.to_builtins(each) for each in refused.problems]
            raise InvalidDocument(tuple(msgspec.convert(each, Problem) for each in problems)) from None
        if refused.code == "UNAUTHORIZED":
            raise RuneError(
                f"{url} asks for a key, and RUNE_API_KEY does not hold it", code="UNAUTHORIZED"
            ) from None
        if refused.code == "HTTP_STATUS":
            raise RuneError(
                f"{url} does not answer as a Rune server does: status {refused.status}", code="UNREACHABLE"
            ) from None
        raise
    except msgspec.DecodeError as error:
        raise RuneError(f"{url} does not answer as a Rune server does: {error}", code="UNREACHABLE") from None


def epoch(moment: str) -> int:
    """ISO 8601 text as epoch ms."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
