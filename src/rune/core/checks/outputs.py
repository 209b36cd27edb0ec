"""An execution has one output: of two nodes that set it, at most one may run."""

from __future__ import annotations

from rune.core import codes
from rune.core.checks.subject import Subject
from rune.core.dominators import ROOT, Dominators


def check_outputs(subject: Subject, dominators: Dominators) -> None:
    """Report each node that sets the output although an earlier one can have done so.

    Two nodes exclude each other if the nearest node that every path to both leads through sends them out of
    different outlets. A farther one cannot part them: both are reached through the nearest.
    """
    setters = [at for at, kind in enumerate(subject.types) if kind is not None and kind.sets_output]
    if len(setters) < 2:
        return
    clashes: dict[int, int] = {}
    below: dict[int, list[tuple[int, int]]] = {}
    chosen = set(setters)
    for setter in setters:
        for dominator, child in dominators.above(setter):
            if dominator in chosen:
                _clash(clashes, setter, dominator)
            below.setdefault(dominator, []).append((child, setter))
    for router, reached in below.items():
        _parted(dominators, router, reached, clashes)
    for later, earlier in sorted(clashes.items()):
        names = subject.graph.ids
        subject.report(
            subject.places.nodes[later],
            codes.TWO_OUTPUTS,
            f"`{names[later]}` and `{names[earlier]}` can both run, but an execution has one output",
            "lead to them from different outlets of one `conditional` or `switch`, or keep one of them",
        )


def _parted(
    dominators: Dominators, router: int, reached: list[tuple[int, int]], clashes: dict[int, int]
) -> None:
    taken: dict[str | None, tuple[int, int]] = {}
    for child, setter in reached:
        for exit_ in {None} if router == ROOT else dominators.exits(router, setter):
            other_child, other = taken.setdefault(exit_, (child, setter))
            if other_child != child:
                _clash(clashes, setter, other)


def _clash(clashes: dict[int, int], one: int, other: int) -> None:
    later, earlier = max(one, other), min(one, other)
    clashes[later] = min(clashes.get(later, earlier), earlier)
