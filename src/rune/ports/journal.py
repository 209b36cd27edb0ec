"""The journal remembers: write-once facts, first writer wins, everybody uses the stored row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rune.core.fact import End, Fact, Result
from rune.core.lineage import Path
from rune.errors import RuneError

FORMAT = 1
"""Version of what is written. A reader that meets a newer one hands the work back."""


class Ended(RuneError):
    """The execution has its terminal row: what came later is kept, marked late, and nothing follows from it."""

    code = "ENDED"

    def __init__(self, end: End) -> None:
        super().__init__(f"the execution has ended as {end.status}")
        self.end = end


class StoreAway(RuneError):
    """A store cannot be reached or written now. Nobody's fault: what was not acknowledged did not happen."""

    code = "STORE_AWAY"


class KeyConflict(RuneError):
    """A client key was used before with another payload or workflow."""

    code = "KEY_CONFLICT"


class NewerFormat(RuneError):
    """Something was written by a newer version of Rune than this one."""

    code = "NEWER_FORMAT"


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as it was accepted: everything that is not a consequence."""

    id: str
    workflow: str
    hash: str
    at: int
    input: bytes
    key: str | None = None
    labels: dict[str, str] = {}
    priority: int = 5
    fake_time: bool = False
    format: int = FORMAT


class Stored(msgspec.Struct, frozen=True):
    """A fact in commit order; a late one follows the terminal row."""

    number: int
    fact: Fact
    late: bool = False


class Journal(Protocol):
    """Facts by execution."""

    async def save_definition(self, hash: str, canonical: bytes) -> None:
        """Keep a definition; the same one twice is one."""

    async def definition(self, hash: str) -> bytes | None:
        """The canonical form of a definition."""

    async def accept(self, execution: Accepted) -> Accepted:
        """Write the start. A client key that was used before answers the execution it started then."""

    async def accepted(self, execution: str) -> Accepted | None:
        """How an execution was started."""

    async def record(self, execution: str, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Write a run of facts in one act, durable when this returns. All of it hangs on the first: if that was written
        before, nothing is, and the stored fact is the answer. Raises Ended where the terminal row is already there."""

    async def facts(self, execution: str, after: int = 0) -> list[Stored]:
        """What is known of an execution, in commit order, behind a number."""

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[Result | None]:
        """The results of these tokens."""

    async def claimed(
        self, execution: str, node: int, path: Path, fence: tuple[int, int], at: int, *, durable: bool = False
    ) -> int:
        """Note that a token was claimed; answers how often, as far as is known. `durable`: known when this returns."""

    async def end(self, execution: str) -> End | None:
        """The terminal row, if there is one."""

    async def close(self) -> None:
        """Write what is under way, then let go."""
