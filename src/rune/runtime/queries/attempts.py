"""The attempts of node runs and their logs, read from the journal and the blob store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    Fact,
    NodeResult,
    NodeSuspended,
    TokenFact,
)
from rune.core.execution.outcome import Error
from rune.core.execution.token import Path, idempotency_key, token_name
from rune.core.plan.model import Plan
from rune.nodes.attempt_log import LogLine, StoredLog, decode_log, shortened
from rune.nodes.redaction import SECRETS_IN_USE
from rune.ports.journal import BlobStore, ExecutionRecord, Journal
from rune.ports.processes import RunningNode
from rune.runtime.queries.history import STATUS, History
from rune.runtime.worker.attempt import log_key

BATCH_SIZE = 500


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a node run. `ended_at` is None while it runs or waits."""

    attempt: int
    status: str
    started_at: int
    ended_at: int | None = None
    error: Error | None = None
    worker: str = ""
    logged: bool = False


class NodeLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one attempt."""

    node: int
    path: Path
    attempt: int
    dropped: int
    lines: list[LogLine]


def attempts_of(
    facts: Sequence[TokenFact], end: ExecutionEnded | None, running: RunningNode | None = None
) -> list[Attempt]:
    """Return the attempts of a token, given its facts, the end of its execution and what a worker runs now."""
    found: dict[int, Attempt] = {}
    for fact in facts:
        if isinstance(fact, NodeSuspended):
            began = fact.began or fact.at
            found[fact.attempt] = Attempt(
                attempt=fact.attempt, status="waiting", started_at=began, logged=fact.logged
            )
        elif isinstance(fact, AttemptFailed | NodeResult):
            known = found.get(fact.attempt)
            began = fact.began or fact.at
            status = "failed" if isinstance(fact, AttemptFailed) else STATUS.get(fact.status, fact.status)
            found[fact.attempt] = Attempt(
                attempt=fact.attempt,
                status=status,
                started_at=began if known is None else known.started_at,
                ended_at=fact.at,
                error=fact.failure,
                worker=fact.worker,
                logged=fact.logged or (known is not None and known.logged),
            )
    if running is not None and found.get(running.attempt, _NONE).ended_at is None:
        found[running.attempt] = Attempt(
            attempt=running.attempt, status="running", started_at=running.since, worker=running.worker
        )
    attempts = [found[number] for number in sorted(found)]
    if end is not None and attempts and attempts[-1].ended_at is None:
        attempts[-1] = msgspec.structs.replace(attempts[-1], status="cancelled", ended_at=end.at)
    return attempts


_NONE = Attempt(attempt=0, status="", started_at=0)


class AttemptReader:
    """Reads the attempts of one execution and their logs."""

    def __init__(self, accepted: ExecutionRecord, plan: Plan, journal: Journal, blob: BlobStore) -> None:
        self.execution = accepted.id
        self.plan = plan
        self.history = History(accepted, plan, journal, blob, ())
        """Computes lineages. They lack the number of items."""
        self._journal = journal
        self._blob = blob
        self._root = accepted.root or accepted.id

    def idempotency_key(self, node: int, path: Path) -> str:
        """Return the key that a node with effects sends; empty for one that sends none."""
        found = self.plan.nodes[node]
        if found.pure or not found.node.idempotency_key:
            return ""
        return idempotency_key(self._root, token_name(node, path, self.plan.ids))

    async def attempts(self, node: int, path: Path, running: Sequence[RunningNode] = ()) -> list[Attempt]:
        """Return the attempts of a token, oldest first."""
        facts = await self._journal.facts_of_token(self.execution, node, path)
        now = next((each for each in running if (each.node, each.path) == (node, path)), None)
        return attempts_of(facts, await self._journal.end(self.execution), now)

    async def log(self, node: int, path: Path, attempt: int) -> NodeLog:
        """Return the log of an attempt; without lines if it logged nothing."""
        if self.plan.nodes[node].type.logs_output:
            for fact in await self._journal.facts_of_token(self.execution, node, path):
                if isinstance(fact, NodeResult) and fact.attempt == attempt and fact.status == "ok":
                    return await self._output_line(fact)
        data = await self._blob.get(log_key(self.execution, self.plan, node, path, attempt))
        stored = StoredLog() if data is None else decode_log(data)
        return NodeLog(node=node, path=path, attempt=attempt, dropped=stored.dropped, lines=stored.lines)

    async def logs(
        self, after: int = 0, node: int | None = None
    ) -> AsyncIterator[tuple[int, NodeLog | None]]:
        """Yield the logs of all attempts that have ended or wait, in the order of their facts, each with the number of
        its fact; None for a fact without a log. `after` is the number of a fact, `node` selects one node."""
        while stored := await self._journal.facts(self.execution, after, BATCH_SIZE):
            for each in stored:
                yield each.number, await self._log_of(each.fact, node)
            if len(stored) < BATCH_SIZE:
                return
            after = stored[-1].number

    async def _log_of(self, fact: Fact, node: int | None) -> NodeLog | None:
        if not isinstance(fact, NodeResult | AttemptFailed | NodeSuspended) or node not in (None, fact.node):
            return None
        if isinstance(fact, NodeResult) and fact.status == "ok" and self._logs_output(fact.node):
            return await self._output_line(fact)
        return await self.log(fact.node, fact.path, fact.attempt) if fact.logged else None

    def _logs_output(self, node: int) -> bool:
        return self.plan.nodes[node].type.logs_output

    async def _output_line(self, fact: NodeResult) -> NodeLog:
        """Return the line of a node whose output is what it logs."""
        run = await self.history.node_run(fact)
        message = msgspec.json.decode(run.output) if run.output is not None else None
        text = message if isinstance(message, str) else (run.output or b"null").decode()
        level = str(self.plan.definition.nodes[fact.node].parameters.get("level", "info"))
        line = LogLine(fact.at, level, SECRETS_IN_USE.text(shortened(text)))
        return NodeLog(node=fact.node, path=fact.path, attempt=fact.attempt, dropped=0, lines=[line])
