"""Roll-outs: an alias that sends a part of the starts to other versions than its own.

A roll-out is kept in the library as a document under a name that no workflow can have, so it is as durable, and has as
much of a past, as the versions that it names. It holds while its alias points where it did when it was made: moving
the alias, by whatever means, ends it.
"""

from __future__ import annotations

import hashlib

import msgspec

from rune.errors import RuneError
from rune.ids import fraction
from rune.ports.clock import Clock
from rune.ports.library import LATEST, Library, UnknownWorkflow, number_of
from rune.runtime.reader import Reader

MARK = "@"
"""What the names of roll-outs have and those of workflows have not."""


class BadWeights(RuneError):
    """Weights that make no roll-out."""

    code = "BAD_WEIGHTS"


class Rollout(msgspec.Struct, frozen=True):
    """Percent of the starts by version; the rest goes to the version that the alias points at."""

    name: str
    base: int
    weights: dict[int, float]


_DECODER = msgspec.json.Decoder(Rollout)


class Rollouts:
    """Weights of aliases."""

    def __init__(self, writing: Library, reader: Reader, clock: Clock) -> None:
        self._writing = writing
        self._reading = reader.library
        self._definition = reader.definition
        self._clock = clock

    async def put(self, workflow: str, alias: str, weights: dict[int, float]) -> Rollout:
        """Begin, change or, without weights, end a roll-out of an alias that is there."""
        self.check(alias, weights)
        base = await self._writing.find(workflow, alias)
        for number in weights:
            await self._writing.find(workflow, str(number))
        shown = ", ".join(f"{share:g} % to {number}" for number, share in sorted(weights.items())) or "ended"
        rollout = Rollout(f"roll-out of {workflow} {alias}: {shown}", base.number, weights)
        data = msgspec.json.encode(rollout)
        hash = hashlib.sha256(data).hexdigest()
        await self._writing.deploy(data, hash, f"{workflow}{MARK}{alias}", self._clock.now())
        return rollout

    def check(self, alias: str, weights: dict[int, float]) -> None:
        """Refuse weights that make no roll-out."""
        if alias == LATEST and weights:
            raise BadWeights("`latest` is where the newest version is; weigh another alias")
        if any(not 0 < share <= 100 for share in weights.values()) or sum(weights.values()) > 100:
            raise BadWeights("weights are percent: each above 0, together at most 100")

    async def find(self, workflow: str, alias: str) -> Rollout | None:
        """The roll-out of an alias, if there is one."""
        if alias == LATEST or number_of(alias) is not None:
            return None
        try:
            kept = await self._reading.find(f"{workflow}{MARK}{alias}")
            pointed = await self._reading.find(workflow, alias)
        except UnknownWorkflow:
            return None
        data = await self._definition(kept.hash)
        rollout = _DECODER.decode(data) if data is not None else None
        if rollout is None or rollout.base != pointed.number or not rollout.weights:
            return None
        return rollout

    async def version(self, workflow: str, which: str | None, by: str) -> str | None:
        """The version that a start by this alias is given: the same one for the same key, always."""
        if which is None:
            return None
        rollout = await self.find(workflow, which)
        if rollout is None:
            return which
        place = fraction(workflow, which, by) * 100
        for number, share in sorted(rollout.weights.items()):
            if place < share:
                return str(number)
            place -= share
        return str(rollout.base)
