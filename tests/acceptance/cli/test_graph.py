"""`rune graph`: text, Mermaid and SVG output, and the layout."""

from __future__ import annotations

import json
import pathlib
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rune.cli.main import app
from rune.core.validation.validate import ValidationResult
from rune.documents.draw.formats import draw_svg
from rune.documents.draw.layout import lay_out
from rune.documents.draw.model import draw_definition
from tests.support.documents import document, edit, node, verdict

SVG = "{http://www.w3.org/2000/svg}"

NODES = [
    node("start", "input"),
    node("s", "split", {"input_array": "$trigger.xs"}),
    node("call", "http", {"url": "http://x"}, name='Call <it> & "more"', error="branch"),
    node("ok", "conditional", {"expression": "$item > 1"}),
    edit("y", 1),
    node("t", "split", {"input_array": "$item"}),
    edit("deep", "$item"),
    node("h", "aggregator"),
    node("g", "aggregator"),
    node("end", "output", {"value": "$g"}),
]
PAIRS = (
    "start>s",
    "s>call",
    "call>ok",
    "call>g!",
    "ok>y:true",
    "ok>t:false",
    "t>deep",
    "deep>h",
    "h>g",
    "y>g",
    "g>end",
)
WHOLE = document(NODES, *PAIRS, name="Order & more")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    file = tmp_path / "whole.json"
    file.write_text(json.dumps(WHOLE), encoding="utf-8")
    return str(file)


def rune(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_text_shows_layers_edges_and_scopes(path: str) -> None:
    result = rune("graph", path)

    lines = [line.rstrip() for line in result.output.splitlines()]
    assert result.exit_code == 0
    assert lines[0] == "Order & more"
    assert "1  start  input" in lines
    assert '3  │ call  http  Call <it> & "more"' in lines
    assert "     ──▶ call  (each item)" in lines
    assert "   │   ╌╌▶ g  (on error)" in lines
    assert "   │   ──▶ y  (true)" in lines
    assert "6  │ │ deep  edit" in lines
    assert "9  end  output" in lines


def test_mermaid_nests_split_bodies(path: str) -> None:
    text = rune("graph", path, "--mermaid").output

    assert text.startswith("flowchart TD")
    assert 'n2["Call &lt;it&gt; &amp; &quot;more&quot;<br/><small>http</small>"]' in text
    assert '    subgraph s1 ["each item of s"]' in text
    assert '        subgraph s5 ["each item of t"]' in text
    assert 'n3{"ok' in text
    assert 'n2 -.->|"error"| n8' in text
    assert 'n3 -->|"true"| n4' in text


def test_svg_is_well_formed_and_complete(path: str, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "out.svg"

    assert rune("graph", path, "--svg", str(target)).exit_code == 0

    root = ET.fromstring(target.read_text(encoding="utf-8"))
    words = [each.text for each in root.iter(f"{SVG}text")]
    assert {"start", 'Call <it> & "more"', "true", "false", "error"} <= set(words)
    assert len([each for each in root.iter(f"{SVG}path") if "link" in each.get("class", "")]) == len(PAIRS)
    assert "prefers-color-scheme: dark" in target.read_text(encoding="utf-8")


def test_svg_to_stdout(path: str) -> None:
    assert ET.fromstring(rune("graph", path, "--svg", "-").stdout).tag == f"{SVG}svg"


def test_unwritable_target_is_reported(path: str, tmp_path: pathlib.Path) -> None:
    result = rune("graph", path, "--svg", str(tmp_path / "no" / "such.svg"))

    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def test_invalid_document_is_not_drawn(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text('{"nodes": [{"id": "a", "type": "nope"}]}', encoding="utf-8")

    result = rune("graph", str(file))

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "no node type is called `nope`" in result.stderr


def overlaps(raw: dict[str, Any]) -> list[tuple[int, int]]:
    boxes = lay_out(draw_definition(verdict(raw))).boxes
    return [
        (one, other)
        for one, a in enumerate(boxes)
        for other, b in enumerate(boxes)
        if one < other and a.intersects(b)
    ]


def test_boxes_do_not_overlap() -> None:
    wide = document(
        [node("a"), *(node(f"n{at}") for at in range(12)), node("z")],
        *(f"a>n{at}" for at in range(12)),
        "a>z",
    )

    assert overlaps(WHOLE) == []
    assert overlaps(wide) == []


def switch(count: int, *, targets: int) -> dict[str, Any]:
    """A switch with many outlets; the outlets share the given number of target nodes."""
    rules = [{"expression": f"$trigger.n == {at}"} for at in range(count - 1)]
    outlets = [*(f"case_{at}" for at in range(count - 1)), "fallback"]
    return document(
        [
            node("a", "input"),
            node("s", "switch", {"rules": rules}),
            *(node(f"t{at}") for at in range(targets)),
        ],
        "a>s",
        *(f"s>t{at % targets}:{outlet}" for at, outlet in enumerate(outlets)),
    )


Rectangle = tuple[float, float, float, float]


def rectangles(svg: str) -> tuple[list[Rectangle], list[Rectangle]]:
    """Return left, top, right and bottom of the captions, for an average letter of 6 pixels, and of the boxes."""
    captions: list[Rectangle] = []
    boxes: list[Rectangle] = []
    for each in ET.fromstring(svg).iter():
        if each.tag == f"{SVG}text" and each.get("class") == "caption":
            x, y, width = float(each.attrib["x"]), float(each.attrib["y"]), 6.0 * len(each.text or "")
            captions.append((x - width / 2, y - 9, x + width / 2, y + 3))
        if each.tag == f"{SVG}rect" and each.attrib["class"].startswith("box"):
            left, top, width, height = (float(each.attrib[name]) for name in ("x", "y", "width", "height"))
            boxes.append((left, top, left + width, top + height))
    return captions, boxes


def intersect(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize(("count", "targets"), [(2, 2), (5, 5), (12, 12), (9, 2), (6, 1)])
def test_captions_of_switch_overlap_nothing(count: int, targets: int) -> None:
    svg = draw_svg(draw_definition(verdict(switch(count, targets=targets))))

    captions, boxes = rectangles(svg)
    width, height = (float(ET.fromstring(svg).attrib[name]) for name in ("width", "height"))

    assert len(captions) == count
    others = [(one, other) for at, one in enumerate(captions) for other in [*captions[:at], *boxes]]
    assert [pair for pair in others if intersect(*pair)] == []
    assert all(
        left >= 0 and top >= 0 and right <= width and bottom <= height
        for left, top, right, bottom in captions
    )


def positions(route: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    """Points of a route, also between its bends where it runs along the layers."""
    found = list(route)
    for (x1, y1), (x2, y2) in pairwise(route):
        found += [(x1, y1 + (y2 - y1) * step / 100) for step in range(101) if x1 == x2]
    return found


def test_long_edges_bend_around_boxes() -> None:
    raw = document([node("a"), node("b"), node("c"), node("d")], "a>b", "b>c", "c>d", "a>d")

    layout = lay_out(draw_definition(verdict(raw)))

    route = layout.routes[3]
    assert len(route) > 2
    for box in layout.boxes[1:3]:
        passing = [x for x, y in positions(route) if box.y <= y <= box.y + box.height]
        assert passing
        assert all(x <= box.x or x >= box.x + box.width for x in passing)


def test_long_title_is_truncated() -> None:
    assert "…</text>" in draw_svg(draw_definition(verdict(document([node("a", name="long " * 40)]))))


def test_graph_of_thousand_nodes_is_drawn() -> None:
    raw = document(
        [node(f"n{at}") for at in range(1000)], *(f"n{at}>n{at + 1}" for at in range(999)), "n0>n999"
    )

    assert draw_svg(draw_definition(verdict(raw))).count("<g>") == 1000


def test_edges_are_straight_above_bend_limit() -> None:
    count = 210
    chain = [f"n{at}>n{at + 1}" for at in range(count - 1)]
    raw = document([node(f"n{at}") for at in range(count)], *chain, *(f"n0>n{at}" for at in range(2, count)))

    routes = lay_out(draw_definition(verdict(raw))).routes
    assert len(routes[-1]) == 2


def test_draw_definition_requires_readable_document() -> None:
    with pytest.raises(ValueError, match="could not be read"):
        draw_definition(ValidationResult(()))


@pytest.mark.parametrize("options", [["--mermaid"], ["--svg", "-"]])
def test_graph_prints_no_control_characters_of_a_document(tmp_path: pathlib.Path, options: list[str]) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps(document([node("in", "input", name="a\x1b]0;title\x07b\x9b2J")], id="w")))

    text = rune("graph", str(file), *options).output

    assert [each for each in text if not each.isprintable() and each != "\n"] == []
