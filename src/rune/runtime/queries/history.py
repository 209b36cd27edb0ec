"""The history of an execution: its node runs, events, context and output, computed from the facts in its journal.

Node runs and events are derived from the facts in commit order and not stored, so their numbers never change.

A replay takes about 25 µs per fact, so an execution with 100,000 items takes seconds. `replay` runs it in a thread,
because it must not block the event loop. The overview, whose counts every display shows, takes 2 to 4 µs per fact and
has no values, so the two are not one; `tests/unit/runtime/test_counts.py` holds both to the same counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from rune.codec.facts import encode_value
from rune.core.execution.decision import Applied
from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    ExecutionLate,
    ExecutionStarted,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    RaceWinner,
    SignalReceived,
)
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.core.execution.rerun import untolerated_items
from rune.core.execution.state import State
from rune.core.execution.stored_value import Same
from rune.core.execution.token import START, Frame, Path, Ref, parse_path, token_name
from rune.core.json_decoder import read_json
from rune.core.limits import LIMITS
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError
from rune.off_loop import off_loop
from rune.ports.clock import iso
from rune.ports.journal import BlobStore, ExecutionRecord, Journal, StoredFact
from rune.ports.queries import Event, NodeRun
from rune.runtime.execution_data import ExecutionData
from rune.runtime.value_cache import Cache
from rune.runtime.value_reader import ValueReader
from rune.runtime.value_refs import ValueNotLoaded

T = TypeVar("T")

MAX_INLINE_FACTS = 2_000


async def replay(facts: int, work: Callable[[], T]) -> T:
    """Return what `work` returns. If it replays more than MAX_INLINE_FACTS facts, it runs in a thread."""
    if facts <= MAX_INLINE_FACTS:
        return work()
    return await off_loop(work)


MAX_SHOWN_BYTES = 64 * 1024
"""A larger value is shown in documents and lists by a reference: all nodes may pass it on, that of joins behind each
other doubles with each, and copies of it are as large."""

RUNS_PER_TURN = 200
"""Runs that are read in one turn of the event loop."""

MAX_SHOWN_CANCELLED = 100  # runs in the event of an end
CACHE_BYTES = 32 * 1024 * 1024
STATUS = {"ok": "success"}
_NODE_EVENTS = {
    AttemptFailed: "node.retrying",
    NodeSuspended: "node.waiting",
    RaceWinner: "node.opened",
    EffectStarted: "node.begun",
}


class JoinedBytes(msgspec.Struct, frozen=True):
    """The payload of a join: the values in it as JSON, and its joins, inner ones first, as origins of their members."""

    origin: Ref
    values: dict[Ref, bytes]
    joins: dict[Ref, dict[str, Ref]]


class History:
    """Collects the facts of one execution and answers queries about it."""

    def __init__(
        self,
        accepted: ExecutionRecord,
        plan: Plan,
        journal: Journal,
        blob: BlobStore,
        stored: Sequence[StoredFact],
    ) -> None:
        self.accepted = accepted
        self.plan = plan
        self._journal = journal
        self._stored: list[StoredFact] = []
        self._data = ExecutionData(accepted, plan, journal, blob, Cache(CACHE_BYTES))
        self._reader = self._data.reader()
        self._results: dict[tuple[int, Path], NodeResult] = {}
        self._first: dict[tuple[int, Path], int] = {}
        self.end: ExecutionEnded | None = None
        self._followed = 1
        self._replay: tuple[int, State, Applied] | None = None
        self._open_runs = OpenRuns()
        self.claimed: Mapping[tuple[int, Path], int] = {}
        """Tokens that workers claimed and that have no result, with the time of their first claim: an execution that
        did not complete may have runs without a fact."""
        self.add(stored)

    def add(self, stored: Sequence[StoredFact]) -> None:
        """Append facts."""
        self._stored += stored
        self._followed += len(stored)
        for each in stored:
            fact = each.fact
            self._open_runs.add(each)
            if isinstance(fact, NodeResult):
                if not each.late:
                    self._results[(fact.node, fact.path)] = fact
                    self._reader.fetched[(fact.node, fact.path)] = fact
            elif isinstance(fact, AttemptFailed | NodeSuspended):
                self._first.setdefault((fact.node, fact.path), fact.began or fact.at)
            elif isinstance(fact, EffectStarted):
                self._first.setdefault((fact.node, fact.path), fact.at)
            elif isinstance(fact, ExecutionEnded):
                self.end = self.end or fact

    async def load_claims(self, following: Sequence[StoredFact] = ()) -> None:
        """Read what workers claimed if the execution has ended, or ends with the facts that are followed next, and did
        not complete."""
        ends = (each.fact for each in following if type(each.fact) is ExecutionEnded)
        end = self.end or next(ends, None)
        if end is not None and end.status != "completed":
            self.claimed = await self._journal.open_claims(self.accepted.id)

    @property
    def size(self) -> int:
        """The number of facts."""
        return len(self._stored)

    @property
    def last(self) -> int:
        """The number of the last fact, or 0 if there is none."""
        return self._stored[-1].number if self._stored else 0

    async def node_runs(self) -> list[NodeRun]:
        """Return the runs of all finished nodes in the order they ended, then those that the end of the execution
        cancelled, then the skipped nodes."""
        start = await self._reference_to(START)
        found = [
            NodeRun(
                node_id=self.plan.ids[node],
                lineage=(),
                status="success",
                attempts=1,
                output=await self._data.encoded_start() if start is None else encode_value(start),
                size=None if start is None else start["bytes"],
                started_at=self.accepted.at,
            )
            for node in sorted(self.plan.triggers)
        ]
        await replay(self.size, self._replayed)
        for count, result in enumerate(list(self._results.values())):
            if count % RUNS_PER_TURN == 0:
                await asyncio.sleep(0)
            if result.status != "skipped":
                found.append(await self.node_run(result))
        found += [run for _, run in self.cancelled()]
        for node, path in self.skipped():
            found.append(NodeRun(node_id=self.plan.ids[node], lineage=self.lineage(path), status="skipped"))
        return found

    async def node_run(self, result: NodeResult, *, whole: bool = False) -> NodeRun:
        """Return the run of one result; with `whole`, also with a large output."""
        output: bytes | None = None
        size: int | None = None
        if result.status == "ok" and result.items is None:
            shown = None if whole else await self._reference(result)
            if shown is None:
                output = await self._read(lambda reader: reader.encoded(result))
            else:
                output, size = encode_value(shown), shown["bytes"]
        return NodeRun(
            node_id=self.plan.ids[result.node],
            lineage=self.lineage(result.path),
            status=STATUS.get(result.status, result.status),
            attempts=result.attempt,
            output=output,
            size=size,
            error=result.failure,
            started_at=self._began(result),
            duration_ms=max(0, result.at - self._began(result)),
            pinned=self._is_pinned(result),
        )

    async def _reference(self, result: NodeResult) -> dict[str, Any] | None:
        """Return what is shown for a large output; None for other outputs."""
        return await self._reference_to(Ref("result", result.node, result.path))

    async def _reference_to(self, ref: Ref) -> dict[str, Any] | None:
        shown, size = await self._read(lambda reader: reader.shown(ref))
        return (
            None if size <= MAX_SHOWN_BYTES else reference_document(self.accepted.id, self.plan, shown, size)
        )

    def _is_pinned(self, result: NodeResult) -> bool:
        """Return whether the output was given: by the definition, or in the execution that the result is kept from."""
        given = self.plan.nodes[result.node].node.pin is not None and not result.kept
        return result.status == "ok" and (given or result.pinned)

    def _began(self, result: NodeResult) -> int:
        """Return when a node first ran, before any suspension or failed attempt."""
        earlier = self._first.get((result.node, result.path), result.at)
        return min(earlier, result.began or result.at)

    def cancelled(self) -> list[tuple[tuple[int, Path], NodeRun]]:
        """Return the runs that had begun, waited or were between two attempts when the execution ended."""
        end = self.end
        if end is None or end.status == "completed":
            return []
        error = Error("EXECUTION_ENDED", end_text(end))
        found: list[tuple[tuple[int, Path], NodeRun]] = []
        runs = {**self._claimed_runs(), **self._open_runs.late, **self._open_runs.open}
        for key, (began, attempt) in runs.items():
            if key in self._results:
                continue
            run = NodeRun(
                node_id=self.plan.ids[key[0]],
                lineage=self.lineage(key[1]),
                status="cancelled",
                attempts=attempt,
                error=error,
                started_at=began,
                duration_ms=max(0, end.at - began),
            )
            found.append((key, run))
        return found

    def _claimed_runs(self) -> dict[tuple[int, Path], tuple[int, int]]:
        """Return the claimed tokens with when they began and their attempt, in the order of the plan."""
        return {
            key: (self.claimed[key], 1) for key in sorted(self.claimed, key=lambda each: (each[1], each[0]))
        }

    def not_reached(self) -> list[tuple[int, NodeRun]]:
        """Return the nodes that have no run in any lineage because the execution ended first."""
        if self.end is None or self.end.status == "completed":
            return []
        reached = {
            node for node, _ in (*self._results, *self.skipped(), *(key for key, _ in self.cancelled()))
        }
        reached |= self.plan.triggers
        return [
            (node, NodeRun(node_id=name, lineage=(), status="not_reached"))
            for node, name in enumerate(self.plan.ids)
            if node not in reached
        ]

    def skipped(self) -> list[tuple[int, Path]]:
        """Return the skipped nodes. Skips leave no fact, they follow from replaying the others."""
        _, applied = self._replayed()
        return sorted(set(applied.skipped), key=lambda each: (each[1], each[0]))

    @property
    def failed_items(self) -> int:
        """How many items have failed, so far if the execution has not ended."""
        return self._replayed()[0].failed_items if self.end is None else self.end.failed_items

    @property
    def untolerated_items(self) -> int:
        """How many of the failed items the workflow does not state to tolerate."""
        if not self.failed_items:
            return 0
        return untolerated_items(self.plan, [each.fact for each in self._stored if not each.late])

    @property
    def state(self) -> State:
        """The state of the execution, before its end if it has ended."""
        return self._replayed()[0]

    def _replayed(self) -> tuple[State, Applied]:
        """Return the state before the end of the execution."""
        if self._replay is None or self._replay[0] != len(self._stored):
            facts = [
                each.fact
                for each in self._stored
                if not each.late and not isinstance(each.fact, ExecutionEnded)
            ]
            state, applied = fold(self.plan, [ExecutionStarted(self.accepted.at), *facts], self.accepted.at)
            self._replay = (len(self._stored), state, applied)
        return self._replay[1:]

    def lineage(self, path: Path) -> tuple[Frame, ...]:
        """Return the frames of a path, outermost first."""
        frames: list[Frame] = []
        for cut in range(0, len(path), 2):
            split, item = path[cut], path[cut + 1]
            fan = self._results.get((split, path[:cut]))
            index = "_".join(f"{self.plan.ids[path[i]]}_{path[i + 1]}" for i in range(0, cut + 1, 2))
            frames.append(
                Frame(
                    self.plan.ids[split], f"{self.accepted.id}_{index}", item, (fan.items or 0) if fan else 0
                )
            )
        return tuple(frames)

    async def context(self, *, whole: bool = True) -> dict[str, Any]:
        """Return the outputs of the root scope by name; unless `whole` as JSON, with references in place of large
        ones."""
        start = await self._read(lambda reader: reader.start) if whole else await self._shown(START)
        found: dict[str, Any] = {"$trigger": start}
        for node in sorted(self.plan.triggers):
            found[f"${self.plan.ids[node]}"] = start
        for (node, path), result in self._results.items():
            if not path and result.status in ("ok", "failed") and result.items is None:
                value = await self._value(node, path) if whole else await self._shown(Ref("result", node))
                found[f"${self.plan.ids[node]}"] = value
        return found

    async def _shown(self, ref: Ref) -> msgspec.Raw | dict[str, Any]:
        """Return a value as JSON, or a reference if it is large."""
        reference = await self._reference_to(ref)
        if reference is not None:
            return reference
        return msgspec.Raw(await self._read(lambda reader: reader.encoded_value(reader.origin(ref))))

    async def output(self) -> Any:
        """Return the value of the output node that ran, or the outputs of all leaves if there is no output node."""
        end = self.end
        if end is None or end.status != "completed":
            return None
        if self.plan.outputs:
            ran = [node for node in self.plan.outputs if self._has_value(node)]
            return await self._value(ran[0], ()) if ran else None
        return {
            self.plan.ids[node]: await self._value(node, ())
            for node in self.plan.leaves
            if self._has_value(node)
        }

    async def encoded_output(self) -> bytes:
        """Return the output as JSON. Large values are not decoded for it."""
        size = await self.output_size()
        if size > LIMITS.output_bytes:  # each leaf is below the limit, but they may all be the same value
            raise LimitExceededError("bytes of the output", LIMITS.output_bytes, size)
        parts = {node: await self.encoded_value(node) for node in self.output_nodes()}
        if self.has_output_node:
            return next(iter(parts.values()), b"null")
        named = (encode_value(self.plan.ids[node]) + b":" + data for node, data in parts.items())
        return b"{" + b",".join(named) + b"}"

    async def output_size(self) -> int:
        """Return the length of the output when it is written out."""
        size = 0
        for node in self.output_nodes():
            ref = START if node in self.plan.triggers else Ref("result", node)
            size += (await self._read(partial(ValueReader.written, ref=ref)))[1]
        return size

    async def _shown_output(self) -> Any:
        """Return the output as JSON; if it is above the limit, references in place of large values of leaves."""
        if await self.output_size() <= LIMITS.output_bytes:
            return msgspec.Raw(await self.encoded_output())
        return {
            self.plan.ids[node]: await self._shown(
                START if node in self.plan.triggers else Ref("result", node)
            )
            for node in self.output_nodes()
        }

    @property
    def has_output_node(self) -> bool:
        """Whether the output is one value, or none, instead of an object with the values of the leaves. An execution
        that did not complete has no output."""
        return bool(self.plan.outputs) or self.end is None or self.end.status != "completed"

    def output_nodes(self) -> list[int]:
        """Return the nodes whose values are the output: the output node that ran, or else the leaves."""
        if self.end is None or self.end.status != "completed":
            return []
        if self.plan.outputs:
            return [node for node in self.plan.outputs if self._has_value(node)][:1]
        return [node for node in self.plan.leaves if self._has_value(node)]

    async def encoded_value(self, node: int) -> bytes:
        """Return the value of a node of the root scope as JSON, without decoding one that is stored as such."""
        if node in self.plan.triggers:
            return await self._data.encoded_start()
        result = self._results[(node, ())]
        if result.status != "ok":
            return encode_value(await self._value(node, ()))
        return await self._read(lambda reader: reader.encoded(result))

    async def encoded_start(self) -> bytes:
        """Return the start payload as JSON."""
        return await self._data.encoded_start()

    async def value_blob(self, node: int, path: Path = ()) -> str | None:
        """Return the key of the blob that holds the value of a node; None if no single blob does."""
        result = self._results.get((node, path))
        if result is None or result.status != "ok":
            return None
        return await self._read(lambda reader: reader.blob_key(result))

    async def joined(self, node: int, path: Path = ()) -> JoinedBytes | None:
        """Return the value of a node if it is the payload of a join, without writing it out."""
        result = self._results.get((node, path))
        if result is None or result.status != "ok":
            return None
        return await self._read(lambda reader: _joined_bytes(reader, result))

    async def run_output(self, node: str, item: str = "") -> bytes:
        """Return the whole output of a node run as JSON; `item` is such as `users:5`."""
        index, path = self.plan.index[node], parse_path(item, self.plan.index) if item else ()
        assert path is not None
        ref = START if index in self.plan.triggers else Ref("result", index, path)
        return await self._read(lambda reader: reader.encoded_value(reader.origin(ref)))

    async def start_payload(self) -> bytes:
        """Return the whole start payload as JSON."""
        return await self._data.encoded_start()

    def _path(self, lineage: Sequence[Frame]) -> Path:
        return tuple(
            each for frame in lineage for each in (self.plan.index[frame.split_node_id], frame.item_index)
        )

    def _has_value(self, node: int) -> bool:
        result = self._results.get((node, ()))
        return node in self.plan.triggers or (result is not None and result.status in ("ok", "failed"))

    async def _value(self, node: int, path: Path) -> Any:
        if node in self.plan.triggers:
            return await self._read(lambda reader: reader.start)
        return await self._read(lambda reader: reader.value(Ref("result", node, path)))

    async def _read(self, query: Callable[[ValueReader], T]) -> T:
        while True:
            try:
                return query(self._reader)
            except ValueNotLoaded as missing:
                await self._data.load(missing.what, self._reader)

    def events(self, after: int = 0) -> list[Event]:
        """Return the events after a number, in commit order, numbered from 1 without gaps."""
        rows = (self.event(number, each) for number, each in enumerate(self._stored, start=2))
        return [each for each in (self.beginning, *rows) if each.number > after]

    @property
    def beginning(self) -> Event:
        """The first event: the execution was accepted."""
        return Event(number=1, at=self.accepted.at, kind="execution.accepted")

    def follow(self, stored: StoredFact) -> Event:
        """Return the event of the next fact without keeping the fact, so that following a long execution needs little
        memory. Only fan-outs are kept: lineages need their number of items."""
        fact = stored.fact
        if isinstance(fact, NodeResult) and fact.items is not None:
            self._results[(fact.node, fact.path)] = fact
        self._open_runs.add(stored)
        self._followed += 1
        return self.event(self._followed, stored)

    def event(self, number: int, stored: StoredFact) -> Event:
        """Return the event of a fact, given the number of the event."""
        fact = stored.fact
        if isinstance(fact, ABOUT_EXECUTION):
            details = _details(fact, stored.late)
            if isinstance(fact, ExecutionEnded) and not stored.late and fact.status != "completed":
                details |= self._cancelled_details()
            return Event(number=number, at=fact.at, kind=_execution_event(fact), details=details)
        details = _details(fact, stored.late)
        if isinstance(fact, NodeResult) and self._is_pinned(fact):
            details["pinned"] = True
        return Event(
            number=number,
            at=fact.at,
            kind=_node_event(fact),
            node_id=self.plan.ids[fact.node],
            lineage=self.lineage(fact.path),
            details=details,
        )

    def _cancelled_details(self) -> dict[str, Any]:
        """Return the runs that the end of the execution cancelled, as its event shows them."""
        runs = {
            key: attempt
            for key, (_, attempt) in {**self._claimed_runs(), **self._open_runs.open}.items()
            if key not in self._results
        }
        if not runs:
            return {}
        shown = [
            {
                "node_id": self.plan.ids[node],
                "lineage": [msgspec.to_builtins(each) for each in self.lineage(path)],
                "attempt": attempt,
            }
            for (node, path), attempt in islice(runs.items(), MAX_SHOWN_CANCELLED)
        ]
        return {"cancelled": shown, "cancelled_count": len(runs)}

    def _is_paused(self) -> bool:
        controls = [each.fact for each in self._stored if isinstance(each.fact, PauseChanged)]
        return bool(controls) and controls[-1].paused

    def _pause_reason(self) -> dict[str, Any]:
        """Return why the engine paused the execution, if it did and the execution is paused."""
        controls = [each.fact for each in self._stored if isinstance(each.fact, PauseChanged)]
        paused = self.end is None and bool(controls) and controls[-1].paused
        return {"paused_because": controls[-1].reason} if paused and controls[-1].reason else {}

    def _origin(self) -> dict[str, Any]:
        """Return the version of a deployed workflow and the alias that selected it, and the ids of the executions that
        this one was started or retried from."""
        accepted = self.accepted
        found: dict[str, Any] = {}
        if accepted.version is not None:
            found |= {"version": accepted.version, "alias": accepted.alias}
        if accepted.parent is not None:
            found["parent_id"] = accepted.parent.execution
        if accepted.retry_of is not None:
            found["retry_of"] = accepted.retry_of
        return found

    async def document(self, *, not_reached: bool = False, whole: bool = False) -> dict[str, Any]:
        """Return the complete history as `rune run --json` prints it; `not_reached` adds the nodes without a run.
        Values are JSON, large ones references. With `whole`, all of them are in it as objects, the same where nodes
        passed them on, so that nothing that is to be written may have them."""
        end = self.end
        runs = await self.node_runs()
        if not_reached:
            runs += [run for _, run in self.not_reached()]
        context = await self.context(whole=whole)
        shown = await replay(len(runs), lambda: [node_document(each) for each in runs])
        for run, document in zip(runs, shown, strict=True) if whole else ():
            if run.size is not None:
                document["output"] = await self._value(self.plan.index[run.node_id], self._path(run.lineage))
            elif run.output is not None:
                document["output"] = read_json(run.output)
        return {
            "execution_id": self.accepted.id,
            "workflow_id": self.accepted.workflow,
            "status": end.status if end else "paused" if self._is_paused() else "running",
            **self._pause_reason(),
            "error": error_document(end.error if end else None),
            "failed_items": self.failed_items,
            "untolerated_items": self.untolerated_items,
            "output": await self.output() if whole else await self._shown_output(),
            "context": context,
            "nodes": shown,
            "started_at": iso(self.accepted.at),
            "completed_at": iso(end.at) if end else None,
            "total_duration_ms": end.at - self.accepted.at if end else None,
            **self._origin(),
        }


def _joined_bytes(reader: ValueReader, result: NodeResult) -> JoinedBytes | None:
    stored = result.value
    origin = reader.origin(stored.ref) if type(stored) is Same else None
    if origin is None or origin.kind != "entered":
        return None
    found = JoinedBytes(origin, {}, {})

    def add(ref: Ref) -> None:
        if ref.kind != "entered":
            found.values[ref] = reader.encoded_value(ref)
            return
        members = reader.joined(ref).origins
        for each in members.values():
            if each not in found.values and each not in found.joins:
                add(each)
        found.joins[ref] = members

    add(origin)
    return found


class OpenRuns:
    """The node runs of an execution that have begun and not ended, with the time they began and their attempt.

    They follow from the facts before its end; `late` are runs that show only afterwards that they had begun.
    """

    def __init__(self) -> None:
        self.open: dict[tuple[int, Path], tuple[int, int]] = {}
        self.late: dict[tuple[int, Path], tuple[int, int]] = {}
        self._ended = False

    def add(self, stored: StoredFact) -> None:
        """Add the next fact in commit order."""
        fact = stored.fact
        if isinstance(fact, NodeResult):
            if stored.late:
                self.late[(fact.node, fact.path)] = (fact.began or fact.at, fact.attempt)
            elif self.open:
                self.open.pop((fact.node, fact.path), None)
        elif isinstance(fact, AttemptFailed | NodeSuspended | EffectStarted):
            key = (fact.node, fact.path)
            began = fact.at if isinstance(fact, EffectStarted) else fact.began or fact.at
            runs = self.late if stored.late or self._ended else self.open
            runs[key] = (runs[key][0] if key in runs else began, fact.attempt)
        elif isinstance(fact, ExecutionEnded):
            self._ended = True
            if fact.status == "completed":
                self.open.clear()


def end_text(end: ExecutionEnded) -> str:
    reason = f": {end.error.code}: {end.error.message}" if end.error is not None else ""
    return f"the execution ended as {end.status}{reason}"


async def read_history(journal: Journal, blob: BlobStore, accepted: ExecutionRecord, plan: Plan) -> History:
    """Load the history of an execution up to now."""
    history = History(accepted, plan, journal, blob, await journal.facts(accepted.id))
    await history.load_claims()
    return history


ABOUT_EXECUTION = ExecutionStarted | SignalReceived | PauseChanged | ExecutionLate | ExecutionEnded


def _execution_event(
    fact: ExecutionStarted | SignalReceived | PauseChanged | ExecutionLate | ExecutionEnded,
) -> str:
    if isinstance(fact, ExecutionEnded):
        return f"execution.{fact.status}"
    if isinstance(fact, SignalReceived):
        return "execution.signalled"
    if isinstance(fact, PauseChanged):
        return "execution.paused" if fact.paused else "execution.resumed"
    if isinstance(fact, ExecutionLate):
        return "execution.late"
    return "execution.accepted"


def _node_event(fact: NodeResult | EffectStarted | AttemptFailed | NodeSuspended | RaceWinner) -> str:
    if isinstance(fact, NodeResult):
        return f"node.{STATUS.get(fact.status, fact.status)}"
    return _NODE_EVENTS[type(fact)]


def _details(fact: Any, late: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"late": True} if late else {}
    failure = getattr(fact, "failure", None) or getattr(fact, "error", None)
    if isinstance(failure, Error):
        found["error"] = error_document(failure)
    if isinstance(fact, AttemptFailed | NodeResult):
        found["attempt"] = fact.attempt
    if isinstance(fact, ExecutionEnded):
        found["failed_items"] = fact.failed_items
    if isinstance(fact, NodeResult) and fact.kept:
        found["kept"] = True
    if isinstance(fact, SignalReceived):
        found |= {"id": fact.id, "signal": fact.name}
    if isinstance(fact, PauseChanged) and fact.reason:
        found["reason"] = fact.reason
    if isinstance(fact, NodeSuspended):
        found["resume_at"] = fact.due
        if fact.signal is not None:
            found["signal"] = fact.signal
    return found


def error_document(error: Error | None) -> dict[str, Any] | None:
    """Return an error as shown in documents. That of an execution names the node run it comes from."""
    if error is None:
        return None
    shown: dict[str, Any] = {"code": error.code, "message": error.message, "details": details_of(error)}
    origin = error.origin
    if origin is not None:
        shown |= {
            "node_id": origin.node_id,
            "node_type": origin.node_type,
            "lineage": [{"split_node_id": split, "item_index": item} for split, item in origin.lineage],
            "attempt": origin.attempt,
        }
    return shown


def details_of(error: Error) -> dict[str, Any]:
    """Return the details of an error, with the traceback of the attempt if it has one."""
    return {**error.details, "traceback": error.traceback} if error.traceback else error.details


def reference_document(execution: str, plan: Plan, origin: Ref, size: int) -> dict[str, Any]:
    """Return what is shown for a large value: where it comes from, and its length."""
    name = "start" if origin.kind == "start" else token_name(origin.node, origin.path, plan.ids)
    return {"$ref": f"{execution}/{name}", "bytes": size}


def node_document(run: NodeRun) -> dict[str, Any]:
    """Return a node run as shown in documents, with its output as JSON; `pinned` only if it is."""
    shown = {
        "node_id": run.node_id,
        "lineage": [msgspec.to_builtins(frame) for frame in run.lineage],
        "status": run.status,
        "attempts": run.attempts,
        "output": None if run.output is None else msgspec.Raw(run.output),
        "error": error_document(run.error),
        "started_at": iso(run.started_at),
        "duration_ms": run.duration_ms,
    }
    return {**shown, "pinned": True} if run.pinned else shown
