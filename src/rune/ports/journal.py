"""The journal remembers: write-once facts, first writer wins, everybody uses the stored row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult, SignalReceived, TokenFact
from rune.core.execution.token import Path
from rune.core.permissions import LOCAL
from rune.errors import RuneError
from rune.ports.access import AppliedLimits

FORMAT = 1
"""Version of what is written. A reader that meets a newer one hands the work back."""


class ExecutionEndedError(RuneError):
    """The execution has its terminal row: what came later is kept, marked late, and nothing follows from it."""

    code = "ENDED"

    def __init__(self, end: ExecutionEnded) -> None:
        super().__init__(f"the execution has ended as {end.status}")
        self.end = end


class TokenEndedError(RuneError):
    """The attempt that wanted to start a child has ended meanwhile, by somebody else's row."""

    code = "TOKEN_ENDED"


class StoreUnavailableError(RuneError):
    """A store cannot be reached or written now. Nobody's fault: what was not acknowledged did not happen."""

    code = "STORE_AWAY"


class IdempotencyConflictError(RuneError):
    """A client key was used before with another payload or workflow."""

    code = "KEY_CONFLICT"


class IdempotencyKeyExpiredError(RuneError):
    """A client key was used before, and the execution that it started is no longer kept."""

    code = "KEY_SPENT"

    def __init__(self, key: str, execution: str) -> None:
        super().__init__(f"key `{key}` has started {execution}, which has ended and is no longer kept")
        self.execution = execution


class ExecutionRemovedError(RuneError):
    """An execution whose results were to be used again is no longer kept."""

    code = "GONE"


class NewerFormatError(RuneError):
    """Something was written by a newer version of Rune than this one."""

    code = "NEWER_FORMAT"


class Parent(msgspec.Struct, frozen=True):
    """Which token of which execution started this one and waits for its end."""

    execution: str
    node: int
    path: Path
    attempt: int


class ExecutionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An execution as it was accepted: everything that is not a consequence. `root` names its effects: the first of a
    line of retries, or itself where it is empty."""

    id: str
    workflow: str
    hash: str
    at: int
    input: bytes
    key: str | None = None
    labels: dict[str, str] = {}
    priority: int = 5
    fake_time: bool = False
    parent: Parent | None = None
    depth: int = 0  # how many executions are around this one
    root: str = ""
    retry_of: str | None = None
    needs: tuple[str, ...] = ()  # executions whose blobs it may name; they stay as long as it does
    principal: str = (
        LOCAL  # who started it, or the execution around it; credentials are granted to principals
    )
    trace: str = ""  # the W3C `traceparent` of whoever started it
    format: int = 1


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that the engine gave up on."""

    id: str
    execution: str
    workflow: str
    node: str
    code: str
    message: str
    at: int


class StoredFact(msgspec.Struct, frozen=True):
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

    async def accept(
        self, execution: ExecutionRecord, kept: Sequence[Fact] = (), held: AppliedLimits | None = None
    ) -> ExecutionRecord:
        """Write the start, and with it the facts that it begins with. A client key, or an id, that was used before
        answers the execution that it started then. A child whose parent has ended is refused: Ended; and
        one of an attempt that is over, while the parent runs on: TokenEnded. One that is new and beyond a limit that it
        is held to is refused, TooMany, and leaves nothing; whether it is so is decided in the act that writes it."""

    async def accepted(self, execution: str) -> ExecutionRecord | None:
        """How an execution was started."""

    async def record(self, execution: str, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Write a run of facts in one act, durable when this returns. All of it hangs on the first: if that was written
        before, nothing is, and the stored fact is the answer. Raises Ended where the terminal row is already there."""

    async def facts(self, execution: str, after: int = 0, limit: int | None = None) -> list[StoredFact]:
        """What is known of an execution, in commit order, behind a number; the first so many of it."""

    async def signal(self, execution: str, id: str) -> SignalReceived | None:
        """A signal that an execution was given."""

    async def children(self, parent: str) -> list[str]:
        """Executions whose end a parent waits for and that have not ended."""

    async def unreported_children(self, limit: int) -> list[str]:
        """Ended executions whose parent has not been told, and running ones whose parent has ended."""

    async def mark_reported(self, execution: str) -> None:
        """The parent knows."""

    async def dead_letters(self, limit: int, after: str | None = None) -> list[DeadLetter]:
        """Executions that the engine gave up on and nobody has settled, newest first, behind a given id."""

    async def resolve_dead_letter(self, letter: str, how: str) -> bool:
        """A dead letter was requeued or dropped; False if there is none."""

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[NodeResult | None]:
        """The results of these tokens."""

    async def facts_of_token(self, execution: str, node: int, path: Path) -> list[TokenFact]:
        """Everything that is written of one token, in commit order."""

    async def count_claim(
        self, execution: str, node: int, path: Path, fence: tuple[int, int], at: int, *, durable: bool = False
    ) -> int:
        """Note that a token was claimed; answers how often, as far as is known. `durable`: known when this returns."""

    async def end(self, execution: str) -> ExecutionEnded | None:
        """The terminal row, if there is one."""

    async def ends_of(self, executions: Sequence[str]) -> dict[str, ExecutionEnded]:
        """The terminal rows of those that have one."""

    async def close(self) -> None:
        """Write what is under way, then let go."""
