"""What turns a hazard's test red: a wrong line, or a few where several places guard the same thing."""

from __future__ import annotations

from typing import NamedTuple


class Patch(NamedTuple):
    """A text of one file below `src/rune` that occurs there once, and what takes its place."""

    file: str
    old: str
    new: str


class Red(NamedTuple):
    """A test and the change it must notice. `hangs`: it does so by waiting in vain."""

    test: str
    patches: tuple[Patch, ...]
    hangs: bool = False


def red(test: str, *patches: tuple[str, str, str], hangs: bool = False) -> Red:
    """A line of a table."""
    return Red(test, tuple(Patch(*each) for each in patches), hangs)


def same(test: str, other: Red) -> Red:
    """The change of another line, which this test must notice too."""
    return Red(test, other.patches)


NO_DEDUPE = (
    "core/apply.py",
    "    if decision.node in scope.done and (live is None or fact is not None):\n",
    "    if False:\n",
)
"""A decision about a node that is done is carried out once more."""

RUNS_THE_DONE = (
    "core/control.py",
    'return "done" if token.node in scope.done else "unknown"',
    'return "run"',
)
"""A token that is done may run."""

FOLD_BEARS_IT = (
    "core/fold.py",
    "            self._replay_token(self._queued.pop((node, path)))\n",
    "            if (node, path) in self._queued:\n"
    "                self._replay_token(self._queued.pop((node, path)))\n",
)
"""Whoever reads the history of a node that was emitted twice does not stumble over it."""

NO_SECOND_TRY = (
    "runtime/failures.py",
    "        if count >= len(DELAYS):\n            del self._counts[key]\n",
    "        if True:\n",
)
"""What the engine stumbles over ends its execution at once; nobody waits for the tries in between."""
