"""The journal, the durable record of all executions as write-once facts, with its blobs and its outbox.

When several workers record the same fact, the first write wins and every worker continues with the stored one. That
is how results are recorded exactly once although nodes may run more than once. Values that are too large for a row are
blobs. Only backends with separate stores for journal and state have an outbox, for the work that follows from a write:
a process that crashes between the two writes leaves a row from which a relay resumes. In the embedded backend both are
one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

import msgspec

from rune.core.definition.model import HookHandler
from rune.core.execution.fact import ExecutionEnded, Fact, NodeResult, SignalReceived, TokenFact
from rune.core.execution.stored_value import StoredValue
from rune.core.execution.token import Path
from rune.core.permissions import LOCAL
from rune.core.start_keys import sent_key
from rune.errors import RuneError
from rune.ports.access import AppliedLimits

Kind = Literal["start", "end"]

AnyFact = TypeVar("AnyFact", bound=Fact)
"""The stored fact has the key of the recorded one and so its type: what is recorded is returned."""


class UnknownExecutionError(LookupError):
    """Journal and state do not know the execution: it was never accepted, or was removed since. Callers never receive
    it: services look for an execution first."""

    def __init__(self, execution: str) -> None:
        super().__init__(f"no execution has the id {execution}")
        self.execution = execution


class ExecutionEndedError(RuneError):
    """The execution has ended. Facts recorded afterwards are stored, marked as late, and have no consequences."""

    code = "ENDED"

    def __init__(self, end: ExecutionEnded, detail: str = "") -> None:
        super().__init__(f"the execution has ended as {end.status}{detail and f'; {detail}'}")
        self.end = end


class TokenEndedError(RuneError):
    """The attempt that tried to start a child has already ended, by the fact of another worker."""

    code = "TOKEN_ENDED"


class StoreUnavailableError(RuneError):
    """A store cannot be reached or written. The operation was not acknowledged and can be retried."""

    code = "STORE_AWAY"


class StoreDamagedError(StoreUnavailableError):
    """The content of a store cannot be read. Retrying does not help; a backup does."""

    code = "STORE_DAMAGED"


class IdempotencyConflictError(RuneError):
    """An idempotency key was used before with another payload or workflow."""

    code = "KEY_CONFLICT"


def key_conflict(key: str) -> IdempotencyConflictError:
    """Return the error of a start whose idempotency key, as it is stored, belongs to another start."""
    return IdempotencyConflictError(f"key `{sent_key(key)}` was used before with another payload or workflow")


class IdempotencyKeyExpiredError(RuneError):
    """An idempotency key was used before, and the execution that it started was removed."""

    code = "KEY_SPENT"

    def __init__(self, key: str, execution: str) -> None:
        super().__init__(
            f"key `{sent_key(key)}` was used to start {execution}, which has ended and was removed"
        )
        self.execution = execution


class ExecutionRemovedError(RuneError):
    """An execution whose results a new one refers to was removed."""

    code = "GONE"


class NewerFormatError(RuneError):
    """The data was written by a newer version of Rune."""

    code = "NEWER_FORMAT"


class Parent(msgspec.Struct, frozen=True):
    """The token that started a child execution and waits for its end."""

    execution: str
    node: int
    path: Path
    attempt: int


class ExecutionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An execution as it was accepted: the input of everything that follows. `root` is the execution that idempotency
    keys of effects are derived from: the first in a chain of retries; empty: this one. `input` is the start payload: in
    the record if it is small, else a blob, which may be that of an execution that this one repeats. It is the last
    field, so that the first bytes of a stored record have what lists show."""

    id: str
    workflow: str
    hash: str
    at: int
    key: str | None = None
    labels: dict[str, str] = {}
    priority: int = 5
    fake_time: bool = False
    parent: Parent | None = None
    depth: int = 0  # number of ancestors
    root: str = ""
    retry_of: str | None = None
    # The execution whose hook this handles, also for its children, retries and reruns: they start no handlers.
    hook_of: str | None = None
    # Executions whose blobs it refers to; retention keeps them as long as this one.
    needs: tuple[str, ...] = ()
    # Credentials are granted to principals. A child has the principal of its parent.
    principal: str = LOCAL
    # The workflows whose executions it may start as children: those of the principal that deployed its version, or that
    # started a definition that is not stored. None: all.
    scopes: tuple[str, ...] = ()
    trace: str = ""  # the W3C `traceparent` of the start request
    # The version of a deployed workflow, and the alias that selected it; None if the start named the number.
    version: int | None = None
    alias: str | None = None
    format: int = 1  # the lowest that suits it, see rune.core.format
    input: StoredValue


class HandedOver(ExecutionRecord, frozen=True, kw_only=True):
    """An execution that another engine was told to run. It is stored nowhere here."""


ENGINE_ERRORS = frozenset({"DEAD_LETTERED", "WORKER_CRASH", "UNKNOWN_TYPE"})
"""Codes of ends that no fact of the execution leads to: one of its messages could not be handled."""


def dead_letter_code(end: ExecutionEnded) -> str | None:
    """Return the code of the dead letter that an end makes; None if it makes none."""
    given_up = end.status == "failed" and end.error is not None and end.error.code in ENGINE_ERRORS
    return end.error.code if given_up and end.error is not None else None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that the engine ended because it could not process one of its tokens."""

    id: str
    execution: str
    workflow: str
    node: str
    code: str
    message: str
    at: int


class StoredFact(msgspec.Struct, frozen=True):
    """A fact with its position in commit order. `late`: it was recorded after the end of the execution."""

    number: int
    fact: Fact
    late: bool = False


class Journal(Protocol):
    """Definitions, executions and their facts."""

    async def save_definition(self, hash: str, canonical: bytes) -> None:
        """Store a definition under its hash. Idempotent."""

    async def definition(self, hash: str) -> bytes | None:
        """Return the canonical form of a definition."""

    async def accept(
        self,
        execution: ExecutionRecord,
        kept: Sequence[Fact] = (),
        held: AppliedLimits | None = None,
        digest: bytes | None = None,
    ) -> ExecutionRecord:
        """Record the start of an execution, together with the facts `kept` that it starts with. `digest` is that of the
        request, by which a repeated idempotency key is compared; the default is that of the record. It is that of the
        text: the launcher compares the values of a conflict.

        If the id or the idempotency key was used before, return the execution that it started then. Everything else
        is checked in the transaction that writes the start, and a rejected start writes nothing:

        - ExecutionEndedError: the parent has ended.
        - TokenEndedError: the parent is running, but the attempt that starts this child is over.
        - StartLimitError: the start exceeds one of the limits `held`.
        - IdempotencyConflictError, IdempotencyKeyExpiredError: the key belongs to another start.
        - ExecutionRemovedError: an execution that `kept` refers to was removed.
        """

    async def keyed(self, key: str) -> str | None:
        """Return the execution that an idempotency key was used for, which may have been removed since; None if the key
        is unknown."""

    async def accepted(self, execution: str) -> ExecutionRecord | None:
        """Return an execution as it was accepted; None if it is unknown. NewerFormatError if it cannot be read."""

    async def record(
        self, execution: str, facts: Sequence[AnyFact], *, hooked: bool = False
    ) -> Sequence[AnyFact]:
        """Record facts in one transaction and return them. Durable when this returns. An end as failed or halted, and
        another one with `hooked`, is recorded together with a row of its hook, and so is that it is late.

        If the first fact was recorded before, nothing is written and the stored fact is returned instead: the caller
        continues with what is stored. If only a later fact was recorded before, the first one is recorded alone.
        ExecutionEndedError if the execution has ended; the facts are then stored as late ones. UnknownExecutionError if
        it was not accepted or was removed.
        """

    async def record_all(
        self, execution: str, runs: Sequence[Sequence[AnyFact]]
    ) -> list[Sequence[AnyFact] | BaseException]:
        """Record the facts of several runs of an execution together; return for each what `record` returns or raises.
        A run whose first fact was recorded before does not keep the others from being recorded."""

    async def facts(self, execution: str, after: int = 0, limit: int | None = None) -> list[StoredFact]:
        """Return at most `limit` facts of an execution with numbers above `after`, in commit order."""

    async def signal(self, execution: str, id: str) -> SignalReceived | None:
        """Return the signal with this id that an execution has received."""

    async def children(self, parent: str) -> list[str]:
        """Return the children of an execution that have not ended."""

    async def unreported_children(self, limit: int) -> list[str]:
        """Return ended children whose end was not delivered to the parent, and running children of ended parents."""

    async def mark_reported(self, execution: str) -> None:
        """Record that the end of a child was delivered to its parent."""

    async def dead_letters(self, limit: int, after: str | None = None) -> list[DeadLetter]:
        """Return unresolved dead letters, newest first, starting after the one with id `after`."""

    async def resolve_dead_letter(self, letter: str, how: str) -> bool:
        """Record how a dead letter was resolved, such as requeued or discarded. False if no unresolved one has this
        id."""

    async def results(self, execution: str, keys: Sequence[tuple[int, Path]]) -> list[NodeResult | None]:
        """Return the result of each of these tokens, or None in its place."""

    async def facts_of_token(self, execution: str, node: int, path: Path) -> list[TokenFact]:
        """Return the result, failed attempts and suspensions of one token, in commit order."""

    async def count_claim(
        self, execution: str, node: int, path: Path, fence: tuple[int, int], at: int, *, durable: bool = False
    ) -> int:
        """Count a claim of a token and return how often it was claimed. Without `durable`, the count may be too low
        and the claim is written later, with the next facts."""

    async def open_claims(self, execution: str) -> dict[tuple[int, Path], int]:
        """Return the tokens that were claimed and have no result, with the time of their first claim (epoch ms). The
        claims of the last seconds may be missing."""

    async def claims_of(self, execution: str, node: int, path: Path) -> int:
        """Return how many claims of a token are recorded."""

    async def last_claims(self, execution: str) -> dict[tuple[int, Path], int]:
        """Return the tokens that were claimed and have no result, with the time of their last claim (epoch ms). The
        claims of the last seconds may be missing."""

    async def end(self, execution: str) -> ExecutionEnded | None:
        """Return the end of an execution; None if it has not ended."""

    async def ends_of(self, executions: Sequence[str]) -> dict[str, ExecutionEnded]:
        """Return the ends of those executions that have ended."""

    async def close(self) -> None:
        """Complete pending writes and release the store."""


class BlobStore(Protocol):
    """Bytes by key. A key starts with the id of its execution and a slash.

    The runtime stores a blob before it records the fact that refers to it.
    """

    async def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key, replacing earlier ones. Durable when this returns."""

    async def get(self, key: str) -> bytes | None:
        """Return the bytes, or None if no blob has this key."""

    async def delete(self, execution: str) -> int:
        """Delete every blob of an execution and return how many there were."""


class OutboxRow(msgspec.Struct, frozen=True):
    """Work to do: `start` opens the execution, `end` closes its state and publishes the completion. `body` is the
    message, once it was built."""

    number: int
    execution: str
    kind: Kind
    body: bytes | None = None


class Outbox(Protocol):
    """Rows of pending work. A row is written in the transaction of the fact that it follows from. Several relays may
    take rows concurrently."""

    async def take(self, limit: int) -> list[OutboxRow]:
        """Return overdue rows, oldest first, and hide them from other relays for a while."""

    async def keep(self, number: int, body: bytes) -> bytes:
        """Store the message of a row and return the one that was stored first, so that every send is identical."""

    async def done(self, numbers: Sequence[int]) -> None:
        """Delete rows whose work is complete. Idempotent; a row that is not deleted is processed again."""

    async def mark_done(self, execution: str, kind: Kind) -> None:
        """Delete the row of an execution, for the process that wrote it and does not know its number."""


HOOK_HOLD_MS = 10_000
MAX_HOOK_HOLD_MS = 3_600_000
"""How long a row is hidden from other processes that was taken for the first time, and for how long at most: each time
it is twice as long."""


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An execution of a deployed workflow that is missing since `at` (epoch ms), and why: none completed in time, or
    the schedule `node` could not start one. `name` tells it from others: the workflow or its schedule, and the time."""

    name: str
    workflow: str
    version: int
    hash: str
    at: int
    code: str
    message: str
    node: str | None = None
    scopes: tuple[str, ...] = ()


class HookRow(msgspec.Struct, frozen=True):
    """A handler to start: for this execution, which ended, or was late, at `at`; or for one that is missing, whose name
    is in its place. `tries`: how often it was taken."""

    number: int
    execution: str
    kind: str
    at: int
    tries: int = 1
    missing: Missing | None = None


class FailedHook(msgspec.Struct, frozen=True, kw_only=True):
    """A handler that could not be started, and why. Without `given_up` (epoch ms) it is tried again. `workflow`: the
    one of which an execution is missing."""

    execution: str
    kind: str
    at: int
    tries: int
    error: str
    given_up: int | None = None
    workflow: str | None = None


class HandlerDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The handlers of executions of deployed workflows whose definitions name none."""

    on_failure: HookHandler | None = None
    on_late: HookHandler | None = None
    on_missing: HookHandler | None = None


class HookStore(Protocol):
    """Rows of handlers to start. A row is written in the transaction of the fact that it follows from. Several
    processes may take rows concurrently."""

    async def take(self, limit: int) -> list[HookRow]:
        """Return free rows, oldest first, and hide them from other processes for a while."""

    async def done(self, numbers: Sequence[int]) -> None:
        """Delete rows. Idempotent; a row that is not deleted is taken again."""

    async def fail(self, number: int, error: str, given_up: int | None = None) -> None:
        """Store why the handler of a row could not be started; with `given_up` (epoch ms) it is not taken again."""

    async def failed(self, limit: int) -> list[FailedHook]:
        """Return rows whose handler could not be started, newest first."""

    async def defaults(self) -> HandlerDefaults:
        """Return the handlers of workflows that name none."""

    async def put_defaults(self, defaults: HandlerDefaults) -> None:
        """Replace the handlers of workflows that name none."""

    async def forget(self, before: int) -> int:
        """Delete rows that were given up before a time (epoch ms), and return how many there were."""


class EventPublisher(Protocol):
    """Publishes encoded messages. The engine does not depend on whether a consumer reads them."""

    def publish_status(self, body: bytes) -> None:
        """Publish a status. Never blocks or raises: statuses that cannot be sent are dropped, the oldest first."""

    async def publish_completion(self, body: bytes) -> None:
        """Publish a completion. The broker has stored it when this returns."""

    async def hand_over(self, body: bytes) -> None:
        """Publish an execution for another engine to run. The broker has stored it when this returns."""


class EventHandler(Protocol):
    """Takes encoded messages about executions. They are hints: any may be lost, malformed or come twice."""

    async def on_statuses(self, bodies: Sequence[bytes]) -> None:
        """Take status messages in the order of their arrival."""

    async def on_completion(self, body: bytes) -> None:
        """Take a completion message."""


class EventConsumer(Protocol):
    """Consumes the messages that workers publish."""

    async def run(self, handler: EventHandler) -> None:
        """Pass messages to the handler until cancelled. While the broker is unavailable, wait for it."""
