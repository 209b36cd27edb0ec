"""Each script alone: on empty keys, twice, of another incarnation, out of order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.adapters.redis.client import VERBS, function, library
from rune.adapters.redis.encoding import token_fields
from rune.core.execution.outcome import Output, Suspend
from rune.core.execution.step import step
from rune.core.execution.token import Token
from tests.integration.redis_scripts.mirror import INCARNATION, KEYS, NOW, PACK, Mirror
from tests.unit.core.plans import node, plan

CHAIN = plan("start -> a -> b -> c")
CROWD = plan("start -> a, start -> b", settings={"max_parallel": 1})
TOKEN = Token(CHAIN.index["a"])
NOTHING_SENT = ("", "", "")
OTHER = "8b"


def claim_of(token: Token, *, leased: bool = True) -> bytes:
    fate = token.fate.value
    return PACK((token.node, "", fate, token.attempt, token.resumed, "me", leased, token_fields(token)))


def packed(mirror: Mirror, *tokens: Token) -> bytes:
    return mirror._instructions.packed([step(mirror.plan, each, Output(None), mirror.now) for each in tokens])


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "apply": (PACK([(1, "", NOW, "result", ("ok", -1, "", -1, False, False), ())]), *NOTHING_SENT),
    "claim": (claim_of(TOKEN),),
    "control": (PACK((NOW, 1, True)),),
    "end": (),
    "fire": (10, *NOTHING_SENT, "{}", 1000),
    "fold": ("me", 1000, 0),
    "install": ("me", 1000, "BOTH", PACK([]), PACK([]), PACK([]), PACK([]), ""),
    "renew": (1, "", 1),
    "signal": (PACK((NOW, "s", "go", False)),),
    "sweep": (PACK([(1, "")]),),
    "release": ("me",),
}
WITHOUT_STATE = {
    "apply": b"FOLD",
    "claim": b"FOLD",
    "control": b"FOLD",
    "signal": b"FOLD",
    "renew": 0,
    "install": 0,
}


def call(redis: Any, name: str, *arguments: Any, incarnation: str = INCARNATION, now: int = NOW) -> Any:
    keys = KEYS.of("x")
    redis.function_load(library()[1].decode(), replace=True)
    return redis.fcall(function(name), len(keys), *keys, incarnation, now, "x", *arguments)


def kept(redis: Any) -> dict[bytes, Any]:
    return {key: redis.dump(key) for key in redis.keys("mirror:*")}


def test_every_verb_of_an_execution_is_tried_here() -> None:
    assert set(ARGUMENTS) == set(VERBS) - {"delay", "forget", "server_run"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_on_empty_keys_nothing_is_made_up(redis: Any, name: str) -> None:
    for _ in range(2):
        answer = call(redis, name, *ARGUMENTS[name])
        assert answer == WITHOUT_STATE.get(name, answer)
    left = {"fold": {KEYS.of("x")[5].encode()}, "sweep": {KEYS.of("x")[3].encode()}}
    assert set(redis.keys("mirror:*")) == left.get(name, set()), (
        "a fold its lease, a sweep that somebody must look"
    )


@pytest.mark.parametrize("name", sorted(WITHOUT_STATE.keys() - {"install"}))
def test_a_state_of_another_run_of_the_server_is_left_alone(redis: Any, name: str) -> None:
    Mirror.begun(redis, CHAIN)
    before = kept(redis)
    arguments = ARGUMENTS[name]
    assert call(redis, name, *arguments, incarnation=OTHER) == WITHOUT_STATE[name]
    assert kept(redis) == before


def test_a_decision_twice_is_one(redis: Any) -> None:
    mirror = Mirror.begun(redis, CHAIN)
    decision = packed(mirror, TOKEN)
    assert len(msgspec.msgpack.decode(mirror.run("apply", decision))[2]) == 1
    before = mirror.fields()
    assert msgspec.msgpack.decode(mirror.run("apply", decision))[2] == []
    assert mirror.fields() == before


def test_decisions_out_of_order_change_nothing(redis: Any) -> None:
    """The second is news to the state, so the first, which is not, is not applied either."""
    mirror = Mirror.begun(redis, CHAIN)
    before = mirror.fields()
    b, c = Token(CHAIN.index["b"]), Token(CHAIN.index["c"])
    assert mirror.run("apply", packed(mirror, b)) == b"BEHIND"
    assert mirror.run("apply", packed(mirror, TOKEN, c)) == b"BEHIND"
    assert mirror.fields() == before
    answer = msgspec.msgpack.decode(mirror.run("apply", packed(mirror, TOKEN, b, c)))
    assert answer[3] == '{"status":"completed"}'


def test_a_lease_is_one_persons_until_it_runs_out(redis: Any) -> None:
    mirror = Mirror.begun(redis, CHAIN)

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


def test_whoever_is_done_is_looked_after_no_longer(redis: Any) -> None:
    mirror = Mirror.begun(redis, CHAIN)
    held = KEYS.of("x")[4]
    mirror.run("claim", claim_of(TOKEN))
    assert redis.zcard(held) == 1
    mirror.run("apply", packed(mirror, TOKEN))
    assert redis.zrange(held, 0, -1) == [f"x|{CHAIN.index['b']}|".encode()], (
        "who was sent, until it is claimed"
    )


def test_the_sweeper_finds_what_was_never_claimed(redis: Any) -> None:
    mirror = Mirror.begun(redis, CHAIN)
    mirror.run("apply", packed(mirror, TOKEN))
    ((_, when),) = redis.zrange(KEYS.of("x")[4], 0, -1, withscores=True)
    mirror.now = int(when)
    found = msgspec.msgpack.decode(mirror.run("sweep", PACK([(CHAIN.index["b"], "")])))
    assert [each[0] for each in found[2]] == [CHAIN.index["b"]]
    mirror.run("apply", packed(mirror, Token(CHAIN.index["b"])))
    assert msgspec.msgpack.decode(mirror.run("sweep", PACK([(CHAIN.index["b"], "")])))[2] == []


def test_with_streams_the_act_itself_sends_and_lets_go(redis: Any) -> None:
    mirror = Mirror.begun(redis, CHAIN)
    stream = KEYS.stream(KEYS.partition("x"), "default", "normal")
    redis.xgroup_create(stream, "workers", mkstream=True)
    entry = redis.xadd(stream, {"x": "x", "t": "a"})
    redis.xreadgroup("workers", "me", {stream: ">"})
    keys = (*KEYS.of("x")[:5], stream, stream)
    given = (INCARNATION, NOW, "x", packed(mirror, TOKEN, Token(CHAIN.index["b"])), "workers", "", entry)
    for _ in range(2):
        answer = msgspec.msgpack.decode(redis.fcall(function("apply"), len(keys), *keys, *given))
        assert answer[2] == [], "nothing is left to be sent by others"
    ((_, fields),) = redis.xrange(stream)
    sent = msgspec.msgpack.decode(fields[b"t"])
    assert (fields[b"x"], sent[0]) == (b"x", CHAIN.index["c"]), (
        "what was decided in the same act does not travel"
    )
    assert redis.xpending(stream, "workers")["pending"] == 0


def test_an_execution_that_only_waits_leaves_nothing_but_when_it_is_due(redis: Any) -> None:
    mirror = Mirror.begun(redis, plan("start -> w", w=node("wait", {"amount": 1, "unit": "hours"})))
    fields = KEYS.of("x")[0]
    meta = msgspec.msgpack.decode(redis.hget(fields, "!"))
    redis.hset(fields, "!", PACK({**meta, "np": 2_000}))
    token = Token(mirror.plan.index["w"])
    decision = step(mirror.plan, token, Suspend(until=NOW + 3_600_000), NOW)
    mirror.run("apply", mirror._instructions.packed([decision]))
    assert set(redis.keys("mirror:*")) == {KEYS.of("x")[3].encode()}
    assert redis.zrange(KEYS.of("x")[3], 0, -1, withscores=True) == [(b"x", NOW + 3_600_000)]
    mirror.now = NOW + 3_600_000
    assert mirror.run("fire", 1, *NOTHING_SENT, "{}", 1_000) == b"FOLD"
    assert redis.zscore(KEYS.of("x")[3], "x") == mirror.now + 1_000, "it rings again if whoever folds dies"


def test_only_one_folds_at_a_time_and_an_end_takes_the_right_away(redis: Any) -> None:
    assert int(call(redis, "fold", "me", 1_000, 0)) == NOW
    assert call(redis, "fold", "other", 1_000, 0) == b"HELD"
    parts = (PACK(["!", {"i": INCARNATION}]), PACK([]), PACK([]), PACK([]), "")
    assert call(redis, "install", "other", 1_000, "BOTH", *parts) == 0
    assert call(redis, "install", "me", 1_000, "FIRST", *parts) == 1
    assert not redis.exists(KEYS.of("x")[0]), "hidden until the last piece"
    call(redis, "end")
    assert call(redis, "install", "me", 1_000, "LAST", *parts) == 0
    assert not redis.keys("mirror:*")


def test_the_last_piece_makes_it_the_state(redis: Any) -> None:
    call(redis, "fold", "me", 1_000, 0)
    first = (PACK(["!", {"i": INCARNATION, "f": "x"}]), PACK([5, "f|-1||0"]), PACK([]), PACK([]), "")
    last = (PACK(["s", {"c": 0, "a": 0, "o": 1}]), PACK([7, "d|-1||0"]), PACK([]), PACK([]), 5)
    assert call(redis, "install", "me", 1_000, "FIRST", *first) == 1
    assert call(redis, "install", "me", 1_000, "LAST", *last) == 1
    assert call(redis, "fold", "other", 1_000, 0) == b"THERE"
    assert (redis.hlen(KEYS.of("x")[0]), redis.zcard(KEYS.of("x")[1])) == (2, 2)
    assert redis.zscore(KEYS.of("x")[3], "x") == 5


def test_the_number_of_a_run_is_everybodys_and_grows(redis: Any) -> None:
    redis.function_load(library()[1].decode(), replace=True)

    def number(run: str) -> int:
        return int(redis.fcall(function("server_run"), 1, "mirror:i", run))

    first = number("aa")
    assert number("aa") == first
    second = number("bb")
    assert second > first
    redis.set("mirror:i", f"cc {second + 10**6}")
    assert number("aa") == second + 10**6 + 1


def test_what_was_put_off_comes_once(redis: Any) -> None:
    redis.function_load(library()[1].decode(), replace=True)
    keys = ("mirror:{p00}:later", "mirror:{p00}:one", "mirror:{p00}:two")
    redis.zadd(keys[0], {b"3 17 3 x y\x00token": NOW, b"2 18 1 ztoken": NOW + 1})
    moved = [
        redis.fcall(function("delay"), len(keys), *keys, 0, now, 10) for now in (NOW - 1, NOW, NOW, NOW + 1)
    ]
    assert moved == [0, 1, 0, 1]
    ((_, two),), ((_, one),) = redis.xrange(keys[2]), redis.xrange(keys[1])
    assert (two, one) == ({b"x": b"x y", b"t": b"\x00token"}, {b"x": b"z", b"t": b"token"})


def test_who_is_one_too_many_waits_once(redis: Any) -> None:
    mirror = Mirror.begun(redis, CROWD)
    a, b = mirror.emitted
    verdicts = [msgspec.msgpack.decode(mirror.run("claim", claim_of(each)))[5][0] for each in (a, b, b)]
    assert verdicts == ["run", "held back", "held back"]
    answer = msgspec.msgpack.decode(mirror.run("apply", packed(mirror, a)))
    assert [each[0] for each in answer[2]] == [b.node]
