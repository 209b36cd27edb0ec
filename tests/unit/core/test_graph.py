"""The graph: topological order, cycles, reachability."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition.model import Edge
from rune.core.plan.graph import Graph, ancestors, build_graph, find_cycle, reachable


def graph(ids: str, *pairs: str) -> Graph:
    edges = [Edge(id=f"e{at}", src=pair[0], dst=pair[1]) for at, pair in enumerate(pairs)]
    return build_graph(list(ids), edges)


def test_adjacency_uses_indices_in_document_order() -> None:
    found = graph("abc", "ac", "ab", "bc")

    assert found.index == {"a": 0, "b": 1, "c": 2}
    assert found.out_edges == ((0, 1), (2,), ())
    assert found.in_edges == ((), (1,), (0, 2))
    assert (found.src, found.dst) == ((0, 0, 1), (2, 1, 2))
    assert found.successors(0) == [2, 1]
    assert found.predecessors(2) == [0, 1]
    assert (found.entries, found.exits) == ((0,), (2,))


def test_order_follows_document_where_edges_allow() -> None:
    assert graph("dcba").order == (0, 1, 2, 3)
    assert graph("cba", "ac").order == (1, 2, 0)


def test_invalid_edge_keeps_index_but_is_not_followed() -> None:
    found = graph("ab", "ax", "aa", "ab")

    assert (found.src, found.dst) == ((0, 0, 0), (-1, 0, 1))
    assert found.out_edges == ((2,), ())
    assert find_cycle(found) == ()


def test_edge_to_duplicate_id_means_first_node() -> None:
    assert graph("aba", "ba").dst == (0,)


def test_cycle_starts_at_first_node_of_document() -> None:
    assert find_cycle(graph("sabcx", "sa", "ab", "bc", "ca", "cx")) == ("a", "b", "c")
    assert find_cycle(graph("xba", "ab", "ba", "ax")) == ("b", "a")
    assert find_cycle(graph("ab", "ab")) == ()


def test_nodes_behind_cycle_are_not_in_order() -> None:
    assert graph("abcd", "ab", "ba", "bc", "cd").order == ()


def test_reachable_nodes_from_starts() -> None:
    assert reachable(graph("abcd", "ab", "ac", "bc"), [0]) == {0, 1, 2}
    assert reachable(graph("abcd", "ab"), []) == set()


SHAPES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=24)


def graph_of(pairs: list[tuple[int, int]]) -> Graph:
    ids = "abcdefgh"
    return graph(ids, *(ids[src] + ids[dst] for src, dst in pairs))


@given(SHAPES)
def test_order_respects_edges_or_graph_has_cycle(pairs: list[tuple[int, int]]) -> None:
    found = graph_of(pairs)
    position = {node: at for at, node in enumerate(found.order)}
    cycle = find_cycle(found)

    assert bool(cycle) == (len(found.order) < 8)
    for edge in (each for row in found.in_edges for each in row):
        if found.dst[edge] in position:
            assert position[found.src[edge]] < position[found.dst[edge]]
    for node, following in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        assert found.index[following] in found.successors(found.index[node])


@given(SHAPES)
def test_ancestors_match_reachability(pairs: list[tuple[int, int]]) -> None:
    found = graph_of([(min(pair), max(pair)) for pair in pairs])
    before = ancestors(found)

    for node in range(8):
        for other in range(8):
            assert bool(before[other] >> node & 1) == (other != node and other in reachable(found, [node]))
