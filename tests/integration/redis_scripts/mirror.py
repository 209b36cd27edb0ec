"""Runs one execution in the core and in the Redis scripts, and compares both after every step."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from redis import Redis
from redis.exceptions import ResponseError

from rune.adapters.redis.client import library
from rune.adapters.redis.encoding import (
    EncodedPlan,
    KeySpace,
    decode_listener,
    decode_timer,
    encode_finish,
    encode_path,
    encode_timer,
    token_fields,
    token_from_fields,
)
from rune.adapters.redis.snapshot import SnapshotContext, decode_state, encode_state, finish_of, read_fields
from rune.core.execution.control import (
    OVERDUE,
    change_pause,
    claim_verdict,
    deliver_signal,
    fire_timer,
    note_late,
    timers_of,
)
from rune.core.execution.decision import Applied, Decision, FinishExecution, Timer
from rune.core.execution.fact import PauseChanged, SignalReceived
from rune.core.execution.state import State
from rune.core.execution.token import Token
from rune.core.execution.transition import apply, start_execution
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan

NOW = 1_700_000_000_000
SERVER_RUN = "7a"
PACK = msgspec.msgpack.encode
KEYS = KeySpace("mirror")
LIBRARY = library("mirror")


def call_function(redis: Redis, name: str, keys: Sequence[str], *arguments: Any, late: int = -10_000) -> Any:
    """Call a function whose deadline was `late` ms ago, in the future by default."""
    deadline = time.time_ns() // 1_000_000 - late
    return redis.fcall(LIBRARY.function(name), len(keys), *keys, *arguments, deadline)


class MirrorMismatchError(AssertionError):
    """Script and core differ."""


class Mirror:
    """Applies every operation to core and scripts; answers and resulting states must be equal."""

    def __init__(
        self,
        redis: Redis,
        plan: Plan,
        state: State,
        timers: dict[Timer, int],
        now: int = NOW,
        name: str = "x",
    ) -> None:
        self.redis = redis
        self.plan = plan
        self.state = state
        self.timers = timers
        self.now = now
        self.finish: FinishExecution | None = None
        self.execution = name
        self.emitted: list[Token] = []
        self._instructions = EncodedPlan(plan)
        self.install()
        self.compare()

    @classmethod
    def start(cls, redis: Redis, plan: Plan, *, limits: Limits = LIMITS, name: str = "x") -> Mirror:
        """Start an execution."""
        state = State(limits=limits)
        applied = start_execution(plan, state, NOW)
        mirror = cls(redis, plan, state, dict(applied.armed), name=name)
        mirror.emitted += applied.emitted
        mirror.finish = applied.finish
        return mirror

    def install(self) -> None:
        """Write the state of the core as the state of the scripts."""
        keys = KEYS.of(self.execution)
        context = SnapshotContext(SERVER_RUN, None)
        made = encode_state(self.plan, self.state, context, list(self.timers.items()))
        fields = [each for pair in made.fields for each in pair]
        timers = [each for pair in made.timers for each in pair]
        self.redis.delete(*keys)
        self.redis.set(keys[5], "me")
        listeners = [each for member in made.listeners for each in (0, member.decode())]
        nearest = min(self.timers.values(), default="")
        parts = (PACK(fields), PACK(timers), PACK(listeners), PACK([]), nearest, "")
        assert self.run("install", "me", 1000, "BOTH", *parts) == 1

    def run(self, name: str, *more: Any) -> Any:
        keys = KEYS.of(self.execution)
        given = (SERVER_RUN, self.now, self.execution, *more)
        try:
            return call_function(self.redis, name, keys, *given)
        except ResponseError as error:
            if "Function not found" not in str(error):
                raise
            self.redis.function_load(LIBRARY.text.decode(), replace=True)
            return call_function(self.redis, name, keys, *given)

    def fields(self) -> dict[str, Any]:
        found: Any = self.redis.hgetall(KEYS.of(self.execution)[0])
        return read_fields(found)

    def read_state(self) -> State:
        return decode_state(self.plan, self.fields())

    def decide(self, decision: Decision) -> Applied:
        before = copy.deepcopy(self.state)
        stored = self.redis.hgetall(KEYS.of(self.execution)[0])
        applied = apply(self.plan, self.state, decision)
        answer = self.run("apply", self._instructions.packed([decision]))
        if not applied.known:
            self._expect(
                answer == b"BEHIND", f"{decision} is unknown to the core, the script answers {answer!r}"
            )
            self._expect(self.state == before, "the core changed its state on an unknown decision")
            self._expect(
                self.redis.hgetall(KEYS.of(self.execution)[0]) == stored,
                "the rejected decision changed the state",
            )
            return applied
        self._check(applied, answer, str(decision))
        return applied

    def change_pause(self, fact: PauseChanged) -> Applied:
        applied = change_pause(self.plan, self.state, fact)
        self._check(applied, self.run("control", PACK((fact.at, fact.number, fact.paused))), str(fact))
        return applied

    def note_late(self) -> Applied:
        applied = note_late(self.state)
        self._check(applied, self.run("control", PACK((self.now, "late"))), "late")
        return applied

    def signal(self, fact: SignalReceived) -> Applied:
        applied = deliver_signal(self.plan, self.state, fact)
        path = False if fact.path is None else encode_path(fact.path)
        packed = PACK((fact.at, fact.id, fact.name, path))
        self._check(applied, self.run("signal", packed), str(fact))
        return applied

    def fire(self, timer: Timer) -> Applied:
        """Fire the timer that is due first, at its time."""
        due = self.timers.pop(timer)
        self.now = max(self.now, due)
        applied = fire_timer(self.plan, self.state, timer, self.now)
        overdue = encode_finish(FinishExecution("failed", OVERDUE))
        answer = msgspec.msgpack.decode(self.run("fire", 1, "", "", "", overdue, 1000))
        self._expect(len(answer[5]) == 1, f"{timer} does not fire: {answer}")
        fired, _, emitted, finish, failed = answer[5][0]
        self._expect(decode_timer(fired) == timer, f"{fired} instead of {timer}")
        if applied.late or (
            timer.kind in ("join", "finish", "deadline") and (applied.emitted or applied.finish)
        ):
            applied.armed.append((timer, self.now + 7_500))  # until the emitted token is applied
        self._check(applied, PACK(("ok", 0, emitted, finish, failed, False)), str(timer))
        return applied

    def run_chores(self) -> list[list[Any]]:
        """Run the remaining chunks of an operation on many tokens; return what each emits."""
        found: list[list[Any]] = []
        while self.redis.zcount(KEYS.of(self.execution)[1], -1, -1):
            fired = msgspec.msgpack.decode(self.run("fire", 1, "", "", "", "{}", 1_000))[5]
            found += [each[2] for each in fired]
        return found

    def claim(self, token: Token, *, leased: bool = False) -> str:
        verdict = claim_verdict(self.plan, self.state, token, self.now)
        want = (
            token.node,
            encode_path(token.path),
            token.fate.value,
            token.attempt,
            token.resumed,
            "me",
            leased,
        )
        answer = msgspec.msgpack.decode(self.run("claim", PACK((*want, token_fields(token)))))
        found = answer[5][0]
        if found not in ("held", "held back"):
            self._expect(found == verdict, f"{token} core: {verdict}, script: {found}")
        self.compare()
        return verdict

    def first_timer(self) -> Timer | None:
        """Return the timer that fires next; for equal times, the one that the server sorts first."""
        if not self.timers:
            return None
        return min(self.timers, key=lambda each: (self.timers[each], encode_timer(each)))

    def _check(self, applied: Applied, answer: bytes, what: str) -> None:
        self._expect(answer not in (b"FOLD", b"BEHIND"), f"{what}: {answer!r}")
        _, _, emitted, finish, failed, _ = msgspec.msgpack.decode(answer)
        emitted = [*emitted, *(each for batch in self.run_chores() for each in batch)]
        here = sorted(map(repr, applied.emitted))
        there = sorted(repr(token_from_fields(each)) for each in emitted)
        self._expect(here == there, f"{what}: core emits {here}\n script {there}")
        ends = finish_of(self.plan, finish, failed) if finish else None
        self._expect(ends == applied.finish, f"{what}: core ends {applied.finish}, script {ends}")
        for timer in applied.disarmed:
            self.timers.pop(timer, None)
        self.timers.update(applied.armed)
        self.emitted += applied.emitted
        self.finish = self.finish or applied.finish
        self.compare()

    def compare(self) -> None:
        there = self.read_state()
        if there != self.state:
            raise MirrorMismatchError(_difference(self.state, there))
        self._compare_timers()
        self._compare_listeners()

    def _compare_timers(self) -> None:
        """A timer that the core armed and disarmed in one operation may remain in Redis; it is ignored."""
        found: Any = self.redis.zrange(KEYS.of(self.execution)[1], 0, -1, withscores=True)
        there = {decode_timer(name.decode()): int(due) for name, due in found}
        if there == self.timers:
            return
        needed = dict(timers_of(self.plan, self.state))
        spurious = {timer for timer in self.timers if timer not in there and timer not in needed}
        for timer in spurious:
            del self.timers[timer]
        self._expect(there == self.timers, f"timers here {self.timers}\n there {there}")

    def _compare_listeners(self) -> None:
        found: Any = self.redis.zrangebylex(KEYS.of(self.execution)[2], b"[n", b"(o")
        there = {decode_listener(each) for each in found}
        here = {
            (name, since, path, node)
            for name, waiting in self.state.waiting_for_signal.items()
            for (path, node), since in waiting.items()
        }
        self._expect(here == there, f"listeners here {here}, there {there}")

    def _expect(self, holds: bool, message: str) -> None:
        if not holds:
            raise MirrorMismatchError(message)


def _difference(here: State, there: State) -> str:
    lines = []
    for name in State.__struct_fields__:
        a, b = getattr(here, name), getattr(there, name)
        if name == "scopes":
            for path in sorted(a.keys() | b.keys()):
                if a.get(path) != b.get(path):
                    lines.append(f"scope {path}:\n  core   {a.get(path)}\n  script {b.get(path)}")
        elif a != b:
            lines.append(f"{name}: core {a}, script {b}")
    return "\n".join(lines)
