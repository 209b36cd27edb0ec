"""One seed: a random definition in a world of random trouble, and the verdict on it."""

from __future__ import annotations

from functools import cache
from random import Random

from rune.core.compile import compile_definition
from rune.core.jsontext import Decoded
from rune.core.parse import parse_data
from rune.nodes.registry import Registry
from tests.oracle.document import to_document
from tests.oracle.generate import random_model
from tests.sim.effect import sim_registry
from tests.sim.journal import Violation
from tests.sim.profile import random_profile
from tests.sim.verdict import check_counts, check_end, check_fold, check_once
from tests.sim.world import World

PROBE = 0.03


@cache
def registry() -> Registry:
    return sim_registry()


class ProbedWorld(World):
    """A world whose invariants are looked at now and then while it runs."""

    def _act(self) -> None:
        super()._act()
        memory = self.store.memory
        if memory is not None:
            check_counts(memory.state)
            check_once(self.store)
        if self.rng.random() < PROBE and not self.workers:
            check_fold(self, self.rng)


def run_seed(seed: int) -> str:
    """Run one seed; raises Violation. Answers how the execution ended."""
    model, start = random_model(seed)
    parsed = parse_data(Decoded(to_document(model)))
    if parsed.definition is None:
        raise Violation(f"the generator made an invalid document: {parsed.problems}")
    plan = compile_definition(parsed.definition, registry().catalogue)
    rng = Random(f"world-{seed}")
    world = ProbedWorld(plan, registry(), start, random_profile(rng), rng)
    world.run()
    check_end(world, model, start)
    assert world.journal.end is not None
    return world.journal.end.status
