"""How nodes run in the simulated world: the real behaviours, and one with a counted effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rune.core.effect import Decision
from rune.core.fact import Result
from rune.core.lineage import Path
from rune.core.outcome import Error, Failure, Outcome, Output
from rune.core.token import Token, token_name
from rune.core.values import Values
from rune.nodes.registry import Registry, run_node
from tests.sim.store import Lease

if TYPE_CHECKING:
    from tests.sim.world import World


class Nodes:
    """Runs tokens and keeps a ledger of effects."""

    def __init__(self, world: World, registry: Registry, start: Any) -> None:
        self._world = world
        self._registry = registry
        self.start = start
        self.calls: list[str] = []

    def run(self, token: Token, lease: Lease | None, decisions: list[Decision]) -> Outcome:
        """The outcome of a token. `decisions` are those of its own run, which nobody else can see yet."""
        world = self._world
        own = {(each.node, each.path): each.fact for each in decisions if isinstance(each.fact, Result)}

        def results(node: int, path: Path) -> Result | None:
            fact = own.get((node, path))
            return fact if isinstance(fact, Result) else world.journal.result(node, path)

        world.check_started(token, results)
        name = token_name(token.node, token.path, world.plan.ids)
        values = Values(world.plan, self.start, results, {"id": "sim"}, lambda value: value)
        node = world.plan.nodes[token.node]
        outcome = run_node(
            self._registry[node.node.type],
            node.parameters,
            values.scope(token, world.now / 1000, name),
            now=world.now,
            node=node.id,
            arrivals=lambda: values.arrivals(token),
            entries=lambda: values.entries(token),
            attempt=token.attempt,
            resumed=token.resumed,
            timer_id=f"wait:{name}",
            due=world.now,
        )
        if node.pure:
            return outcome
        return self._effect(name, token, lease, outcome)

    def _effect(self, name: str, token: Token, lease: Lease | None, outcome: Outcome) -> Outcome:
        """An effect happened in the world. Each physical call has a number, by which a lost one is known."""
        self.calls.append(name)
        if lease is not None and lease.until <= self._world.now and self._world.rng.random() < 0.5:
            return Failure(Error("LOST", "the holder was cut off"))
        if isinstance(outcome, Output):
            return Output({**outcome.value, "call": len(self.calls)}, outcome.outlet)
        return outcome
