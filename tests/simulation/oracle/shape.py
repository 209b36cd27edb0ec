"""Static analysis of a model: order, scopes, split-aggregator pairs, reachability, regions."""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.oracle.model import Edge, Model, Node


class InvalidModelError(Exception):
    """The model is not a valid definition."""


class Shape:
    """The static analysis of one model."""

    def __init__(self, model: Model) -> None:
        self.nodes: dict[str, Node] = {node.id: node for node in model.nodes}
        if len(self.nodes) != len(model.nodes):
            raise InvalidModelError("duplicate node id")
        self.ins: dict[str, list[Edge]] = {node: [] for node in self.nodes}
        self.outs: dict[str, list[Edge]] = {node: [] for node in self.nodes}
        for edge in model.edges:
            self.outs[edge.src].append(edge)
            self.ins[edge.dst].append(edge)
        self.order = self._topological()
        self.bit = {node: 1 << i for i, node in enumerate(self.order)}
        self.scope: dict[str, tuple[str, ...]] = {}
        self.aggregator: dict[str, str] = {}
        self._assign_scopes()
        self.depth = {node: len(scope) for node, scope in self.scope.items()}
        self.members: dict[str | None, list[str]] = defaultdict(list)
        for node in self.order:
            scope = self.scope[node]
            self.members[scope[-1] if scope else None].append(node)
        self.paired = {gather: split for split, gather in self.aggregator.items()}
        self.descendants = self._descendants()

    def _topological(self) -> list[str]:
        missing = {node: len(edges) for node, edges in self.ins.items()}
        ready = [node for node, count in missing.items() if not count]
        order: list[str] = []
        while ready:
            node = ready.pop()
            order.append(node)
            for edge in self.outs[node]:
                missing[edge.dst] -= 1
                if not missing[edge.dst]:
                    ready.append(edge.dst)
        if len(order) != len(self.nodes):
            raise InvalidModelError("cycle")
        return order

    def _assign_scopes(self) -> None:
        for node in self.order:
            arriving = {self.scope_after(edge) for edge in self.ins[node]} or {()}
            if len(arriving) > 1:
                raise InvalidModelError(f"paths of different scope meet at {node}")
            scope = arriving.pop()
            if self.nodes[node].kind == "aggregator":
                if not scope:
                    raise InvalidModelError(f"aggregator {node} outside a split")
                if self.aggregator.setdefault(scope[-1], node) != node:
                    raise InvalidModelError(f"split {scope[-1]} has two aggregators")
                scope = scope[:-1]
            self.scope[node] = scope

    def scope_after(self, edge: Edge) -> tuple[str, ...]:
        """The scope that an edge carries its token into."""
        inner = self.nodes[edge.src].kind == "split" and not edge.is_error
        return self.scope[edge.src] + ((edge.src,) if inner else ())

    def _descendants(self) -> dict[str, int]:
        descendants: dict[str, int] = {}
        for node in reversed(self.order):
            mask = 0
            for edge in self.outs[node]:
                mask |= descendants[edge.dst] | self.bit[edge.dst]
            descendants[node] = mask
        return descendants

    def reaches(self, src: str, dst: str) -> bool:
        return bool(self.descendants[src] & self.bit[dst])

    def body(self, split: str) -> list[str]:
        """Every node inside a split, of all depths."""
        return [node for node in self.order if split in self.scope[node]]

    def is_collected(self, node: str) -> bool:
        """Whether the aggregator of its split collects an unhandled failure of this node."""
        gather = self.aggregator.get(self.scope[node][-1])
        return gather is not None and self.reaches(node, gather)

    def region(self, join: str) -> frozenset[str]:
        """Nodes of the join's scope and deeper all of whose paths end at the join."""
        scope, inside = self.scope[join], {join}
        for node in reversed(self.order):
            outs = self.outs[node]
            if outs and self.scope[node][: len(scope)] == scope and all(e.dst in inside for e in outs):
                inside.add(node)
        return frozenset(inside - {join})

    def descendants_of(self, nodes: set[str]) -> frozenset[str]:
        """Every node reachable from one of these."""
        mask = 0
        for node in nodes:
            mask |= self.descendants[node]
        return frozenset(node for node, bit in self.bit.items() if mask & bit)
