"""Execution state in Redis: every operation is one Lua function call on one execution.

If the server has no state of an execution, or one of an earlier server run, it is rebuilt from the journal first.
Concurrent claims and decisions of one execution are batched into one call. Decisions that certainly end an execution
are not applied at all, because its state is dropped right after.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from rune.adapters.redis.client import Client, RedisError
from rune.adapters.redis.encoding import (
    CachedExecution,
    ExecutionCache,
    FindExecution,
    Instruction,
    KeySpace,
    Plans,
    SentToken,
    decode_timer,
    encode_finish,
    encode_path,
    find_none,
    token_fields,
    token_from_fields,
    unsent_mark,
)
from rune.adapters.redis.preloader import Preloader
from rune.adapters.redis.processes import encode_ended
from rune.adapters.redis.rebuild import REBUILD_LEASE_MS, StateRebuilder
from rune.adapters.redis.snapshot import decode_state, finish_of, read_fields
from rune.adapters.redis.streams import GROUP, NOTHING_SENT, ConsumerCleaner, Entry, StreamSender
from rune.adapters.redis.wipe_recovery import RunningExecutions, WipeRecovery
from rune.batcher import KeyedBatcher, SharedAnswer
from rune.core.execution.control import OVERDUE, outcome_of
from rune.core.execution.decision import Decision, FinishExecution, Timer
from rune.core.execution.explain import explain
from rune.core.execution.fact import ExecutionEnded, ExecutionLate, PauseChanged, SignalReceived
from rune.core.execution.inline_run import predict_single_end, undecided
from rune.core.execution.reasons import Waiting
from rune.core.execution.state import State
from rune.core.execution.token import Path, Token, TokenPurpose
from rune.core.plan.model import Plan
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, Journal, StoreUnavailableError, UnknownExecutionError
from rune.ports.state import Applied, Claim, DueTimer, Fence, KeptToken, Listener

log = logging.getLogger("rune.state")

MAX_BATCH = 32
"""Requests in one call: a longer function would block the server for milliseconds."""

MAX_FIRED = 64
"""Timers of one execution that one call fires."""

MAX_SWEPT = 100
"""Tokens of one execution that one call checks. Redis serves no other client during a call."""

LANES = 8
"""Calls of one execution in flight when more than MAX_BATCH requests arrived meanwhile."""

MIN_PAGE = 50
"""Due members that are read of one partition even if the others have as many."""

MAX_PREDICTED = 10_000
MAX_ENDING = 10_000
MAX_REBUILDS = 8

_OVERDUE = encode_finish(FinishExecution("failed", OVERDUE))
_PACK = msgspec.msgpack.Encoder().encode

ClaimRequest = tuple[CachedExecution, Token, bytes]
"""An execution, a token of it to claim, and the encoded argument of the function."""

ApplyRequest = tuple[CachedExecution, list[Instruction], Entry | None, bytes]
"""An execution, decisions of one of its tokens, the stream entry that delivered the token, and the encoded claim of its
successor, if there is one."""

R = TypeVar("R")


class Reply(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """What `store.reply` in store.lua returns; `result` is the part that only this function has."""

    status: str
    now: int
    emitted: list[SentToken]
    finish: str | bool
    failures: Any
    result: R


class ClaimResult(msgspec.Struct, frozen=True, array_like=True):
    """What claim.lua returns for one token. False stands for what there is none of."""

    verdict: str
    token: SentToken | bool  # false: as it was sent
    number: int | bool  # of the fence
    again: bool  # it was claimed before
    due: int | bool  # when the wait ended
    rebuilt: bool  # the state of the execution was rebuilt
    alone: int | bool  # how many items have failed, if it is the only token
    first: int | bool  # when the first party of its join arrived
    given_back: int


class ClaimedSuccessor(msgspec.Struct, frozen=True, array_like=True):
    """What `act.claim_successor` in lease.lua returns."""

    token: SentToken
    number: int  # of the fence
    alone: int | bool  # how many items have failed, if it is the only token
    rebuilt: bool  # the state of the execution was rebuilt


class FiredTimer(msgspec.Struct, frozen=True, array_like=True):
    """What fire.lua returns for one timer."""

    timer: str
    due: int | None
    emitted: list[SentToken]
    finish: str | bool
    failures: Any


_ANY_REPLY = msgspec.msgpack.Decoder(Reply[Any])
_CLAIM_REPLY = msgspec.msgpack.Decoder(Reply[ClaimResult])
_CLAIMS_REPLY = msgspec.msgpack.Decoder(Reply[list[ClaimResult]])
_APPLY_REPLY = msgspec.msgpack.Decoder(Reply[ClaimedSuccessor | bool])
_FIRE_REPLY = msgspec.msgpack.Decoder(Reply[list[FiredTimer] | bool])

REPORT_DELAY_S = 1.0
"""How long confirmed tokens are collected. Most have been claimed and completed by then, and cost one lookup."""

MAX_REPORTED = 250
"""Tokens in one call: a longer function would block the server."""


class SendConfirmations:
    """Collects the tokens that the queue has confirmed and reports them once a second.

    A token that a process has to send is due for a resend after a few seconds, in case the process dies before it sends
    it. Once the queue has confirmed the token, the resend is moved to the time after which an unclaimed token counts as
    lost. Nothing waits for the report: a token whose report is late or lost is sent twice, and its second delivery
    finds it claimed.
    """

    def __init__(self, client: Client, keys: KeySpace, clock: Clock | None) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._confirmed: dict[str, list[tuple[Sequence[Token], float]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._report: asyncio.Task[None] | None = None

    def add(self, execution: str, tokens: Sequence[Token]) -> None:
        """Note that the queue has confirmed these tokens."""
        self._confirmed.setdefault(execution, []).append((tokens, time.monotonic()))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORT_DELAY_S, self._start_report)

    def forget(self, execution: str) -> None:
        """Drop the tokens of an execution that has ended: none of them is resent."""
        self._confirmed.pop(execution, None)

    def _start_report(self) -> None:
        self._report = asyncio.ensure_future(self.report())

    async def report(self) -> None:
        """Report the collected tokens now. While the server is unavailable they are dropped, and sent again later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        confirmed, self._confirmed = self._confirmed, {}
        reports: dict[int, list[str | int]] = {}
        reported_at = time.monotonic()
        for execution, batches in confirmed.items():
            report = reports.setdefault(self._keys.partition(execution), [])
            for tokens, confirmed_at in batches:
                age = round((reported_at - confirmed_at) * 1000)
                for token in tokens:
                    member = f"{execution}|{token.node}|{encode_path(token.path)}"
                    report += (str(unsent_mark(token.attempt, resumed=token.resumed)), age, member)
        now = 0 if self._clock is None else self._clock.now()
        calls = (
            self._client.run("sent", [self._keys.held(part)], now, *report[start : start + 3 * MAX_REPORTED])
            for part, report in reports.items()
            for start in range(0, len(report), 3 * MAX_REPORTED)
        )
        for reply in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(reply, BaseException) and not isinstance(reply, StoreUnavailableError | RedisError):
                raise reply

    async def close(self) -> None:
        """Report what is left."""
        if self._report is not None:
            await asyncio.gather(self._report, return_exceptions=True)
        await self.report()


class _SingleToken:
    """The claimed node of an execution with one token, its claim time by both clocks, and the last prediction."""

    __slots__ = ("claimed_at", "claimed_monotonic", "decisions", "failed_items", "node", "prediction")

    def __init__(self, node: int, now: int, failed_items: int) -> None:
        self.node = node
        self.failed_items = failed_items
        self.claimed_at = now
        self.claimed_monotonic = time.monotonic()
        self.decisions: Sequence[Decision] | None = None
        self.prediction: tuple[FinishExecution, int] | None = None


class EndPredictor:
    """Predicts which decisions end an execution. While its only token is claimed here, nothing else can change it."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._single: OrderedDict[str, _SingleToken] = OrderedDict()

    def note(self, execution: str, token: Token, now: int, failed_items: int = 0) -> None:
        """Record that this process claimed the only token of an execution."""
        self._single[execution] = _SingleToken(token.node, now, failed_items)
        if len(self._single) > MAX_PREDICTED:
            self._single.popitem(last=False)

    def forget(self, execution: str) -> None:
        self._single.pop(execution, None)

    def end(self, execution: str, decisions: Sequence[Decision]) -> tuple[FinishExecution, int] | None:
        """Return the end that these decisions cause and its time. Repeated calls return the same time."""
        single = self._single.get(execution)
        if single is None:
            return None
        if single.decisions is not decisions:
            single.decisions = decisions
            is_single = decisions[0].node == single.node
            finish = predict_single_end(decisions, single.failed_items) if is_single else None
            elapsed = 0
            if self._clock is None:
                elapsed = round((time.monotonic() - single.claimed_monotonic) * 1000)
            at = max(single.claimed_at + elapsed, decisions[-1].at)
            single.prediction = None if finish is None else (finish, at)
        return single.prediction


def _claim_request(cached: CachedExecution, token: Token, owner: str, *, leased: bool) -> ClaimRequest:
    request = (
        token.node,
        encode_path(token.path),
        token.fate.value,
        token.attempt,
        token.resumed,
        owner,
        leased,
        token_fields(token),
    )
    return cached, token, _PACK(request)


def _following(plan: Plan, decisions: Sequence[Instruction], applied: Applied) -> Applied:
    """Return the effect of a rebuild with only those tokens that follow from the decisions: messages of the others may
    still be in a queue elsewhere, and the sweeper finds out."""

    def follows(token: Token) -> bool:
        predecessors, scope = plan.graph.predecessors(token.node), encode_path(token.path)
        return any(
            node in predecessors and (not scope or f"{path}.".startswith(f"{scope}."))
            for node, path, *_ in decisions
        )

    return replace(applied, emitted=tuple(filter(follows, applied.emitted)))


def _batches(requests: Sequence[R]) -> list[Sequence[R]]:
    """Return the requests in batches that one call takes."""
    return [requests[start : start + MAX_BATCH] for start in range(0, len(requests), MAX_BATCH)]


class RedisState:
    """Tokens, joins, leases and timers of running executions. Without a `clock` the server's time is used; tests pass
    one. With a `sender` the queue is on the same server and Lua functions send tokens themselves. The queue
    reports what it has sent to `confirmations`."""

    def __init__(
        self,
        client: Client,
        keys: KeySpace,
        journal: Journal,
        plans: Plans,
        *,
        clock: Clock | None = None,
        running_executions: RunningExecutions | None = None,
        sender: StreamSender | None = None,
        confirmations: SendConfirmations | None = None,
        find: FindExecution = find_none,
    ) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._sender = sender
        self._journal = journal
        self._executions = ExecutionCache(journal, plans, find)
        self._rebuilder = StateRebuilder(self, keys, journal)
        self._recovery = WipeRecovery(client, keys, running_executions, self._due_time)
        self._consumers = ConsumerCleaner(client, keys)
        self._predictor = EndPredictor(clock)
        self._claims: KeyedBatcher[str, ClaimRequest, Claim] = KeyedBatcher(
            self._send_claims, max_requests=MAX_BATCH, lanes=LANES
        )
        self._applies: KeyedBatcher[str, ApplyRequest, Applied] = KeyedBatcher(
            self._send_applies, max_requests=MAX_BATCH, lanes=LANES
        )
        self._ending: OrderedDict[str, tuple[str, Entry]] = OrderedDict()
        self.confirmations = confirmations or SendConfirmations(client, keys, clock)
        self._preloader = Preloader(client, keys, self._preload)
        self._first_partition = 0

    async def run(
        self,
        name: str,
        execution: str,
        *arguments: Any,
        streams: tuple[str, ...] = (),
        since: float | None = None,
    ) -> Any:
        """Call the function of a verb on an execution."""
        now = 0 if self._clock is None else self._clock.now()
        keys = self._keys.of(execution)
        return await self._client.run(
            name, keys + streams if streams else keys, now, execution, *arguments, since=since
        )

    async def _run_sending(
        self, cached: CachedExecution, name: str, payload: Any, entry: Entry | None, *more: Any
    ) -> Any:
        """Call a function that may emit tokens; with a sender the function sends them itself."""
        if self._sender is None:
            return await self.run(name, cached.accepted.id, payload, *NOTHING_SENT, *more)
        now = 0 if self._clock is None else self._clock.now()
        arguments = (now, cached.accepted.id, payload, *self._sender.arguments(cached, entry), *more)
        return await self._client.run(name, self._sender.keys(cached, entry), *arguments)

    @property
    def rebuilds(self) -> int:
        return self._rebuilder.rebuilds

    async def now(self) -> int:
        if self._clock is not None:
            return self._clock.now()
        seconds, micros = await self._client.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def server(self, execution: str) -> str:
        """Return the run id of the server that has the state of an execution."""
        return (await self._client.server_run(self._keys.of(execution).fields))[0]

    async def _run_rebuilding(
        self, cached: CachedExecution, run: Callable[[], Awaitable[Any]], *, again: bool = False
    ) -> bytes | Applied:
        """Return the reply of a function. If this process had to rebuild the state, run the function `again`, or return
        the effect of rebuilding it, which includes that of the function."""
        for _ in range(MAX_REBUILDS):
            reply: bytes = await run()
            if reply not in (b"FOLD", b"BEHIND"):
                return reply
            rebuilt = await self._rebuilder.load(cached, behind=reply == b"BEHIND", left_to_sweeper=again)
            if rebuilt is not None and (not again or rebuilt.state.ended):
                return rebuilt.applied
        raise StoreUnavailableError(f"the state of {cached.accepted.id} was rebuilt {MAX_REBUILDS} times")

    def _decode_applied(self, cached: CachedExecution, reply: bytes) -> Applied:
        return self._applied(cached, _ANY_REPLY.decode(reply))

    def _applied(self, cached: CachedExecution, reply: Reply[Any]) -> Applied:
        finish = (
            finish_of(cached.plan, reply.finish, reply.failures) if isinstance(reply.finish, str) else None
        )
        return Applied(tuple(map(token_from_fields, reply.emitted)), finish, reply.now)

    async def _run_fact(self, cached: CachedExecution, name: str, fact: bytes) -> Applied:
        """Apply a fact and return the tokens it resumed. The caller needs them, so the function never sends them."""
        reply = await self._run_rebuilding(cached, lambda: self.run(name, cached.accepted.id, fact))
        return reply if isinstance(reply, Applied) else self._decode_applied(cached, reply)

    async def room(self) -> bool:
        """Return True: Redis holds any number of executions."""
        return True

    def arriving(self, execution: str) -> AbstractContextManager[None]:
        """Return a no-op: of several processes that activate an execution, the first to write its state wins."""
        return nullcontext()

    async def admit(self, accepted: ExecutionRecord, plan: Plan, since: float | None = None) -> Applied:
        """Activate an execution that was accepted without initial facts, without reading it back."""
        cached = self._executions.add(accepted, plan)
        admitted = await self._rebuilder.admit(cached, self._sender, since)
        return await self.begin(accepted.id) if admitted is None else admitted

    async def begin(self, execution: str) -> Applied:
        cached = await self._executions.of(execution)
        rebuilt = await self._rebuilder.load(cached, sender=self._sender)
        return Applied(now=await self.now()) if rebuilt is None else rebuilt.applied

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        cached = await self._executions.of(execution)
        return await self._claims.call(execution, _claim_request(cached, token, owner, leased=leased))

    async def claim_all(self, execution: str, tokens: Sequence[Token], owner: str) -> list[Claim]:
        cached = await self._executions.of(execution)
        requests = [_claim_request(cached, token, owner, leased=False) for token in tokens]
        answers = (self._send_claims(execution, batch) for batch in _batches(requests))
        return [claim for claims in await asyncio.gather(*answers) for claim in claims]

    async def _send_claims(self, execution: str, requests: Sequence[ClaimRequest]) -> list[Claim]:
        """Claim tokens of one execution in one call, or one by one if its state has to be rebuilt."""
        if len(requests) > 1:
            claims = await self._claim_many(execution, requests)
            if claims is not None:
                return claims
        return [await self._claim(execution, *request) for request in requests]

    async def _claim(self, execution: str, cached: CachedExecution, token: Token, argument: bytes) -> Claim:
        reply: bytes = await self.run("claim", execution, argument)
        if reply == b"FOLD":
            settled = await self._settled(execution, token)
            if settled is not None:
                return settled
            try:
                retried = await self._run_rebuilding(
                    cached, lambda: self.run("claim", execution, argument), again=True
                )
            except UnknownExecutionError:
                # The execution was removed from the journal after its token was sent.
                return Claim("void", token, await self.now())
            if isinstance(retried, Applied):
                return Claim("void", token, retried.now)
            reply = retried
        decoded = _CLAIM_REPLY.decode(reply)
        run = await self._client.server_run(self._keys.of(execution).fields)
        return self._decode_claim(execution, token, decoded.now, decoded.result, run)

    async def _settled(self, execution: str, token: Token) -> Claim | None:
        """Return the verdict on a token without a state if one row decides it: that its execution has ended, or what
        became of the token. A late message must not cost the fold of an execution."""
        end = await self._journal.end(execution)
        if end is not None:
            # A server that lost its last writes may hold a state of the execution, which nothing else would delete.
            if await self._client.call("EXISTS", self._keys.of(execution).fields):
                await self.run("end", execution)
            return Claim("void", token, end.at)
        if token.fate is TokenPurpose.RUN:
            rows = await self._journal.facts_of_token(execution, token.node, token.path)
            outcome = outcome_of(rows, token)
            if outcome is not None:
                return Claim("done", token, outcome.at)
        return None

    async def _claim_many(self, execution: str, requests: Sequence[ClaimRequest]) -> list[Claim] | None:
        reply = await self.run("claim", execution, *(argument for _, _, argument in requests))
        if reply == b"FOLD":
            return None
        decoder = _CLAIMS_REPLY if len(requests) > 1 else _CLAIM_REPLY
        decoded = decoder.decode(reply)
        results = decoded.result if isinstance(decoded.result, list) else [decoded.result]
        run = await self._client.server_run(self._keys.of(execution).fields)
        return [
            self._decode_claim(execution, token, decoded.now, result, run)
            for (_, token, _), result in zip(requests, results, strict=True)
        ]

    def _decode_claim(
        self, execution: str, token: Token, now: int, result: ClaimResult, run: tuple[str, int]
    ) -> Claim:
        current = token if isinstance(result.token, bool) else token_from_fields(result.token)
        if result.verdict not in ("run", "cancelled"):
            return Claim(result.verdict, current if result.verdict.startswith("held") else token, now)
        if result.alone is not False:
            self._predictor.note(execution, current, now, result.alone)
        fence = (run[1], result.number) if result.number else None
        return Claim(
            result.verdict,
            current,
            now,
            fence,
            # A worker may have held the token when the state was lost; if so, the journal may already have its row.
            (result.again or result.rebuilt) and fence is not None,
            result.due or None,
            result.rebuilt and fence is not None,
            result.first or None,
            result.given_back,
        )

    async def renew(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        lease = (node, encode_path(path), fence[1])
        renewed = await self.run("renew", execution, *lease)
        if renewed >= 0:
            return bool(renewed)
        if await self._journal.end(execution) is not None:
            return False
        try:
            # The rebuild grants the lease again, because its claim is in the journal.
            await self._rebuilder.load(await self._executions.of(execution), left_to_sweeper=True)
        except UnknownExecutionError:
            return False
        return bool(await self.run("renew", execution, *lease) > 0)

    async def requeue(self, execution: str, token: Token, owner: str, delays: Sequence[int] = ()) -> int:
        self._predictor.forget(execution)
        keys = self._keys.of(execution)
        return int(
            await self.run(
                "retry",
                execution,
                token.node,
                encode_path(token.path),
                owner,
                *delays,
                streams=(f"{keys.fields}:e",),
            )
        )

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        return self._predictor.end(execution, decisions)

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        return await self._apply_decisions(execution, decisions)

    async def apply_all(self, execution: str, runs: Sequence[Sequence[Decision]]) -> Applied:
        self._predictor.forget(execution)
        answers = await asyncio.gather(*(self._apply_runs(execution, batch) for batch in _batches(runs)))
        decisions = [decision for run in runs for decision in run]
        emitted = undecided(decisions, [token for answer in answers for token in answer.emitted])
        finish = next((answer.finish for answer in answers if answer.finish is not None), None)
        return Applied(tuple(emitted), finish, max(answer.now for answer in answers))

    async def _apply_runs(self, execution: str, runs: Sequence[Sequence[Decision]]) -> Applied:
        """Apply a batch of runs in one call."""
        cached = await self._executions.of(execution)
        if self._sender is None:
            decisions = [decision for run in runs for decision in run]
            return await self._apply(cached, cached.instructions.listed(decisions), None, b"")
        requests = [
            (cached, cached.instructions.listed(run), self._sender.entry(execution, run), b"") for run in runs
        ]
        applied = await self._apply_many(requests)
        if applied is not None:
            return applied
        answers = [await self._apply(*request) for request in requests]
        finish = next((answer.finish for answer in answers if answer.finish is not None), None)
        return Applied(
            tuple(token for answer in answers for token in answer.emitted), finish, answers[-1].now
        )

    async def apply_and_claim(
        self, execution: str, decisions: Sequence[Decision], successor: int, owner: str
    ) -> Applied:
        claim = _PACK((successor, encode_path(decisions[0].path), owner))
        return await self._apply_decisions(execution, decisions, claim)

    async def _apply_decisions(
        self, execution: str, decisions: Sequence[Decision], claim: bytes = b""
    ) -> Applied:
        cached = await self._executions.of(execution)
        entry = None if self._sender is None else self._sender.entry(execution, decisions)
        predicted = None if entry is None else self.predict_end(execution, decisions)
        self._predictor.forget(execution)
        if entry is not None and predicted is not None:
            return self._skip_last_decisions(execution, decisions[0], entry, predicted)
        request = (cached, cached.instructions.listed(decisions), entry, claim)
        return await self._applies.call(execution, request)

    async def _send_applies(
        self, execution: str, requests: Sequence[ApplyRequest]
    ) -> list[Applied] | SharedAnswer[Applied]:
        """Apply decisions of one execution in one call, or one by one if that is not possible."""
        if len(requests) > 1:
            applied = await self._apply_many(requests)
            if applied is not None:
                return SharedAnswer(applied, Applied(now=applied.now))
        return [await self._apply(*request) for request in requests]

    async def _apply(
        self, cached: CachedExecution, decisions: list[Instruction], entry: Entry | None, claim: bytes
    ) -> Applied:
        packed = _PACK(decisions)
        reply: bytes | Applied
        if claim:
            reply = await self._run_sending(cached, "advance", packed, entry, claim)
        else:
            reply = await self._run_sending(cached, "apply", packed, entry)
        if reply in (b"FOLD", b"BEHIND"):
            reply = await self._run_rebuilding(
                cached, lambda: self._run_sending(cached, "apply", packed, entry)
            )
        if isinstance(reply, Applied):
            return reply if self._sender is not None else _following(cached.plan, decisions, reply)
        if self._sender is not None:
            self._sender.release(entry)
        decoded = _APPLY_REPLY.decode(reply)
        applied = self._applied(cached, decoded)
        if isinstance(decoded.result, bool):
            return applied
        return replace(applied, kept=await self._keep(cached, entry, applied.now, decoded.result))

    async def _keep(
        self, cached: CachedExecution, entry: Entry | None, now: int, claimed: ClaimedSuccessor
    ) -> KeptToken:
        """Return the successor that `advance` has claimed."""
        token, execution = token_from_fields(claimed.token), cached.accepted.id
        if claimed.alone is not False:
            self._predictor.note(execution, token, now, claimed.alone)
        fence = ((await self._client.server_run(self._keys.of(execution).fields))[1], claimed.number)
        tag = 0 if self._sender is None or entry is None else self._sender.keep(entry, token)
        claim = Claim("run", token, now, fence, claimed.rebuilt, recovered=claimed.rebuilt)
        return KeptToken(claim, tag)

    async def _apply_many(self, requests: Sequence[ApplyRequest]) -> Applied | None:
        """Apply decisions of several tokens in one call. The function sends what they emit, so the reply does not have
        to attribute tokens to requests."""
        cached = requests[0][0]
        entries = [entry for _, _, entry, _ in requests if entry is not None]
        one_stream = len({entry.stream for entry in entries}) == 1
        if self._sender is None or not one_stream or len(entries) < len(requests):
            return None
        packed = _PACK([instruction for _, decisions, _, _ in requests for instruction in decisions])
        now = 0 if self._clock is None else self._clock.now()
        # The place of a token that was kept has no entry to delete.
        deleted = [entry for entry in entries if entry.id]
        arguments = (now, cached.accepted.id, packed, *self._sender.arguments(cached, *deleted))
        reply = await self._client.run("apply", self._sender.keys(cached, entries[0]), *arguments)
        if reply in (b"FOLD", b"BEHIND"):
            return None
        for entry in entries:
            self._sender.release(entry)
        return self._decode_applied(cached, reply)

    def _skip_last_decisions(
        self, execution: str, first: Decision, entry: Entry, predicted: tuple[FinishExecution, int]
    ) -> Applied:
        """Record a predicted end without applying its decisions: `end` drops the state they would change. The entry
        is kept until then, so after a crash another worker receives it and finds the rows of the journal."""
        self._ending[execution] = (f"{first.node}|{encode_path(first.path)}", entry)
        if len(self._ending) > MAX_ENDING:
            self._ending.popitem(last=False)
        return Applied((), *predicted)

    async def control(self, execution: str, fact: PauseChanged | ExecutionLate) -> Applied:
        cached = await self._executions.of(execution)
        if isinstance(fact, ExecutionLate):
            return await self._run_fact(cached, "control", _PACK((fact.at, "late")))
        return await self._run_fact(cached, "control", _PACK((fact.at, fact.number, fact.paused)))

    async def signal(self, execution: str, fact: SignalReceived) -> Applied:
        cached = await self._executions.of(execution)
        path = False if fact.path is None else encode_path(fact.path)
        return await self._run_fact(cached, "signal", _PACK((fact.at, fact.id, fact.name, path)))

    async def pause_state(self, execution: str) -> tuple[int, bool]:
        packed = await self._client.call("HGET", self._keys.of(execution).fields, "!")
        meta = msgspec.msgpack.decode(packed) if packed else {}
        if meta.get("i") == await self.server(execution):
            return meta.get("k", 0), "p" in meta
        state = await self._rebuilder.peek(await self._executions.of(execution))
        return state.pause_state, state.paused_at is not None

    async def recorded(self, execution: str) -> State:
        return await self._rebuilder.peek(await self._executions.of(execution))

    async def waiting_for_signal(self, execution: str) -> list[Listener]:
        # A recorded wait counts even before its decision is applied to the state.
        state = await self.recorded(execution)
        waits = sorted(
            (since, path, node, name)
            for name, waiting in state.waiting_for_signal.items()
            for (path, node), since in waiting.items()
        )
        return [Listener(name, node, path) for _, path, node, name in waits]

    async def explain(self, execution: str) -> list[Waiting]:
        cached = await self._executions.of(execution)
        return explain(cached.plan, await self._read(execution))

    async def may_report(self, execution: str, period_ms: int) -> bool:
        """Return whether this process may report the progress of an execution; no other may within the period."""
        key = self._keys.reported(execution)
        return await self._client.call("SET", key, "1", "NX", "PX", period_ms) is not None

    async def _read(self, execution: str) -> State:
        """Return the state for reading: the stored one, or for an unloaded execution the one the journal yields."""
        stored = await self.peek(execution)
        return stored or await self._rebuilder.peek(await self._executions.of(execution))

    async def peek(self, execution: str) -> State | None:
        cached = await self._executions.of(execution)
        raw = await self._client.call("HGETALL", self._keys.of(execution).fields)
        fields = read_fields(dict(zip(raw[::2], raw[1::2], strict=True)))
        if fields and fields["!"]["i"] == await self.server(execution):
            return decode_state(cached.plan, fields)
        return None

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        self._predictor.forget(execution)
        self.confirmations.forget(execution)
        ending = self._ending.pop(execution, None)
        if ending is None or self._sender is None:
            await self.run("end", execution, encode_ended(execution, fact))
        else:
            token, entry = ending
            more = (GROUP, entry.id) if entry.id else ()
            streams = (entry.stream,) if entry.id else ()
            await self.run("end", execution, encode_ended(execution, fact), token, *more, streams=streams)
            self._sender.release(entry)
        self._executions.forget(execution)

    async def close(self) -> None:
        """Report what is left to report, and stop loading."""
        await self._preloader.close()
        await self.confirmations.close()

    def forget(self, executions: Sequence[str]) -> None:
        """Drop cached data of executions that have ended, in this process or another."""
        for execution in executions:
            self._executions.forget(execution)
            self._predictor.forget(execution)
            self.confirmations.forget(execution)

    async def due_timers(self, limit: int) -> list[DueTimer]:
        now = await self.now()
        await self._recovery.work()
        executions = await self._due_members(self._keys.due, now, limit)
        self._preloader.start(now)
        share = min(MAX_FIRED, max(1, limit // max(1, len(executions))))
        fired = await asyncio.gather(*(self._fire_or_postpone(each.decode(), share) for each in executions))
        return [due for timers in fired for due in timers][:limit]

    async def _due_members(self, key: Callable[[int], str], now: int, limit: int) -> list[bytes]:
        """Return up to `limit` due members of a sorted set over all partitions, each time from another one on."""
        partitions = self._keys.partitions
        self._first_partition = (self._first_partition + 1) % partitions
        page_size = max(min(limit, MIN_PAGE), 4 * limit // partitions)
        calls = (
            self._client.call(
                "ZRANGE",
                key((self._first_partition + offset) % partitions),
                "-inf",
                now,
                "BYSCORE",
                "LIMIT",
                0,
                page_size,
            )
            for offset in range(partitions)
        )
        return [member for members in await self._client.gather(*calls) for member in members][:limit]

    async def _due_time(self, execution: str) -> int | None:
        """Return when an execution is due whose state was lost; None: at once."""
        return await self._rebuilder.due_time(await self._executions.of(execution))

    async def _preload(self, execution: str) -> None:
        """Load an execution whose timer will be due soon. The sweeper sends what a lost state still had to send."""
        if not await self._client.call("EXISTS", self._keys.of(execution).fields):
            await self._rebuilder.load(
                await self._executions.of(execution), left_to_sweeper=True, waits=False
            )

    async def _fire_or_postpone(self, execution: str, limit: int) -> list[DueTimer]:
        """Fire timers; an execution that cannot be read is postponed so that it does not block the others."""
        try:
            return await self._fire(execution, limit)
        except StoreUnavailableError:
            raise
        except UnknownExecutionError:
            # The execution was removed from the journal.
            await self.run("end", execution)
        except Exception as error:
            log.warning("timers of %s are postponed: %s: %s", execution, type(error).__name__, error)
            later = await self.now() + REBUILD_LEASE_MS
            await self._client.call("ZADD", self._keys.of(execution).due, "XX", later, execution)
        return []

    async def _fire(self, execution: str, limit: int) -> list[DueTimer]:
        timers: list[DueTimer] = []
        cached = await self._executions.of(execution)
        reply = await self._run_sending(cached, "fire", limit, None, _OVERDUE, REBUILD_LEASE_MS)
        if reply == b"FOLD":
            rebuilt = await self._rebuilder.load(cached, sender=self._sender)
            if rebuilt is not None and (rebuilt.applied.emitted or rebuilt.applied.finish):
                timers.append(self._due_timer(cached.accepted, Timer("wait"), rebuilt.applied))
            is_due = rebuilt is None or (rebuilt.due is not None and rebuilt.due <= rebuilt.applied.now)
            if is_due and len(timers) < limit:
                reply = await self._run_sending(
                    cached, "fire", limit - len(timers), None, _OVERDUE, REBUILD_LEASE_MS
                )
        if reply == b"FOLD":
            return timers
        decoded = _FIRE_REPLY.decode(reply)
        for fired in () if isinstance(decoded.result, bool) else decoded.result:
            finish = (
                finish_of(cached.plan, fired.finish, fired.failures)
                if isinstance(fired.finish, str)
                else None
            )
            applied = Applied(tuple(map(token_from_fields, fired.emitted)), finish, decoded.now)
            timers.append(self._due_timer(cached.accepted, decode_timer(fired.timer), applied, fired.due))
        return timers

    def _due_timer(
        self, accepted: ExecutionRecord, timer: Timer, applied: Applied, due: int | None = None
    ) -> DueTimer:
        return DueTimer(
            accepted.id, timer, applied.emitted, applied.finish, applied.now, accepted.priority, due
        )

    async def next_due(self) -> int | None:
        if await self._recovery.is_due():
            return await self.now()
        calls = (
            self._client.call("ZRANGE", self._keys.due(partition), 0, 0, "WITHSCORES")
            for partition in range(self._keys.partitions)
        )
        due = (int(float(members[1])) for members in await self._client.gather(*calls) if members)
        return min(due, default=None)

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        if self._sender is not None:
            await self._consumers.clean()
        members = await self._due_members(self._keys.held, await self.now(), limit)
        tokens: dict[str, list[tuple[int, str]]] = {}
        for member in members:
            execution, node, path = member.decode().rsplit("|", 2)
            tokens.setdefault(execution, []).append((int(node), path))
        swept = await asyncio.gather(
            *(
                self._sweep_or_skip(execution, keys[start : start + MAX_SWEPT])
                for execution, keys in tokens.items()
                for start in range(0, len(keys), MAX_SWEPT)
            )
        )
        return [token for batch in swept for token in batch]

    async def _sweep_or_skip(
        self, execution: str, tokens: list[tuple[int, str]]
    ) -> list[tuple[str, Token, int]]:
        """Sweep tokens; those of an execution that cannot be read come up again, and do not block the others."""
        try:
            return await self._sweep(execution, tokens)
        except StoreUnavailableError:
            raise
        except UnknownExecutionError:
            # The execution was removed from the journal.
            await self.run("end", execution)
        except Exception as error:
            log.warning("lost tokens of %s are not sent: %s: %s", execution, type(error).__name__, error)
        return []

    async def _sweep(self, execution: str, tokens: list[tuple[int, str]]) -> list[tuple[str, Token, int]]:
        reply = await self.run("sweep", execution, _PACK(tokens))
        emitted = _ANY_REPLY.decode(reply).emitted
        if not emitted:
            return []
        accepted = await self._executions.accepted(execution)
        return [(execution, token_from_fields(each), accepted.priority) for each in emitted]
