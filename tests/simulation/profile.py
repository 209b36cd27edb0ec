"""What kind of trouble a seed gets."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

CALM = ("crash", "jump", "zombie", "zombie", "sweep_early", "crash_errand", "recover_early")
LOSSY = (*CALM, "drop_queue")
STATEFUL = (*CALM, "wipe", "save", "roll_back", "store_away", "journal_away")
ACTS = (*CALM, "pause", "resume", "pause", "resume", "wipe")
ZOMBIES = ("zombie",)
FORGETFUL = ("wipe", "wipe", "zombie", "crash", "sweep_early")
EVERYTHING = (*LOSSY, *STATEFUL, "pause", "resume")


@dataclass(frozen=True)
class Profile:
    """Rates and kinds of faults of one world."""

    kinds: tuple[str, ...]
    faults: int
    fault_rate: float
    loss: float
    duplicates: float
    workers: int
    pace: int
    in_place: bool
    foresees: bool  # the end is written together with what leads to it
    talkative: float  # how often a signal comes rather than the time up to which it is waited for


def random_profile(rng: Random) -> Profile:
    """Some worlds are calm, most are not, a few are cancelled from outside."""
    kinds = rng.choice((CALM, LOSSY, STATEFUL, ACTS, ZOMBIES, FORGETFUL, EVERYTHING, EVERYTHING))
    if rng.random() < 0.07:
        kinds = (*kinds, "cancel")
    haunted = kinds is ZOMBIES or kinds is FORGETFUL
    return Profile(
        kinds=kinds,
        faults=40 if haunted else rng.choice((0, 3, 8, 15, 30)),
        fault_rate=0.3 if haunted else rng.choice((0.02, 0.1, 0.3)),
        loss=rng.choice((0.0, 0.0, 0.15)),
        duplicates=rng.choice((0.0, 0.2)),
        workers=8 if haunted else rng.choice((1, 2, 4, 8)),
        pace=rng.choice((1, 5, 200, 3_000)),
        in_place=haunted or rng.random() < 0.5,
        foresees=rng.random() < 0.5,
        talkative=rng.choice((0.1, 0.5, 0.9)),
    )


def harsh_profile(rng: Random) -> Profile:
    """The state is forgotten again and again while those who got something from it go on."""
    return Profile(
        kinds=(*FORGETFUL, *rng.choice(((), ("crash_errand",), ("pause", "resume")))),
        faults=100,
        fault_rate=rng.choice((0.1, 0.2, 0.4)),
        loss=0.0,
        duplicates=0.1,
        workers=8,
        pace=rng.choice((5, 200, 1_000)),
        in_place=True,
        foresees=False,
        talkative=rng.choice((0.3, 0.9)),
    )
