"""A split in which one item is held up, for tests that deliver finished tokens again."""

from __future__ import annotations

from rune.core.execution.token import Token
from rune.testing.harness import Run
from tests.support.workflows import Fields, of_type, split, workflow

CALLED = ["c@/s:0", "c@/s:1", "c@/s:2"]
"""The calls of `held_item_workflow`."""


def held_item_workflow(held: Fields) -> Fields:
    """Build a split of three items: each calls `c`, then the second passes through `held`."""
    return workflow(
        "start>s s>c c>i i>w:true i>g:false w>g g>out",
        s=split(),
        c=of_type("t.call"),
        i=of_type("conditional", expression="$item == 1"),
        w=held,
        g=of_type("aggregator"),
        out=of_type("output", value="$g"),
    )


def token_of(run: Run, name: str, item: int | None) -> Token:
    """Return the token of a node, or of a node at an item of the split."""
    return Token(run.plan.index[name], () if item is None else (run.plan.index["s"], item))
