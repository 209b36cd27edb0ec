"""The plan: a definition compiled once, so that decisions do not read the document again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from rune.core.definition.model import Definition, Node, Retry
from rune.core.node_type import Join, NodeType, Window
from rune.core.plan.analysis import Scopes
from rune.core.plan.graph import Graph
from rune.core.plan.parameters import Parameters

Edges = tuple[int, ...]
Split = tuple[Edges, Edges]
"""Live edges and dead edges."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that the rules need about one node."""

    index: int
    id: str
    node: Node
    type: NodeType
    parameters: Parameters
    pure: bool

    out: Edges
    in_edges: Edges
    normal: Split  # a success without outlets
    by_outlet: Mapping[str | None, Split]  # by outlet of an output; None if the type has no outlets
    rescue: Split  # policy `branch`
    ignored: str | None  # the outlet that policy `ignore` takes
    error_edges: Edges
    success: Edges

    is_join: bool
    opens: Join
    timeout: int | None  # ms
    timeout_from: Literal["first", "latest", "scope"]
    region: frozenset[int]  # nodes that an opening cancels
    needs_choice: bool  # the winner is recorded as a fact before the node runs

    policy: Literal["halt", "ignore", "branch", "collect"]
    retry: Retry
    listed: bool  # an aggregator collects an unhandled failure of this node

    depth: int
    split: int  # innermost enclosing split, or -1
    fans_out: bool
    window: Window
    aggregator: int  # of this split, or -1
    body: tuple[int, ...]  # of this split, nested splits included
    races: tuple[int, ...]  # joins in the items of this split whose timeout begins with the scope
    joins_items: bool
    split_of: int  # the split of this aggregator, or -1
    passes_payload: bool
    merges: bool
    raced: bool  # a race is upstream: visibility depends on the winner


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled definition."""

    definition: Definition
    hash: str
    graph: Graph
    scopes: Scopes
    ids: tuple[str, ...]
    index: Mapping[str, int]
    nodes: tuple[NodePlan, ...]
    src: Edges
    dst: Edges
    gather_position: Mapping[int, int]  # edge into an aggregator -> its position among the in-edges
    entries: tuple[int, ...]
    triggers: frozenset[int]
    first: tuple[int, ...]  # the nodes after the triggers; without triggers the entries
    leaves: tuple[int, ...]  # root nodes without out-edges
    outputs: tuple[int, ...]  # root nodes that set the execution's output
    races: tuple[int, ...]  # root joins whose timeout begins with the execution
    timeout: int | None  # ms
    launches: bool  # some node starts child executions
    max_parallel: int | None  # nodes of one execution that run concurrently
