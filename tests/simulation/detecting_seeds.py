"""Seeds that detected each mutant, tried first by `tests.simulation.mutants`.

Mutants that seed 0 detects are left out. Seeds of `HANDWRITTEN_ONLY` mutants count handwritten models only.
"""

from __future__ import annotations

DETECTING_SEEDS = {
    "key without lineage": 1,
    "state before journal": 2,
    "ack before publish": 418,
    "no fence": 19,
    "no finish timer": 159,
    "inline run without check of first fact": 179,
    "timeout not journaled": 6,
    "race loser visible downstream": 10,
    "fan-out window never refills": 1,
    "error edge on success": 5,
    "aggregator marks arrivals instead of items": 110,
    "fold ignores pauses": 5,
    "duplicate signal delivered": 196,
    "signal taken twice": 501,
    "fold drops undelivered signals": 5,
    "fold delivers taken signals again": 1,
    "signal path ignored": 68,
    "signal resumes the newest wait": 6,
    "early signal ignored": 5,
    "unused signal not returned": 282,
    "failed wait still receives signals": 74,
    "timeout after signal": 302,
    "cancelled region keeps signal waits": 119,
    "pause does not park tokens": 84,
    "wake during pause": 5,
    "resume leaves tokens parked": 5,
    "pause counts toward timeout": 119,
    "effect start ignored": 65,
    "unknown outcome retried": 163,
    "max_parallel exceeded by one": 15,
    "held-back token never released": 15,
    "child end not reported after crash": 1168,
    "child started after end of parent": 415,
    "child started after end of attempt": 46,
    "child not cancelled with its attempt": 42,
    "kept result depends on rerun token": 5,
    "aggregator kept although item runs again": 230,
    "kept result runs again": 7,
}
