"""Each Redis function alone: on empty keys, repeated, with another server run, out of order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from redis.exceptions import ResponseError

from rune.adapters.redis.client import VERBS
from rune.adapters.redis.encoding import token_fields
from rune.core.execution.outcome import Output, Suspend
from rune.core.execution.step import step
from rune.core.execution.token import Token
from tests.integration.redis_scripts.mirror import KEYS, LIBRARY, NOW, PACK, SERVER_RUN, Mirror, call_function
from tests.support.plans import node, plan

CHAIN = plan("start -> a -> b -> c")
LIMITED = plan("start -> a, start -> b", settings={"max_parallel": 1})
TOKEN = Token(CHAIN.index["a"])
NO_STREAMS = ("", "", "")
OTHER = "8b"
MARK = KEYS.activated("x").encode()


def claim_of(token: Token, *, leased: bool = True) -> bytes:
    fate = token.fate.value
    return PACK((token.node, "", fate, token.attempt, token.resumed, "me", leased, token_fields(token)))


def packed(mirror: Mirror, *tokens: Token) -> bytes:
    return mirror._instructions.packed([step(mirror.plan, each, Output(None), mirror.now) for each in tokens])


DECISIONS = PACK([(1, "", NOW, "result", ("ok", -1, "", -1, False, False), ())])
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "advance": (DECISIONS, *NO_STREAMS, PACK((2, "", "me"))),
    "apply": (DECISIONS, *NO_STREAMS),
    "claim": (claim_of(TOKEN),),
    "control": (PACK((NOW, 1, True)),),
    "end": (),
    "fire": (10, *NO_STREAMS, "{}", 1000),
    "fold": ("me", 1000, 0),
    "install": ("me", 1000, "BOTH", PACK([]), PACK([]), PACK([]), PACK([]), "", ""),
    "renew": (1, "", 1),
    "signal": (PACK((NOW, "s", "go", False)),),
    "sweep": (PACK([(1, "")]),),
    "release": ("me",),
}
WITHOUT_STATE = {
    "advance": b"FOLD",
    "apply": b"FOLD",
    "claim": b"FOLD",
    "control": b"FOLD",
    "signal": b"FOLD",
    "renew": -1,
    "install": 0,
}


def call(redis: Any, name: str, *arguments: Any, server_run: str = SERVER_RUN, now: int = NOW) -> Any:
    keys = KEYS.of("x")
    redis.function_load(LIBRARY.text.decode(), replace=True)
    return call_function(redis, name, keys, server_run, now, "x", *arguments)


def dump_keys(redis: Any) -> dict[bytes, Any]:
    return {key: redis.dump(key) for key in redis.keys("mirror:*")}


def test_every_script_of_an_execution_is_covered() -> None:
    assert set(ARGUMENTS) == set(VERBS) - {"dead_letter", "delay", "forget", "retry", "sent", "server_run"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_script_on_empty_keys_creates_no_state(redis: Any, name: str) -> None:
    for _ in range(2):
        answer = call(redis, name, *ARGUMENTS[name])
        assert answer == WITHOUT_STATE.get(name, answer)
    left = {"fold": {KEYS.of("x")[5].encode()}, "sweep": {KEYS.of("x")[3].encode()}, "end": {MARK}}
    assert set(redis.keys("mirror:*")) == left.get(name, set()), (
        "fold keeps its lease, sweep a due entry, end a mark"
    )


@pytest.mark.parametrize("name", sorted(WITHOUT_STATE.keys() - {"install"}))
def test_state_of_other_server_run_is_not_changed(redis: Any, name: str) -> None:
    Mirror.start(redis, CHAIN)
    before = dump_keys(redis)
    arguments = ARGUMENTS[name]
    assert call(redis, name, *arguments, server_run=OTHER) == WITHOUT_STATE[name]
    assert dump_keys(redis) == before


@pytest.mark.parametrize("late", [1, 3_600_000, -40_000, -3_600_000])
@pytest.mark.parametrize("name", VERBS)
def test_function_past_its_deadline_changes_nothing(redis: Any, name: str, late: int) -> None:
    """A deadline that is far ahead is from another clock, and says nothing about the age of the call."""
    Mirror.start(redis, CHAIN)
    before = dump_keys(redis)
    with pytest.raises(ResponseError, match=r"LATE \d{13}"):
        call_function(redis, name, KEYS.of("x"), SERVER_RUN, NOW, "x", *ARGUMENTS.get(name, ()), late=late)
    assert dump_keys(redis) == before


def test_repeated_decision_changes_nothing(redis: Any) -> None:
    mirror = Mirror.start(redis, CHAIN)
    decision = packed(mirror, TOKEN)
    assert len(msgspec.msgpack.decode(mirror.run("apply", decision))[2]) == 1
    before = mirror.fields()
    assert msgspec.msgpack.decode(mirror.run("apply", decision))[2] == []
    assert mirror.fields() == before


def test_decisions_out_of_order_change_nothing(redis: Any) -> None:
    """The second decision is unknown to the state, so the first one is not applied either."""
    mirror = Mirror.start(redis, CHAIN)
    before = mirror.fields()
    b, c = Token(CHAIN.index["b"]), Token(CHAIN.index["c"])
    assert mirror.run("apply", packed(mirror, b)) == b"BEHIND"
    assert mirror.run("apply", packed(mirror, TOKEN, c)) == b"BEHIND"
    assert mirror.fields() == before
    answer = msgspec.msgpack.decode(mirror.run("apply", packed(mirror, TOKEN, b, c)))
    assert answer[3] == '{"status":"completed"}'


def test_lease_is_exclusive_until_it_expires(redis: Any) -> None:
    mirror = Mirror.start(redis, CHAIN)

    def claim() -> list[Any]:
        found: list[Any] = msgspec.msgpack.decode(mirror.run("claim", claim_of(TOKEN)))[5]
        return found

    first = claim()
    assert (first[0], claim()[0]) == ("run", "held")
    assert mirror.run("renew", TOKEN.node, "", first[2]) == 1
    assert mirror.run("renew", TOKEN.node, "", first[2] - 1) == 0
    mirror.now += 9_001
    assert mirror.run("renew", TOKEN.node, "", first[2]) == 0
    second = claim()
    assert (second[0], second[3]) == ("run", True)
    assert second[2] > first[2]


def test_completed_token_is_removed_from_lease_index(redis: Any) -> None:
    mirror = Mirror.start(redis, CHAIN)
    held = KEYS.of("x")[4]
    mirror.run("claim", claim_of(TOKEN))
    assert redis.zcard(held) == 1
    mirror.run("apply", packed(mirror, TOKEN))
    assert redis.zrange(held, 0, -1) == [f"x|{CHAIN.index['b']}|".encode()], (
        "the emitted token, until it is claimed"
    )


def test_sweep_finds_unclaimed_token(redis: Any) -> None:
    mirror = Mirror.start(redis, CHAIN)
    mirror.run("apply", packed(mirror, TOKEN))
    ((_, when),) = redis.zrange(KEYS.of("x")[4], 0, -1, withscores=True)
    mirror.now = int(when)
    found = msgspec.msgpack.decode(mirror.run("sweep", PACK([(CHAIN.index["b"], "")])))
    assert [each[0] for each in found[2]] == [CHAIN.index["b"]]
    mirror.run("apply", packed(mirror, Token(CHAIN.index["b"])))
    assert msgspec.msgpack.decode(mirror.run("sweep", PACK([(CHAIN.index["b"], "")])))[2] == []


def test_apply_with_streams_sends_and_acks(redis: Any) -> None:
    mirror = Mirror.start(redis, CHAIN)
    stream = KEYS.stream(KEYS.partition("x"), "default", "normal")
    redis.xgroup_create(stream, "workers", mkstream=True)
    entry = redis.xadd(stream, {"x": "x", "t": "a"})
    redis.xreadgroup("workers", "me", {stream: ">"})
    keys = (*KEYS.of("x")[:5], stream, stream)
    given = (SERVER_RUN, NOW, "x", packed(mirror, TOKEN, Token(CHAIN.index["b"])), "workers", "", entry)
    for _ in range(2):
        answer = msgspec.msgpack.decode(call_function(redis, "apply", keys, *given))
        assert answer[2] == [], "the function sends everything itself"
    ((_, fields),) = redis.xrange(stream)
    sent = msgspec.msgpack.decode(fields[b"t"])
    assert (fields[b"x"], sent[0]) == (b"x", CHAIN.index["c"]), "tokens decided in the same call are not sent"
    assert redis.xpending(stream, "workers")["pending"] == 0


def test_waiting_execution_keeps_only_its_due_time(redis: Any) -> None:
    mirror = Mirror.start(redis, plan("start -> w", w=node("wait", {"amount": 1, "unit": "hours"})))
    fields = KEYS.of("x")[0]
    meta = msgspec.msgpack.decode(redis.hget(fields, "!"))
    redis.hset(fields, "!", PACK({**meta, "np": 2_000}))
    token = Token(mirror.plan.index["w"])
    decision = step(mirror.plan, token, Suspend(until=NOW + 3_600_000), NOW)
    mirror.run("apply", mirror._instructions.packed([decision]))
    assert set(redis.keys("mirror:*")) - {MARK} == {KEYS.of("x")[3].encode()}
    assert redis.zrange(KEYS.of("x")[3], 0, -1, withscores=True) == [(b"x", NOW + 3_600_000)]
    mirror.now = NOW + 3_600_000
    assert mirror.run("fire", 1, *NO_STREAMS, "{}", 1_000) == b"FOLD"
    assert redis.zscore(KEYS.of("x")[3], "x") == mirror.now + 1_000, "due again if the folding process dies"


def test_fold_is_exclusive_and_revoked_by_end(redis: Any) -> None:
    assert int(call(redis, "fold", "me", 1_000, 0)) == NOW
    assert call(redis, "fold", "other", 1_000, 0) == b"HELD"
    parts = (PACK(["!", {"i": SERVER_RUN}]), PACK([]), PACK([]), PACK([]), "", "")
    assert call(redis, "install", "other", 1_000, "BOTH", *parts) == 0
    assert call(redis, "install", "me", 1_000, "FIRST", *parts) == 1
    assert not redis.exists(KEYS.of("x")[0]), "not visible before the last piece"
    call(redis, "end")
    assert call(redis, "install", "me", 1_000, "LAST", *parts) == 0
    assert redis.keys("mirror:*") == [MARK]


def test_last_install_piece_publishes_state(redis: Any) -> None:
    call(redis, "fold", "me", 1_000, 0)
    first = (PACK(["!", {"i": SERVER_RUN, "f": "x"}]), PACK([5, "f|-1||0"]), PACK([]), PACK([]), "", "")
    last = (PACK(["s", {"c": 0, "a": 0, "o": 1}]), PACK([7, "d|-1||0"]), PACK([]), PACK([]), 5, "")
    assert call(redis, "install", "me", 1_000, "FIRST", *first) == 1
    assert call(redis, "install", "me", 1_000, "LAST", *last) == 1
    assert call(redis, "fold", "other", 1_000, 0) == b"THERE"
    assert (redis.hlen(KEYS.of("x")[0]), redis.zcard(KEYS.of("x")[1])) == (2, 2)
    assert redis.zscore(KEYS.of("x")[3], "x") == 5


def test_server_run_number_is_shared_and_grows(redis: Any) -> None:
    redis.function_load(LIBRARY.text.decode(), replace=True)

    def number(run: str) -> int:
        return int(call_function(redis, "server_run", ["mirror:i", "mirror:journal"], run, "", ""))

    first = number("aa")
    assert number("aa") == first
    second = number("bb")
    assert second > first
    redis.set("mirror:i", f"cc {second + 10**6}")
    assert number("aa") == second + 10**6 + 1


def test_delayed_token_is_moved_once(redis: Any) -> None:
    redis.function_load(LIBRARY.text.decode(), replace=True)
    keys = ("mirror:{p00}:later", "mirror:{p00}:one", "mirror:{p00}:two", "mirror:{p00}:dead")
    redis.zadd(keys[0], {b"3 17 3 x y\x00token": NOW, b"2 18 1 ztoken": NOW + 1})
    moved = [call_function(redis, "delay", keys, 0, now, 10, 100) for now in (NOW - 1, NOW, NOW, NOW + 1)]
    assert moved == [0, 1, 0, 1]
    ((_, two),), ((_, one),) = redis.xrange(keys[2]), redis.xrange(keys[1])
    assert (two, one) == ({b"x": b"x y", b"t": b"\x00token"}, {b"x": b"z", b"t": b"token"})


def test_malformed_delayed_tokens_become_dead_letters(redis: Any) -> None:
    redis.function_load(LIBRARY.text.decode(), replace=True)
    keys = ("mirror:{p00}:later", "mirror:{p00}:one", "mirror:{p00}:two", "mirror:{p00}:dead")
    redis.zadd(keys[0], {b"noise": NOW, b"99 1 1 ztoken": NOW, b"4 1 1 ztoken": NOW, b"2 18 1 ztoken": NOW})
    call_function(redis, "delay", keys, 0, NOW, 10, 100)
    assert (redis.zcard(keys[0]), redis.xlen(keys[1]), redis.xlen(keys[3])) == (0, 1, 3)


def test_token_over_limit_is_held_back_once(redis: Any) -> None:
    mirror = Mirror.start(redis, LIMITED)
    a, b = mirror.emitted
    verdicts = [msgspec.msgpack.decode(mirror.run("claim", claim_of(each)))[5][0] for each in (a, b, b)]
    assert verdicts == ["run", "held back", "held back"]
    answer = msgspec.msgpack.decode(mirror.run("apply", packed(mirror, a)))
    assert [each[0] for each in answer[2]] == [b.node]
