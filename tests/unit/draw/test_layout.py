"""The layered layout: no overlaps, links around boxes, order of outlets, straight chains, frames, speed."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.core.definition.model import Definition
from rune.documents.draw.layout import DOWNWARD, Direction, Layout, Rectangle, Style, lay_out
from rune.documents.draw.model import Drawing, draw_definition, draw_stored
from rune.nodes.registry import standard_catalogue
from tests.support.documents import document, node, verdict

RIGHT = Style("right", lambda box: (200.0, 64.0))
NESTED = document(
    [
        node("start", "input"),
        node("users", "split", {"input_array": "$trigger.xs"}),
        node("fetch", "http", {"url": "http://x"}, error="branch"),
        node("orders", "split", {"input_array": "$item"}),
        node("price"),
        node("book"),
        node("inner", "aggregator"),
        node("note"),
        node("outer", "aggregator"),
        node("beside"),
        node("end", "merge"),
    ],
    "start>users",
    "start>beside",
    "users>fetch",
    "fetch>orders",
    "fetch>note!",
    "orders>price",
    "orders>book",
    "price>book",
    "book>inner",
    "inner>outer",
    "note>outer",
    "outer>end",
    "beside>end",
)


def drawn(raw: dict[str, Any]) -> Drawing:
    return draw_definition(verdict(raw))


def graph(count: int, links: list[tuple[int, int]]) -> Drawing:
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in links if pair[0] != pair[1])
    return drawn(document([node(f"n{at}") for at in range(count)], *(f"n{a}>n{b}" for a, b in pairs)))


def overlapping(layout: Layout) -> list[tuple[int, int]]:
    boxes = layout.boxes
    return [
        (one, other)
        for one in range(len(boxes))
        for other in range(one + 1, len(boxes))
        if boxes[one].intersects(boxes[other])
    ]


def crossed(drawing: Drawing, layout: Layout) -> list[tuple[str, str]]:
    """Links that pass a box which is not one of their ends, at a part that runs along the layers."""
    found = []
    for link, route in zip(drawing.links, layout.routes, strict=True):
        for one, other in pairwise(route):
            straight = one[1] == other[1] if layout.direction == "right" else one[0] == other[0]
            if not straight:
                continue
            x, y = min(one[0], other[0]), min(one[1], other[1])
            line = Rectangle(x, y, abs(one[0] - other[0]) or 0.01, abs(one[1] - other[1]) or 0.01)
            found += [
                (link.id, drawing.boxes[at].id)
                for at, box in enumerate(layout.boxes)
                if at not in (link.src, link.dst) and box.intersects(line)
            ]
    return found


GRAPHS = st.integers(1, 24).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=40),
    )
)


@settings(max_examples=60, deadline=None)
@given(GRAPHS, st.sampled_from([RIGHT, DOWNWARD]))
def test_boxes_of_any_graph_do_not_overlap(made: tuple[int, list[tuple[int, int]]], style: Style) -> None:
    drawing = graph(*made)

    layout = lay_out(drawing, style)

    assert overlapping(layout) == []
    assert crossed(drawing, layout) == []
    assert all(
        box.x >= 0
        and box.y >= 0
        and box.x + box.width <= layout.width
        and box.y + box.height <= layout.height
        for box in layout.boxes
    )


@settings(max_examples=30, deadline=None)
@given(GRAPHS)
def test_links_lead_from_layer_to_layer(made: tuple[int, list[tuple[int, int]]]) -> None:
    drawing = graph(*made)

    layout = lay_out(drawing, RIGHT)

    for link, route in zip(drawing.links, layout.routes, strict=True):
        src, dst = layout.boxes[link.src], layout.boxes[link.dst]
        assert route[0] == pytest.approx((src.x + src.width, src.y + src.height / 2))
        assert route[-1] == pytest.approx((dst.x, dst.y + dst.height / 2))
        assert all(one[0] <= other[0] for one, other in pairwise(route))


def test_same_document_has_same_layout() -> None:
    assert lay_out(drawn(NESTED), RIGHT) == lay_out(drawn(NESTED), RIGHT)


def test_added_leaf_keeps_order_of_other_boxes() -> None:
    raw = document([node("a"), *(node(f"n{at}") for at in range(6))], *(f"a>n{at}" for at in range(6)))
    more = document(
        [node("a"), *(node(f"n{at}") for at in range(6)), node("new")],
        *(f"a>n{at}" for at in range(6)),
        "n3>new",
    )

    def order(layout: Layout) -> list[int]:
        return sorted(range(1, 7), key=lambda at: layout.boxes[at].y)

    assert order(lay_out(drawn(raw), RIGHT)) == order(lay_out(drawn(more), RIGHT)) == list(range(1, 7))


@pytest.mark.parametrize("direction", ["right", "down"])
def test_targets_follow_order_of_outlets(direction: Direction) -> None:
    rules = [{"value": "$trigger.n", "compare": at} for at in range(3)]
    raw = document(
        [node("s", "switch", {"rules": rules}), node("d"), node("c"), node("b"), node("a")],
        "s>d:fallback",
        "s>c:case_2",
        "s>b:case_1",
        "s>a:case_0",
    )
    style = RIGHT if direction == "right" else DOWNWARD

    layout = lay_out(drawn(raw), style)

    places = [(each.y if direction == "right" else each.x) for each in layout.boxes[1:]]
    assert places == sorted(places, reverse=True)
    starts = [route[0] for route in layout.routes]
    assert len(set(starts)) == 4


def test_chain_with_error_branches_is_straight() -> None:
    names = [f"n{at}" for at in range(6)]
    raw = document(
        [
            *(node(each, "http", {"url": "http://x"}, error="branch") for each in names),
            *(node(f"e{each}") for each in names),
        ],
        *(f"{one}>{other}" for one, other in pairwise(names)),
        *(f"{each}>e{each}!" for each in names),
    )

    layout = lay_out(drawn(raw), RIGHT)

    bends = [abs(one.y - other.y) for one, other in pairwise(layout.boxes[:6])]
    assert max(bends) < 64.0 / 2
    plain = lay_out(
        drawn(document([node(each) for each in names], *(f"{a}>{b}" for a, b in pairwise(names)))), RIGHT
    )
    assert len({box.y for box in plain.boxes}) == 1


@pytest.mark.parametrize("style", [RIGHT, DOWNWARD])
def test_frames_contain_only_their_body(style: Style) -> None:
    drawing = drawn(NESTED)

    layout = lay_out(drawing, style)

    assert set(layout.frames) == {1, 3}
    for split, frame in layout.frames.items():
        for at, box in enumerate(layout.boxes):
            inside = at in drawing.bodies[split]
            assert frame.intersects(box) == inside
            if inside:
                assert frame.x < box.x
                assert frame.y < box.y
                assert box.x + box.width < frame.x + frame.width
                assert box.y + box.height < frame.y + frame.height
    assert overlapping(layout) == []
    assert crossed(drawing, layout) == []


def test_invalid_document_with_cycle_is_laid_out() -> None:
    raw = document([node("a"), node("b"), node("c"), node("d")], "a>b", "b>c", "c>a", "c>d", "x>d", "d>d")

    layout = lay_out(drawn(raw), RIGHT)

    assert overlapping(layout) == []
    assert len(layout.routes) == 4


def test_stored_definition_with_missing_type_is_drawn() -> None:
    checked = verdict(document([node("a"), node("b")], "a>b:yes"))
    assert isinstance(checked.definition, Definition)

    drawing = draw_stored(checked.definition, {})

    assert [link.caption for link in drawing.links] == ["yes"]
    assert draw_stored(checked.definition, standard_catalogue()).links[0].src == 0


def test_large_graph_is_laid_out_in_time() -> None:
    seed = random.Random(7)
    count = 2_000
    links = [(seed.randrange(max(0, at - 12), at), at) for at in range(1, count)]
    links += [(at, at + seed.randrange(1, 12)) for at in (seed.randrange(count - 12) for _ in range(500))]
    drawing = graph(count, links)

    times = []
    for _ in range(3):
        began = time.thread_time()
        layout = lay_out(drawing, RIGHT)
        times.append(time.thread_time() - began)

    assert len(layout.boxes) == count
    assert min(times) < 0.6  # about 0.12 s; the margin is for busy machines
