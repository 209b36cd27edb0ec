"""Dead letters of a queue: messages that no worker could process, with the reason.

An execution that the engine gave up on is a dead letter of the journal instead (`ports.journal`).
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import msgspec

from rune.errors import RuneError


class QueueDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that no worker could process. `execution` is None if the body cannot be decoded, `at` (epoch ms) if the
    queue did not record the time."""

    id: str
    code: str
    reason: str
    queue: str
    execution: str | None
    body: bytes
    at: int | None = None
    rescues: int = 0  # how often it was requeued


class DeadLetterQueue(Protocol):
    """The dead letters of one queue technology."""

    async def list(self, limit: int = 100) -> list[QueueDeadLetter]:
        """Return dead letters, oldest first."""

    async def count(self) -> int:
        """Return the number of dead letters."""

    async def requeue(self, letter: str) -> int:
        """Send the letters with this id to their original queue again and return how many."""

    async def discard(self, letter: str) -> int:
        """Delete the letters with this id and return how many."""


def letter_id(queue: str, code: str, body: bytes) -> str:
    """Return the id of a letter: a digest of its content. Identical letters share it and are handled together."""
    content = f"{queue}\x1f{code}\x1f".encode(errors="replace") + body
    return "m" + hashlib.blake2b(content, digest_size=8).hexdigest()


def failure_of(error: Exception) -> tuple[str, str]:
    """Return code and reason of the dead letter that an error makes."""
    if isinstance(error, RuneError):
        return error.code, error.message
    return "DEAD_LETTERED", f"{type(error).__name__}: {error}"
