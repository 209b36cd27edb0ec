"""Fault profiles: which faults a simulation injects, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

BASIC = ("crash", "jump_clock", "zombie", "zombie", "sweep_early", "crash_task", "recover_early")
LOSSY = (*BASIC, "drop_queue")
STATEFUL = (*BASIC, "wipe", "save", "roll_back", "state_outage", "journal_outage")
PAUSES = (*BASIC, "pause", "resume", "pause", "resume", "wipe")
ZOMBIES = ("zombie",)
STATE_LOSS = ("wipe", "wipe", "zombie", "crash", "sweep_early")
EVERYTHING = (*LOSSY, *STATEFUL, "pause", "resume")


@dataclass(frozen=True)
class Profile:
    """Kinds and rates of faults in one simulation."""

    kinds: tuple[str, ...]
    faults: int
    fault_rate: float
    loss: float
    duplicates: float
    workers: int
    pace: int
    in_place: bool
    predicts_end: bool  # the terminal row is written together with the last result
    signal_rate: float  # probability that a signal arrives before the next timer
    lateness: float = (
        0.0  # probability that a command to the state store is repeated later, or late altogether
    )
    node_times: tuple[int, ...] = (0,)  # ms that a node may take
    lost_writes: float = 0.0  # probability that a write to the journal gets no answer


def random_profile(rng: Random) -> Profile:
    """A random profile; a few also cancel executions."""
    kinds = rng.choice((BASIC, LOSSY, STATEFUL, PAUSES, ZOMBIES, STATE_LOSS, EVERYTHING, EVERYTHING))
    if rng.random() < 0.07:
        kinds = (*kinds, "cancel")
    heavy = kinds is ZOMBIES or kinds is STATE_LOSS
    return Profile(
        kinds=kinds,
        faults=40 if heavy else rng.choice((0, 3, 8, 15, 30)),
        fault_rate=0.3 if heavy else rng.choice((0.02, 0.1, 0.3)),
        loss=rng.choice((0.0, 0.0, 0.15)),
        duplicates=rng.choice((0.0, 0.2)),
        workers=8 if heavy else rng.choice((1, 2, 4, 8)),
        pace=rng.choice((1, 5, 200, 3_000)),
        in_place=heavy or rng.random() < 0.5,
        predicts_end=rng.random() < 0.5,
        signal_rate=rng.choice((0.1, 0.5, 0.9)),
        **_late(rng),
    )


def harsh_profile(rng: Random) -> Profile:
    """A profile that loses the state often while workers with claims continue."""
    return Profile(
        kinds=(*STATE_LOSS, *rng.choice(((), ("crash_task",), ("pause", "resume")))),
        faults=100,
        fault_rate=rng.choice((0.1, 0.2, 0.4)),
        loss=0.0,
        duplicates=0.1,
        workers=8,
        pace=rng.choice((5, 200, 1_000)),
        in_place=True,
        predicts_end=False,
        signal_rate=rng.choice((0.3, 0.9)),
        **_late(rng),
    )


def _late(rng: Random) -> dict[str, Any]:
    """Lateness, in half of the simulations. Drawn without advancing `rng`."""
    own = Random(str(rng.getstate()[1][3:6]))
    return {
        "lateness": own.choice((0.0, 0.0, 0.1, 0.4)),
        "node_times": own.choice(((0,), (0,), (0, 1, 40), (0, 40, 3_000))),
        "lost_writes": own.choice((0.0, 0.0, 0.05, 0.3)),
    }
