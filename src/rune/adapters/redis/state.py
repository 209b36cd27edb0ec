"""Crowds: what several tokens of one execution ask for while one of them is being served is asked for in one act.

Foresight: while a token that is all there is of its execution is in our hands, nothing else can happen to it.

The state in Redis: every verb is one script on one execution; where there is no state, it is folded first.
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

from rune.adapters.redis.client import Client
from rune.adapters.redis.encoding import (
    CachedExecution,
    ExecutionCache,
    Instruction,
    Plans,
    SentToken,
    decode_timer,
    encode_finish,
    encode_path,
    token_fields,
    token_from_fields,
)
from rune.adapters.redis.keys import Keys
from rune.adapters.redis.rebuild import REBUILD_LEASE_MS, RunningExecutions, StateRebuilder, WipeRecovery
from rune.adapters.redis.snapshot import decode_state, finish_of, read_fields
from rune.adapters.redis.streams import DEFAULT, GROUP, NOTHING_SENT, ConsumerCleaner, Entry, StreamSender
from rune.codec.messages import MessageContext
from rune.core.execution.decision import Decision, FinishExecution, Timer
from rune.core.execution.explain import Waiting, explain
from rune.core.execution.fact import ExecutionEnded, PauseChanged, SignalReceived
from rune.core.execution.inline_run import predict_single_end
from rune.core.execution.state import State
from rune.core.execution.timers import OVERDUE
from rune.core.execution.token import Path, Token
from rune.core.plan.model import Plan
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, Journal, StoreUnavailableError
from rune.ports.state import Applied, Claim, DueTimer, Fence, Listener

MAX_BATCH = 32  # in one act: a script must not keep others waiting for milliseconds

W = TypeVar("W")
A = TypeVar("A")
WaitingCalls = list[tuple[W, "asyncio.Future[A]"]]


class ScriptBatcher(Generic[W, A]):
    """Whoever is alone is served at once, and by whoever asks. `together` serves several and answers one
    answer each, or None where they have to be served one by one."""

    def __init__(
        self,
        alone: Callable[[CachedExecution, W], Awaitable[A]],
        together: Callable[[CachedExecution, Sequence[W]], Awaitable[Sequence[A] | None]],
    ) -> None:
        self._alone = alone
        self._together = together
        self._crowds: dict[str, WaitingCalls[W, A]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def serve(self, known: CachedExecution, wish: W) -> A:
        """The answer to one wish."""
        execution = known.accepted.id
        crowd = self._crowds.get(execution)
        if crowd is not None:
            future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
            crowd.append((wish, future))
            return await future
        self._crowds[execution] = []
        try:
            return await self._alone(known, wish)
        finally:
            self._next(known)

    def _next(self, known: CachedExecution) -> None:
        """Who has come meanwhile is served together, and who comes meanwhile is served next."""
        execution = known.accepted.id
        waiting = self._crowds.pop(execution)
        if waiting:
            self._crowds[execution] = []
            serving = asyncio.create_task(self._serve_all(known, waiting))
            self._under_way.add(serving)
            serving.add_done_callback(self._under_way.discard)

    async def _serve_all(self, known: CachedExecution, waiting: WaitingCalls[W, A]) -> None:
        try:
            pieces = (waiting[start : start + MAX_BATCH] for start in range(0, len(waiting), MAX_BATCH))
            await asyncio.gather(*(self._serve_some(known, piece) for piece in pieces))
        finally:
            self._next(known)

    async def _serve_some(self, known: CachedExecution, waiting: WaitingCalls[W, A]) -> None:
        try:
            answers = None
            if len(waiting) > 1:
                answers = await self._together(known, [wish for wish, _ in waiting])
            if answers is None:
                answers = [await self._alone(known, wish) for wish, _ in waiting]
        except BaseException as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(waiting, answers, strict=True):
            if not future.done():
                future.set_result(answer)


MAX_PREDICTED = 10_000


class _SingleExecution:
    """A node that was claimed, when by either clock, and what was foreseen last."""

    __slots__ = ("answer", "decisions", "node", "then", "when")

    def __init__(self, node: int, now: int) -> None:
        self.node = node
        self.then = now
        self.when = time.monotonic()
        self.decisions: Sequence[Decision] | None = None
        self.answer: tuple[FinishExecution, int] | None = None


class EndPredictor:
    """Which decisions are certain to be the last."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._alone: OrderedDict[str, _SingleExecution] = OrderedDict()

    def note(self, execution: str, token: Token, now: int) -> None:
        """This token was claimed here, and it is all there is."""
        self._alone[execution] = _SingleExecution(token.node, now)
        if len(self._alone) > MAX_PREDICTED:
            self._alone.popitem(last=False)

    def forget(self, execution: str) -> None:
        self._alone.pop(execution, None)

    def end(self, execution: str, decisions: Sequence[Decision]) -> tuple[FinishExecution, int] | None:
        """The end that these decisions bring, and its time; the same however often it is asked for."""
        alone = self._alone.get(execution)
        if alone is None:
            return None
        if alone.decisions is not decisions:
            alone.decisions = decisions
            finish = predict_single_end(decisions) if decisions[0].node == alone.node else None
            passed = 0 if self._clock is not None else round((time.monotonic() - alone.when) * 1000)
            alone.answer = None if finish is None else (finish, alone.then + passed)
        return alone.answer


log = logging.getLogger("rune.state")

MAX_TRIES = 8
MAX_ENDING = 10_000
_OVERDUE = encode_finish(FinishExecution("failed", OVERDUE))
_PACK = msgspec.msgpack.Encoder().encode

ScriptCall = tuple[Token, bytes]
"""A token that is to be claimed, and how a script is asked for it."""

Act = tuple[list[Instruction], Entry | None]
"""Decisions of one token, and what brought it."""

Reply = tuple[str, int, list[SentToken], str | bool, Any, Any]
_REPLY = msgspec.msgpack.Decoder(Reply)


class RedisState:
    """Tokens, joins, leases and timers of running executions. `clock` None: the server's time; another is for tests."""

    def __init__(
        self,
        client: Client,
        keys: Keys,
        journal: Journal,
        plans: Plans,
        *,
        clock: Clock | None = None,
        roll: RunningExecutions | None = None,
        outlet: StreamSender | None = None,
    ) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock
        self._outlet = outlet
        self._register = ExecutionCache(journal, plans)
        self._folder = StateRebuilder(self, journal)
        self._recovery = WipeRecovery(client, keys, roll)
        self._consumers = ConsumerCleaner(client, keys)
        self._foresight = EndPredictor(clock)
        self._claims: ScriptBatcher[ScriptCall, Claim] = ScriptBatcher(self._claim, self._claim_all)
        self._applies: ScriptBatcher[Act, Applied] = ScriptBatcher(self._apply, self._apply_all)
        self._closing: OrderedDict[str, tuple[str, Entry]] = OrderedDict()

    async def run(self, name: str, execution: str, *arguments: Any, streams: tuple[str, ...] = ()) -> Any:
        """Run the script of a verb on an execution."""
        now = 0 if self._clock is None else self._clock.now()
        keys = self._keys.of(execution)
        return await self._client.run(name, keys + streams if streams else keys, now, execution, *arguments)

    async def _run_sending(
        self, known: CachedExecution, name: str, what: Any, entry: Entry | None, *more: Any
    ) -> Any:
        """The same for one that may emit; where there is an outlet, the script itself sends."""
        if self._outlet is None:
            return await self.run(name, known.accepted.id, what, *NOTHING_SENT, *more)
        now = 0 if self._clock is None else self._clock.now()
        given = (now, known.accepted.id, what, *self._outlet.arguments(known, entry), *more)
        return await self._client.run(name, self._outlet.keys(known, entry), *given)

    @property
    def rebuilds(self) -> int:
        return self._folder.folds

    async def now(self) -> int:
        if self._clock is not None:
            return self._clock.now()
        seconds, micros = await self._client.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def server(self) -> str:
        """Which run of the server this is."""
        return (await self._client.incarnation())[0]

    async def _tried(
        self, known: CachedExecution, run: Callable[[], Awaitable[Any]], *, owed: bool = False
    ) -> bytes | Applied:
        """What a script says, or, where the state had to be folded here, what followed from that."""
        for _ in range(MAX_TRIES):
            answer: bytes = await run()
            if answer not in (b"FOLD", b"BEHIND"):
                return answer
            folded = await self._folder.load(known, behind=answer == b"BEHIND", owed=owed)
            if folded is not None and (not owed or folded.state.ended):
                return folded.applied
        raise StoreUnavailableError(f"the state of {known.accepted.id} is folded again and again")

    def _applied(self, known: CachedExecution, answer: bytes) -> Applied:
        _, now, emitted, finish, failed, _ = _REPLY.decode(answer)
        ends = finish_of(known.plan, finish, failed) if isinstance(finish, str) else None
        return Applied(tuple(map(token_from_fields, emitted)), ends, now)

    async def _decode_reply(self, known: CachedExecution, name: str, fact: bytes) -> Applied:
        """Whoever tells of a fact wants to know whom it woke, so these are never sent by the script."""
        answer = await self._tried(known, lambda: self.run(name, known.accepted.id, fact))
        return answer if isinstance(answer, Applied) else self._applied(known, answer)

    async def room(self) -> bool:
        """There always is."""
        return True

    def arriving(self, execution: str) -> AbstractContextManager[None]:
        """Whoever else opens it meanwhile finds it, or is found: the first to write it wins."""
        return nullcontext()

    async def admit(self, accepted: ExecutionRecord, plan: Plan) -> Applied:
        """Open an execution that was accepted this moment with nothing to begin with, without reading it back."""
        known = self._register.add(accepted, plan)
        admitted = await self._folder.admit(known, self._outlet)
        return await self.begin(accepted.id) if admitted is None else admitted

    async def begin(self, execution: str) -> Applied:
        known = await self._register.of(execution)
        folded = await self._folder.load(known, outlet=self._outlet)
        return Applied(now=await self.now()) if folded is None else folded.applied

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        known = await self._register.of(execution)
        want = (
            token.node,
            encode_path(token.path),
            token.fate.value,
            token.attempt,
            token.resumed,
            owner,
            leased,
            token_fields(token),
        )
        return await self._claims.serve(known, (token, _PACK(want)))

    async def _claim(self, known: CachedExecution, wish: ScriptCall) -> Claim:
        token, asked = wish
        execution = known.accepted.id
        answer: bytes = await self.run("claim", execution, asked)
        if answer == b"FOLD":
            found_out = await self._tried(known, lambda: self.run("claim", execution, asked), owed=True)
            if isinstance(found_out, Applied):
                return Claim("void", token, found_out.now)
            answer = found_out
        _, now, _, _, _, found = _REPLY.decode(answer)
        return self._claimed(execution, token, now, found, await self._client.incarnation())

    async def _claim_all(self, known: CachedExecution, wishes: Sequence[ScriptCall]) -> list[Claim] | None:
        execution = known.accepted.id
        answer = await self.run("claim", execution, *(asked for _, asked in wishes))
        if answer == b"FOLD":
            return None
        _, now, _, _, _, found = _REPLY.decode(answer)
        run = await self._client.incarnation()
        return [
            self._claimed(execution, token, now, each, run)
            for (token, _), each in zip(wishes, found, strict=True)
        ]

    def _claimed(self, execution: str, token: Token, now: int, found: Any, run: tuple[str, int]) -> Claim:
        verdict, sent, number, again, due, read_back, alone, first = found
        mine = token_from_fields(sent) if sent else token
        if verdict not in ("run", "cancelled"):
            return Claim(verdict, mine if verdict.startswith("held") else token, now)
        if alone:
            self._foresight.note(execution, mine, now)
        fence = (run[1], number) if number else None
        recovered = read_back and fence is not None
        # Who held the token when the state was lost is not known here; the row it may have written since is.
        again = (again or read_back) and fence is not None
        return Claim(verdict, mine, now, fence, again, due or None, recovered, first or None)

    async def renew(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        return bool(await self.run("renew", execution, node, encode_path(path), fence[1]))

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        return self._foresight.end(execution, decisions)

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        known = await self._register.of(execution)
        entry = None if self._outlet is None else self._outlet.entry(execution, decisions)
        certain = None if entry is None else self.predict_end(execution, decisions)
        self._foresight.forget(execution)
        if entry is not None and certain is not None:
            return self._ends(execution, decisions[0], entry, certain)
        return await self._applies.serve(known, (known.instructions.listed(decisions), entry))

    async def _apply(self, known: CachedExecution, act: Act) -> Applied:
        decisions, entry = act
        packed = _PACK(decisions)
        answer: bytes | Applied = await self._run_sending(known, "apply", packed, entry)
        if answer in (b"FOLD", b"BEHIND"):
            answer = await self._tried(known, lambda: self._run_sending(known, "apply", packed, entry))
        if isinstance(answer, Applied):
            return answer
        if self._outlet is not None:
            self._outlet.let_go(entry)
        return self._applied(known, answer)

    async def _apply_all(self, known: CachedExecution, acts: Sequence[Act]) -> list[Applied] | None:
        """Acts of several tokens in one. What they emit is sent there, so nothing has to be told apart."""
        entries = [entry for _, entry in acts if entry is not None]
        if self._outlet is None or len({entry.stream for entry in entries}) != 1 or len(entries) < len(acts):
            return None
        packed = _PACK([each for decisions, _ in acts for each in decisions])
        now = 0 if self._clock is None else self._clock.now()
        given = (now, known.accepted.id, packed, *self._outlet.arguments(known, *entries))
        answer = await self._client.run("apply", self._outlet.keys(known, entries[0]), *given)
        if answer in (b"FOLD", b"BEHIND"):
            return None
        for entry in entries:
            self._outlet.let_go(entry)
        last = self._applied(known, answer)
        return [*(Applied(now=last.now) for _ in acts[1:]), last]

    def _ends(
        self, execution: str, first: Decision, entry: Entry, certain: tuple[FinishExecution, int]
    ) -> Applied:
        """These decisions are the last: what they would change is about to be dropped. Until then the entry is ours,
        and if we die it leads somebody to the rows."""
        self._closing[execution] = (f"{first.node}|{encode_path(first.path)}", entry)
        if len(self._closing) > MAX_ENDING:
            self._closing.popitem(last=False)
        return Applied((), *certain)

    async def control(self, execution: str, fact: PauseChanged) -> Applied:
        known = await self._register.of(execution)
        return await self._decode_reply(known, "control", _PACK((fact.at, fact.number, fact.paused)))

    async def signal(self, execution: str, fact: SignalReceived) -> Applied:
        known = await self._register.of(execution)
        path = False if fact.path is None else encode_path(fact.path)
        return await self._decode_reply(known, "signal", _PACK((fact.at, fact.id, fact.name, path)))

    async def pause_state(self, execution: str) -> tuple[int, bool]:
        packed = await self._client.call("HGET", self._keys.of(execution)[0], "!")
        meta = msgspec.msgpack.decode(packed) if packed else {}
        if meta.get("i") == await self.server():
            return meta.get("k", 0), "p" in meta
        state = await self._folder.peek(await self._register.of(execution))
        return state.pause_state, state.paused_at is not None

    async def waiting_for_signal(self, execution: str) -> list[Listener]:
        # From the journal: a wait whose row is there counts, also before the state has heard of it.
        state = await self._folder.peek(await self._register.of(execution))
        found = sorted(
            (since, path, node, name)
            for name, waiting in state.waiting_for_signal.items()
            for (path, node), since in waiting.items()
        )
        return [Listener(name, node, path) for _, path, node, name in found]

    async def explain(self, execution: str) -> list[Waiting]:
        known = await self._register.of(execution)
        return explain(known.plan, await self._read(execution))

    async def _read(self, execution: str) -> State:
        """The state for whoever only looks: as it is, or, of an execution that sleeps, as it would be."""
        known = await self._register.of(execution)
        raw = await self._client.call("HGETALL", self._keys.of(execution)[0])
        fields = read_fields(dict(zip(raw[::2], raw[1::2], strict=True)))
        if fields and fields["!"]["i"] == await self.server():
            return decode_state(known.plan, fields)
        return await self._folder.peek(known)

    async def names_of(self, execution: str) -> MessageContext:
        """What an execution is called in messages."""
        known = await self._register.of(execution)
        of = known.accepted
        return MessageContext(of.workflow, of.hash, known.plan.ids, traceparent=of.trace or None)

    async def queue_of(self, execution: str, token: Token) -> str:
        """The name of the queue that a token belongs in."""
        plan = (await self._register.of(execution)).plan
        return plan.nodes[token.node].node.queue or DEFAULT

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        self._foresight.forget(execution)
        closing = self._closing.pop(execution, None)
        if closing is None or self._outlet is None:
            await self.run("end", execution)
        else:
            token, entry = closing
            await self.run("end", execution, token, GROUP, entry.id, streams=(entry.stream,))
            self._outlet.let_go(entry)
        self._register.forget(execution)

    async def due_timers(self, limit: int) -> list[DueTimer]:
        now = await self.now()
        await self._recovery.work()
        ringing = await self._members(self._keys.due, now, limit)
        share = max(1, limit // max(1, len(ringing)))
        fired = await asyncio.gather(*(self._guarded(each.decode(), share) for each in ringing))
        return [due for each in fired for due in each][:limit]

    async def _members(self, key: Callable[[int], str], now: int, limit: int) -> list[bytes]:
        """Of all partitions those whose time has come, as many as asked for."""
        asked = (
            self._client.call("ZRANGE", key(each), "-inf", now, "BYSCORE", "LIMIT", 0, limit)
            for each in range(self._keys.partitions)
        )
        return [member for found in await asyncio.gather(*asked) for member in found][:limit]

    async def _guarded(self, execution: str, most: int) -> list[DueTimer]:
        """One execution that cannot be read does not hold up the others: it is looked at again later."""
        try:
            return await self._fired(execution, most)
        except StoreUnavailableError:
            raise
        except KeyError:
            await self.run("end", execution)  # it is no longer kept
        except Exception as error:
            log.warning("%s is left alone: %s: %s", execution, type(error).__name__, error)
            later = await self.now() + REBUILD_LEASE_MS
            await self._client.call("ZADD", self._keys.of(execution)[3], "XX", later, execution)
        return []

    async def _fired(self, execution: str, most: int) -> list[DueTimer]:
        found: list[DueTimer] = []
        known = await self._register.of(execution)
        answer = await self._run_sending(known, "fire", most, None, _OVERDUE, REBUILD_LEASE_MS)
        if answer == b"FOLD":
            folded = await self._folder.load(known, outlet=self._outlet)
            if folded is not None and (folded.applied.emitted or folded.applied.finish):
                found.append(self._due(known.accepted, Timer("wait"), folded.applied))
            rings = folded is None or (folded.due is not None and folded.due <= folded.applied.now)
            if rings and len(found) < most:
                answer = await self._run_sending(
                    known, "fire", most - len(found), None, _OVERDUE, REBUILD_LEASE_MS
                )
        if answer == b"FOLD":
            return found
        _, now, _, _, _, fired = _REPLY.decode(answer)
        for timer, due, emitted, finish, failed in fired:
            ends = finish_of(known.plan, finish, failed) if finish else None
            applied = Applied(tuple(map(token_from_fields, emitted)), ends, now)
            found.append(self._due(known.accepted, decode_timer(timer), applied, due))
        return found

    def _due(
        self, accepted: ExecutionRecord, timer: Timer, applied: Applied, due: int | None = None
    ) -> DueTimer:
        return DueTimer(
            accepted.id, timer, applied.emitted, applied.finish, applied.now, accepted.priority, due
        )

    async def next_due(self) -> int | None:
        if await self._recovery.is_due():
            return await self.now()
        asked = (
            self._client.call("ZRANGE", self._keys.due(each), 0, 0, "WITHSCORES")
            for each in range(self._keys.partitions)
        )
        return min((int(float(found[1])) for found in await asyncio.gather(*asked) if found), default=None)

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        if self._outlet is not None:
            await self._consumers.tidy()
        members = await self._members(self._keys.held, await self.now(), limit)
        tokens: dict[str, list[tuple[int, str]]] = {}
        for member in members:
            execution, node, path = member.decode().rsplit("|", 2)
            tokens.setdefault(execution, []).append((int(node), path))
        found = await asyncio.gather(*(self._swept(*each) for each in tokens.items()))
        return [one for each in found for one in each]

    async def _swept(self, execution: str, tokens: list[tuple[int, str]]) -> list[tuple[str, Token, int]]:
        answer = await self.run("sweep", execution, _PACK(tokens))
        emitted = _REPLY.decode(answer)[2]
        if not emitted:
            return []
        accepted = (await self._register.of(execution)).accepted
        return [(execution, token_from_fields(each), accepted.priority) for each in emitted]
