"""The plan: a definition compiled once, so that no decision has to look at the document again."""

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
"""Edges that come alive, and edges that die."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything the rules ask of one node."""

    index: int
    id: str
    node: Node
    type: NodeType
    parameters: Parameters
    pure: bool

    out: Edges
    in_edges: Edges
    normal: Split  # a success without outlets
    by_outlet: Mapping[str | None, Split]  # by what an output may say; None where the type has no outlets
    rescue: Split  # policy `branch`
    ignored: str | None  # the outlet that policy `ignore` takes
    error_edges: Edges
    success: Edges

    is_join: bool
    opens: Join
    timeout: int | None  # ms
    timeout_from: Literal["first", "latest", "scope"]
    region: frozenset[int]  # what an opening cancels
    needs_choice: bool  # who opened it is a fact before the node runs

    policy: Literal["halt", "ignore", "branch", "collect"]
    retry: Retry
    listed: bool  # an unhandled failure here shows up in a list

    depth: int
    split: int  # innermost enclosing split, or -1
    fans_out: bool
    window: Window
    aggregator: int  # of this split, or -1
    body: tuple[int, ...]  # of this split, nested splits included
    races: tuple[int, ...]  # joins with a timeout from the opening of the items' scope of this split
    joins_items: bool
    split_of: int  # the split this aggregator gathers, or -1
    passes_payload: bool
    merges: bool
    raced: bool  # a race lies upstream: visibility depends on who won


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
    gather_position: Mapping[int, int]  # edge into an aggregator -> its place among its in-edges
    entries: tuple[int, ...]
    triggers: frozenset[int]
    leaves: tuple[int, ...]  # root nodes without out-edges
    outputs: tuple[int, ...]  # root nodes that set the execution's output
    races: tuple[int, ...]  # root joins with a timeout from the start
    timeout: int | None  # ms
    launches: bool  # some node starts executions of its own
    max_parallel: int | None  # nodes of an execution that run at once
