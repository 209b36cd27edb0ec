"""Keys and arguments of the Lua functions: names of keys, and tokens, timers and decisions as short texts.

All keys of a partition share a hash tag, because one function changes them together. Paths, references and timers are
texts that a function can also build. The functions never see the plan: each encoded decision carries what they need of
it, such as the parties of a join or the window of a fan-out. The executions of this process are cached here too.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from rune.codec.decode import MalformedDataError, decode
from rune.core.execution.decision import (
    ArriveAtJoin,
    CollectItem,
    Decision,
    Effect,
    EmitToken,
    FanOutItems,
    FinishExecution,
    SkipNode,
    Timer,
    UncollectedFailure,
)
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended, RaceWinner
from rune.core.execution.outcome import Error
from rune.core.execution.retry import retry_due
from rune.core.execution.routing import activate_edges
from rune.core.execution.token import ROOT, START, Arrived, Path, Ref, Token, TokenPurpose, token_name
from rune.core.json_decoder import JsonDecoder
from rune.core.plan.model import NodePlan, Plan
from rune.ports.journal import ExecutionRecord, Journal, UnknownExecutionError

PARTITIONS = 16
MAX_CACHED_NAMES = 4_096

EMIT, ARRIVE, GATHER, SKIP, SPREAD, UNCOLLECTED, FINISH = range(1, 8)
NONE = -1
MAX_CACHED_EXECUTIONS = 20_000

_LETTER = {"start": "s", "result": "r", "item": "i", "entered": "e"}
_KIND: dict[str, Any] = {letter: kind for kind, letter in _LETTER.items()}
_TIMER = {"wait": "w", "retry": "r", "join": "j", "finish": "f", "deadline": "d", "late": "l"}
_TIMER_KIND: dict[str, Any] = {letter: kind for kind, letter in _TIMER.items()}
_PURPOSES = {purpose.value: purpose for purpose in TokenPurpose}

SentToken = tuple[int, str, str, str | bool, str, str, int, bool, str | bool, int, int, int]
"""A token as the Lua functions of this version take and return it: the fields of StreamToken."""

Instruction = tuple[Any, ...]
"""A decision or an effect as the Lua functions take it."""

Plans = Callable[[str], Awaitable[Plan]]
"""Returns the plan of a definition hash."""

FindExecution = Callable[[str], tuple[ExecutionRecord, Plan] | None]
"""Returns the record and the plan of an execution if this process has them in memory."""

pack = msgspec.msgpack.Encoder().encode
_TOKEN_ENCODER = msgspec.msgpack.Encoder()

_JSON = msgspec.json.Encoder()
_FINISH = JsonDecoder(FinishExecution)
_ERROR = JsonDecoder(Error)


class StreamToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A token as stream entries carry it, as an array. Processes of several versions read them: a new field comes last
    and has a default, so that an entry without it can be read, and one with more fields than are known."""

    node: int
    path: str
    payload: str
    error: str | bool
    arrived: str
    fate: str
    attempt: int
    resumed: bool
    signal: str | bool
    items: int
    at: int
    last: int = 0  # place of the last arrival at a join, from 1


_TOKEN_DECODER = msgspec.msgpack.Decoder(StreamToken)


class ExecutionKeys(NamedTuple):
    """The keys of the functions that change one execution, in the order of store.lua: those of its state, those of its
    partition, and those that are for rebuilding."""

    fields: str
    timers: str
    listeners: str
    due: str
    held: str
    rebuild_lease: str
    rebuilt_fields: str
    activated: str


class KeySpace:
    """Key names. Different prefixes separate independent installations on one server."""

    def __init__(self, prefix: str = "rune", partitions: int = PARTITIONS) -> None:
        self.prefix = prefix
        self.partitions = partitions
        self.settings = f"{prefix}:settings"
        self.run_number = f"{prefix}:incarnation"
        self.of = lru_cache(MAX_CACHED_NAMES)(self._of)
        self.partition = lru_cache(MAX_CACHED_NAMES)(self._partition)
        self.stream = lru_cache(MAX_CACHED_NAMES)(self._stream)
        self._tags = [f"{prefix}:{{p{number:02d}}}" for number in range(partitions)]

    def _partition(self, execution: str) -> int:
        return crc32(execution.encode()) % self.partitions

    def due(self, partition: int) -> str:
        """Sorted set of executions by their next timer."""
        return f"{self._tags[partition]}:due"

    def held(self, partition: int) -> str:
        """Sorted set of claimed or just sent tokens by the time at which the sweeper resends them."""
        return f"{self._tags[partition]}:held"

    def reported(self, execution: str) -> str:
        """Set while a process reports the progress of this execution. It may outlast the execution."""
        digest = hashlib.blake2b(execution.encode(), digest_size=12).hexdigest()
        return f"{self._tags[self.partition(execution)]}:reported:{digest}"

    def _stream(self, partition: int, queue: str, lane: str) -> str:
        return f"{self._tags[partition]}:stream:{queue}:{lane}"

    def later(self, partition: int, queue: str = "default") -> str:
        """Sorted set of delayed deliveries by due time. One per queue, so that only its workers move them back."""
        return f"{self._tags[partition]}:later:{queue}"

    def dead(self, partition: int) -> str:
        """Stream of dead letters: entries that no worker could process."""
        return f"{self._tags[partition]}:dead"

    def searched(self, lane: str) -> str:
        """Sorted set of tokens that may be in a lane of a broker, by the time since which they are searched for."""
        return f"{self.prefix}:searched:{lane}"

    def recovered(self, run: str, partition: int | None = None) -> str:
        """Progress of the recovery in a server run, on a Redis Cluster of one partition."""
        head = self.prefix if partition is None else self._tags[partition]
        return f"{head}:recovered:{run}"

    def activated(self, execution: str) -> str:
        """Mark of an execution that was rebuilt, or ended without a state: it must not be installed from memory."""
        return self.of(execution).activated

    def _of(self, execution: str) -> ExecutionKeys:
        tag = self._tags[self.partition(execution)]
        own = f"{tag}:x:{execution}"
        return ExecutionKeys(
            fields=own,
            timers=f"{own}:t",
            listeners=f"{own}:n",
            due=f"{tag}:due",
            held=f"{tag}:held",
            rebuild_lease=f"{own}:fold",
            rebuilt_fields=f"{own}:new",
            activated=f"{own}:activated",
        )


def find_none(execution: str) -> tuple[ExecutionRecord, Plan] | None:
    """The default: no execution is loaded elsewhere."""
    return None


def encode_path(path: Path) -> str:
    """Return a path such as `3.5.7.2`; the root is the empty text."""
    return ".".join(map(str, path)) if path else ""


def decode_path(text: str) -> Path:
    return tuple(map(int, text.split("."))) if text else ROOT


def encode_ref(ref: Ref) -> str:
    """Return `s` for the start, else letter, node and path such as `r7@3.5`."""
    if ref.kind == "start":
        return "s"
    return f"{_LETTER[ref.kind]}{ref.node}@{encode_path(ref.path)}"


def decode_ref(text: str) -> Ref:
    if text == "s":
        return START
    node, _, path = text[1:].partition("@")
    return Ref(_KIND[text[0]], int(node), decode_path(path))


def encode_optional_ref(ref: Ref | None) -> str | bool:
    return False if ref is None else encode_ref(ref)


def decode_optional_ref(text: str | bool) -> Ref | None:
    return decode_ref(text) if isinstance(text, str) else None


def encode_arrived(arrived: tuple[Arrived, ...]) -> str:
    return " ".join(f"{each.edge}={encode_ref(each.payload)}" for each in arrived)


def decode_arrived(text: str) -> tuple[Arrived, ...]:
    if not text:
        return ()
    parts = (each.partition("=") for each in text.split(" "))
    return tuple(Arrived(int(edge), decode_ref(payload)) for edge, _, payload in parts)


def token_fields(token: Token) -> SentToken:
    return (
        token.node,
        encode_path(token.path),
        encode_ref(token.payload),
        encode_optional_ref(token.error),
        encode_arrived(token.arrived),
        token.fate.value,
        token.attempt,
        token.resumed,
        False if token.signal is None else token.signal,
        token.items,
        token.at,
        token.last + 1,
    )


def token_from_fields(sent: SentToken) -> Token:
    node, path, payload, error, arrived, fate, attempt, resumed, signal, items, at, last = sent
    return Token(
        node,
        decode_path(path),
        decode_ref(payload),
        decode_optional_ref(error),
        decode_arrived(arrived),
        _PURPOSES[fate],
        attempt,
        resumed,
        signal if isinstance(signal, str) else None,
        items,
        at,
        last - 1,
    )


def encode_token(token: Token) -> bytes:
    """Return a token as a stream entry carries it."""
    return _TOKEN_ENCODER.encode(token_fields(token))


def decode_token(data: bytes) -> Token:
    """Decode the token of a stream entry; raise MalformedDataError if the entry has none."""
    sent: SentToken = msgspec.structs.astuple(decode(_TOKEN_DECODER, data))
    try:
        return token_from_fields(sent)
    except (KeyError, ValueError, IndexError) as error:
        raise MalformedDataError(f"not a token: {type(error).__name__}: {error}") from None


UNSENT_MS = 5_000
"""Tokens whose sending was not confirmed for this long are sent again."""

SEND_MARKS = 64


def unsent_mark(attempt: int, *, resumed: bool) -> int:
    """Return the resend time of a token that a process has to send modulo SEND_MARKS, as `store.unsent` computes it."""
    return 2 * ((2 * attempt + resumed) % 32) + 1


def encode_timer(timer: Timer) -> str:
    return f"{_TIMER[timer.kind]}|{timer.node}|{encode_path(timer.path)}|{timer.number}"


def decode_timer(text: str) -> Timer:
    letter, node, path, number = text.split("|")
    return Timer(_TIMER_KIND[letter], int(node), decode_path(path), int(number))


def listener_members(name: str, path: Path, node: int, since: int) -> tuple[bytes, bytes]:
    """Return the two sorted set members of a listener, by name and by name and lineage. Both sort the longest wait
    first."""
    tail = f"!{encode_path(path)}!{node:08d}".encode()
    when = b"%015d" % since
    lineage = _sortable(path)
    text = name.encode()
    head = b"%08x%b" % (len(text), text)
    return b"n" + head + when + lineage + tail, b"p" + head + lineage + b"/" + when + tail


def decode_listener(member: bytes) -> tuple[str, int, Path, int]:
    """Return signal name, start of the wait, path and node of a member by name."""
    size = int(member[1:9], 16)
    name = member[9 : 9 + size].decode()
    since = int(member[9 + size : 24 + size])
    _, path, node = member[24 + size :].decode().split("!")
    return name, since, decode_path(path), int(node)


def _sortable(path: Path) -> bytes:
    return b"".join(b"%08x" % each for each in path)


def encode_finish(finish: FinishExecution) -> str:
    """Return an end as JSON, which the Lua functions store without reading it."""
    return _text(finish)


def decode_finish(text: str) -> FinishExecution:
    return _FINISH.decode(text)


def encode_error(error: Error) -> str:
    return _text(error)


def decode_error(text: str) -> Error:
    return _ERROR.decode(text)


def _text(value: Any) -> str:
    return _JSON.encode(value).decode()


def encode_region(node: NodePlan) -> str | bool:
    """Return the nodes that the opening of a join cancels, delimited by commas so that Lua can search for a number."""
    return f",{','.join(map(str, sorted(node.region)))}," if node.region else False


class EncodedPlan:
    """Encodes the decisions of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._joins: dict[int, Instruction] = {}
        self._fans: dict[int, Instruction] = {}
        self._infos: dict[int, Instruction] = {}

    def packed(self, decisions: Sequence[Decision]) -> bytes:
        return pack(self.listed(decisions))

    def listed(self, decisions: Sequence[Decision]) -> list[Instruction]:
        return [self._decision(each) for each in decisions]

    def _decision(self, decision: Decision) -> Instruction:
        fact, path = decision.fact, encode_path(decision.path)
        if type(fact) is NodeResult:
            info = (fact.status, *self._info(decision.node), _or(fact.signal))
            return decision.node, path, decision.at, "result", info, self._effects(decision.effects)
        if fact is None:
            info = ("skipped", *self._info(decision.node), False)
            return decision.node, path, decision.at, "skip", info, self._effects(decision.effects)
        return decision.node, path, decision.at, *self._change(fact), ()

    def _info(self, node: int) -> Instruction:
        found = self._infos.get(node)
        if found is None:
            plan = self.plan.nodes[node]
            gathers = plan.split_of if plan.joins_items else NONE
            found = _timeout(plan), plan.timeout_from, gathers, encode_region(plan)
            self._infos[node] = found
        return found

    def _change(self, fact: Any) -> Instruction:
        if type(fact) is AttemptFailed:
            return "attempt", (fact.attempt, self._due(fact), _or(fact.signal))
        if type(fact) is NodeSuspended:
            return "suspend", (fact.attempt, _or(fact.due), _or(fact.signal), _or(fact.deadline))
        assert type(fact) is RaceWinner
        region = encode_region(self.plan.nodes[fact.node])
        return "choice", (
            encode_arrived(fact.arrived),
            encode_ref(fact.payload),
            encode_optional_ref(fact.error),
            region,
        )

    def _due(self, fact: AttemptFailed) -> int:
        retry_at = fact.failure.details.get("retry_at")
        earliest = retry_at if type(retry_at) is int else 0
        name = token_name(fact.node, fact.path, self.plan.ids)
        return retry_due(self.plan.nodes[fact.node].retry, fact.attempt, fact.at, name, earliest)

    def _effects(self, effects: Sequence[Effect]) -> list[Instruction]:
        return [self._effect(each) for each in effects]

    def _effect(self, effect: Effect) -> Instruction:
        if type(effect) is EmitToken:
            return EMIT, effect.node, encode_ref(effect.payload), encode_optional_ref(effect.error)
        if type(effect) is ArriveAtJoin:
            payload, error = encode_optional_ref(effect.payload), encode_optional_ref(effect.error)
            return *self.join(effect.edge), effect.alive, payload, error
        if type(effect) is CollectItem:
            return GATHER, self.plan.gather_position[effect.edge], effect.mark
        if type(effect) is SkipNode:
            return SKIP, effect.node
        if type(effect) is FanOutItems:
            payload, error = encode_ref(effect.payload), encode_optional_ref(effect.error)
            return SPREAD, effect.node, effect.count, payload, error, *self.fan(effect.node)
        if type(effect) is UncollectedFailure:
            return UNCOLLECTED, effect.node, encode_error(effect.failure)
        assert type(effect) is FinishExecution
        return FINISH, encode_finish(effect)

    def join(self, edge: int) -> Instruction:
        """Return what an arrival carries of its join: node, place, edge, source, parties, rule, timeout."""
        found = self._joins.get(edge)
        if found is None:
            plan = self.plan
            node = plan.nodes[plan.dst[edge]]
            opens = 0 if node.opens == "all" else 1 if node.opens == "any" else node.opens
            place = node.in_edges.index(edge)
            facts = (edge, plan.src[edge], len(node.in_edges), opens, _timeout(node), node.timeout_from)
            found = self._joins[edge] = (ARRIVE, node.index, place, *facts)
        return found

    def fan(self, split: int) -> Instruction:
        """Return what a fan-out needs to start items: window, aggregator, initial effects of an item, its races."""
        found = self._fans.get(split)
        if found is None:
            plan = self.plan
            node = plan.nodes[split]
            window = NONE if node.window.size is None else node.window.size
            gathers: Instruction = (NONE, 0, NONE, "")
            if node.aggregator >= 0:
                join = plan.nodes[node.aggregator]
                gathers = (join.index, len(join.in_edges), _timeout(join), join.timeout_from)
            found = (window, *gathers, self._template(node), encode_races(plan, node.races))
            self._fans[split] = found
        return found

    def _template(self, node: NodePlan) -> list[Instruction]:
        """Return the initial effects of each item; the Lua function fills in payload and error."""
        found: list[Instruction] = []
        for each in self._effects(activate_edges(self.plan, node.success, START, None)):
            fixed_parts = {EMIT: 2, ARRIVE: 10}.get(each[0])
            found.append(each if fixed_parts is None else (*each[:fixed_parts], False, False))
        return found


def encode_races(plan: Plan, joins: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the joins whose timeout counts from the opening of their scope, with that timeout."""
    return [(join, plan.nodes[join].timeout or 0) for join in joins]


def _timeout(node: NodePlan) -> int:
    return NONE if node.timeout is None else node.timeout


def _or(value: Any) -> Any:
    return False if value is None else value


class CachedExecution(msgspec.Struct):
    """The record of an execution and its plan."""

    accepted: ExecutionRecord
    plan: Plan
    instructions: EncodedPlan


class ExecutionCache:
    """The executions that this process used last, bounded. Those that the process has loaded already are found there
    instead of in the journal."""

    def __init__(self, journal: Journal, plans: Plans, find: FindExecution = find_none) -> None:
        self._journal = journal
        self._plans = plans
        self._find = find
        self._known: OrderedDict[str, CachedExecution] = OrderedDict()
        self._instructions: OrderedDict[str, EncodedPlan] = OrderedDict()

    async def of(self, execution: str) -> CachedExecution:
        """Return an execution; raise UnknownExecutionError if it was never accepted."""
        found = self._known.get(execution)
        if found is not None:
            return found
        loaded = self._find(execution)
        if loaded is not None:
            return self.add(*loaded)
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise UnknownExecutionError(execution)
        return self.add(accepted, await self._plans(accepted.hash))

    async def accepted(self, execution: str) -> ExecutionRecord:
        """Return the record of an execution, whose node types this process may lack; raise UnknownExecutionError if it
        was never accepted."""
        if execution in self._known or self._find(execution) is not None:
            return (await self.of(execution)).accepted
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise UnknownExecutionError(execution)
        return accepted

    def add(self, accepted: ExecutionRecord, plan: Plan) -> CachedExecution:
        instructions = self._instructions.get(plan.hash)
        if instructions is None or instructions.plan is not plan:
            instructions = self._instructions[plan.hash] = EncodedPlan(plan)
        if len(self._instructions) > MAX_CACHED_EXECUTIONS // 100:
            self._instructions.popitem(last=False)
        known = self._known[accepted.id] = CachedExecution(accepted, plan, instructions)
        if len(self._known) > MAX_CACHED_EXECUTIONS:
            self._known.popitem(last=False)
        return known

    def forget(self, execution: str) -> None:
        self._known.pop(execution, None)
