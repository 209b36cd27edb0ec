"""Where each node and edge stands in the document it came from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rune.core.definition import Edge, Node


class Places(msgspec.Struct, frozen=True):
    """Document paths by index. A document may leave gaps (an entry that is no object is dropped), and an edge
    made from a dependency stands at its node, so neither can be told from the definition alone."""

    nodes: tuple[str, ...]
    edges: tuple[str, ...]

    @classmethod
    def of(cls, nodes: Sequence[Node], edges: Sequence[Edge]) -> Places:
        """The places of a definition in its canonical form."""
        return cls(
            tuple(f"nodes[{each}]" for each in range(len(nodes))),
            tuple(f"edges[{each}]" for each in range(len(edges))),
        )
