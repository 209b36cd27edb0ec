"""The outlet: with streams as the queue, an act itself sends what it emits and lets go what brought its token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rune.adapters.redis.keys import Keys
from rune.adapters.redis.known import Known
from rune.adapters.redis.streams import DEFAULT, GROUP, Entry
from rune.adapters.redis.texts import token_bytes
from rune.core.effect import Decision
from rune.core.fact import Choice
from rune.core.lineage import Path
from rune.core.token import Token
from rune.ports.queue import LANES, lane_of

OWN = 5  # keys of an execution that scripts take before those of streams
FIRST_NAMED = 8
FOLDED = 8  # the first key behind those that folding takes

NOTHING_SENT = ("", "", "")


class Hands(Protocol):
    """Who holds the entries that were delivered here."""

    def in_hand(self, execution: str, node: int, path: Path) -> Entry | None:
        """The entry of a token, if it was delivered here and is not let go."""

    def let_go(self, entry: Entry) -> None:
        """It was let go elsewhere."""


class Outlet:
    """Where the tokens of executions go."""

    def __init__(self, keys: Keys, hands: Hands | None = None) -> None:
        self._keys = keys
        self._hands = hands
        self._routes: dict[str, tuple[tuple[str, ...], bytes | str]] = {}

    def entry(self, execution: str, decisions: Sequence[Decision]) -> Entry | None:
        """What brought the token of the first decision. A choice comes before its token runs, which goes on."""
        first = decisions[0]
        if self._hands is None or type(first.fact) is Choice:
            return None
        return self._hands.in_hand(execution, first.node, first.path)

    def let_go(self, entry: Entry | None) -> None:
        if entry is not None and self._hands is not None:
            self._hands.let_go(entry)

    def keys(self, known: Known, entry: Entry | None = None) -> tuple[str, ...]:
        """The keys of a script that sends."""
        execution = known.accepted.id
        (most, *named), items = self._streams(known)
        served = most if entry is None else entry.stream
        return (*self._keys.of(execution)[:OWN], most, served, *named, *items)

    def _streams(self, known: Known) -> tuple[list[str], list[str]]:
        """Those of most tokens and of named queues: for an execution itself, and for items of its fan-outs."""
        part, names = self._keys.partition(known.accepted.id), (DEFAULT, *self._named(known)[0])
        own, below = (LANES[lane_of(known.accepted.priority, items=each)] for each in (False, True))
        return (
            [self._keys.stream(part, each, own) for each in names],
            [self._keys.stream(part, each, below) for each in names],
        )

    def arguments(self, known: Known, entry: Entry | None = None, *more: Entry) -> tuple[str | bytes, ...]:
        first = b"" if entry is None else entry.id
        if more:
            return GROUP, self._named(known)[1], first, *(each.id for each in more)
        return GROUP, self._named(known)[1], first

    def opening(self, known: Known, tokens: Sequence[Token]) -> tuple[tuple[str, ...], list[int | bytes]]:
        """The streams of an execution as a script takes them behind the keys of a fold, and what goes into them."""
        own, items = self._streams(known)
        names = (DEFAULT, *self._named(known)[0])
        sent: list[int | bytes] = []
        for token in tokens:
            queue = known.plan.nodes[token.node].node.queue or DEFAULT
            place = names.index(queue) + (len(own) if token.path else 0)
            sent += (FOLDED + place, token_bytes(token))
        return (*own, *items), sent

    def _named(self, known: Known) -> tuple[tuple[str, ...], bytes | str]:
        found = self._routes.get(known.plan.hash)
        if found is None:
            named = {
                each.index: each.node.queue
                for each in known.plan.nodes
                if each.node.queue not in (None, DEFAULT)
            }
            queues = tuple(sorted({str(each) for each in named.values()}))
            places = {node: FIRST_NAMED + queues.index(str(queue)) for node, queue in named.items()}
            found = self._routes[known.plan.hash] = (queues, msgspec.msgpack.encode(places) if places else "")
        return found
