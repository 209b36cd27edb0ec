"""An author works on the graph with a pointer: adds nodes from the catalogue, pulls connections, splits an edge,
selects several cards, and takes nodes from one document to another over the clipboard."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from rune.documents.textedit import SourceText
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import card, changed, code, deploy, panel, text_of, write
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

BRANCHED = """\
id: branched
nodes:
  - id: start
    type: input
    position: { x: 0, y: 120 }
  - id: check
    type: conditional
    parameters: { expression: $start.ok }
    position: { x: 330, y: 120 }
  - id: left
    type: log
    parameters: { message: "{{ $start.name }}" }
    position: { x: 700, y: 0 }
  - id: right
    type: log
    position: { x: 700, y: 260 }
edges:
  - { src: start, dst: check }
  - { src: check, dst: left, label: "true" }
"""

PRICED = """\
id: priced
nodes:
  - id: start
    type: input
  - id: price
    type: edit
    parameters: { assignments: [{ name: amount, value: "{{ $start.amount }}" }] }
  - id: done
    type: output
    parameters: { value: "{{ $price.amount }}" }
edges:
  - { src: start, dst: price }
  - { src: price, dst: done }
"""

LINES = """\
id: lines
nodes:
  - id: start
    type: input
  - id: lines
    type: split
    parameters: { input_array: $start.lines }
  - id: cheap
    type: noop
  - id: dear
    type: noop
  - id: either
    type: merge
  - id: all
    type: aggregator
  - id: done
    type: output
edges:
  - { src: start, dst: lines }
  - { src: lines, dst: cheap }
  - { src: lines, dst: dear }
  - { src: cheap, dst: either }
  - { src: dear, dst: either }
  - { src: either, dst: all }
  - { src: all, dst: done }
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("gestures"))
    process.start()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, up.said["url"], viewport={"width": 2000, "height": 900})
    yield opened
    opened.close()


def branched(watched: WatchedPage, up: UpProcess, id: str) -> tuple[Page, str]:
    """Open the branched document beside its text."""
    text = BRANCHED.replace("id: branched", f"id: {id}")
    deploy(up, text)
    page = watched.open(f"/workflows/{id}/edit?text=1")
    expect(page.locator(".edit-card")).to_have_count(4)
    return page, text


def chain(id: str, length: int) -> str:
    nodes = ["  - id: n0\n    type: input\n"]
    nodes += [f"  - id: n{at}\n    type: noop\n" for at in range(1, length)]
    edges = [f"  - {{ src: n{at - 1}, dst: n{at} }}\n" for at in range(1, length)]
    return f"id: {id}\nnodes:\n{''.join(nodes)}edges:\n{''.join(edges)}"


def middle(target: Locator) -> tuple[float, float]:
    box = target.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def pull(page: Page, outlet: Locator, to: tuple[float, float]) -> None:
    """Drag from an outlet to a point and keep the button down."""
    page.mouse.move(*middle(outlet))
    page.mouse.down()
    page.mouse.move(*to, steps=8)


def outlet(page: Page, node: str, name: str = "") -> Locator:
    """Return the handle of an outlet; a node with a single way out has no name for it."""
    named = f'[data-handleid="{name}"]' if name else ".react-flow__handle-right"
    return card(page, node).locator(f".react-flow__handle.source{named}")


def inlet(page: Page, node: str) -> Locator:
    return card(page, node).locator(".react-flow__handle.target")


def toast(page: Page, text: str | re.Pattern[str]) -> Locator:
    return page.locator(".toast").filter(has_text=text)


def test_type_found_in_the_catalogue_is_added_behind_the_chosen_node_by_a_click(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, text = branched(watched, up, "clicked")
    catalogue = page.get_by_role("complementary", name="Node types")
    types = catalogue.get_by_role("button", name=re.compile("^Add "))
    expect(catalogue.get_by_role("region", name="trigger")).to_be_visible()
    catalogue.get_by_role("searchbox", name="Search the node types").fill("nothing like it")
    expect(catalogue).to_contain_text("No type matches.")
    catalogue.get_by_role("searchbox", name="Search the node types").fill("noop")
    expect(types).to_have_count(1)

    card(page, "check").click()
    catalogue.get_by_role("button", name="Add noop").click()

    expect(panel(page, "noop")).to_be_visible()
    expect(page.locator('[aria-label="Edge from check to noop, false"]')).to_be_attached()
    assert changed(text, text_of(page)) == (
        [],
        ["- id: noop", "type: noop", '- { src: check, dst: noop, label: "false" }'],
    )
    watched.check()


def test_type_dragged_onto_the_graph_becomes_a_card_where_it_was_dropped(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, text = branched(watched, up, "dropped")
    canvas = page.locator(".react-flow__pane").bounding_box()
    assert canvas is not None
    x, y = canvas["width"] * 0.4, canvas["height"] * 0.8
    page.get_by_role("button", name="Add noop").drag_to(
        page.locator(".react-flow__pane"), target_position={"x": x, "y": y}
    )

    expect(card(page, "noop")).to_be_visible()
    dropped = middle(card(page, "noop"))
    assert dropped == pytest.approx((canvas["x"] + x, canvas["y"] + y), abs=2)
    removed, added = changed(text, text_of(page))
    assert removed == []
    assert added[:2] == ["- id: noop", "type: noop"]
    assert re.fullmatch(r"position: \{ x: -?\d+, y: -?\d+ \}", added[2])
    assert len(added) == 3
    watched.check()


def test_outlet_is_connected_by_dragging_to_an_inlet_and_to_a_card(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, text = branched(watched, up, "pulled")
    pull(page, outlet(page, "check", "false"), middle(inlet(page, "right")))
    page.mouse.up()
    expect(page.locator('[aria-label="Edge from check to right, false"]')).to_be_attached()
    assert changed(text, text_of(page)) == ([], ['- { src: check, dst: right, label: "false" }'])

    pull(page, outlet(page, "left"), middle(card(page, "right")))
    page.mouse.up()
    expect(page.get_by_role("button", name="Undo: connect left to right")).to_be_enabled()
    pull(page, outlet(page, "start", "error"), middle(card(page, "right")))
    page.mouse.up()
    expect(page.locator('[aria-label="Edge from start to right, on error"]')).to_be_attached()
    _, added = changed(text, text_of(page))
    assert "error: branch" in added
    assert added[-2:] == ["- { src: left, dst: right }", "- { src: start, dst: right, is_error: true }"]
    watched.check()


def test_impossible_connection_says_why_while_the_pointer_is_over_the_card(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, text = branched(watched, up, "hovered")
    hint = page.get_by_role("tooltip")

    pull(page, outlet(page, "left"), middle(card(page, "right")))
    expect(page.locator(".react-flow__connection")).to_be_visible()
    expect(hint).to_have_count(0)
    page.mouse.move(*middle(card(page, "start")), steps=8)
    expect(hint).to_have_text("Not possible: start starts the workflow and takes no input.")
    page.mouse.move(*middle(inlet(page, "check")), steps=8)
    expect(hint).to_have_text("Not possible: check already leads to left: the edge would close a cycle.")
    assert watched.accessibility_problems() == []
    page.mouse.up()

    expect(hint).to_have_count(0)
    expect(toast(page, "Not connected: check already leads to left")).to_be_visible()
    pull(page, inlet(page, "check"), middle(outlet(page, "left")))
    expect(hint).to_have_text("Not possible: check already leads to left: the edge would close a cycle.")
    page.mouse.up()
    assert text_of(page) == text
    watched.check()


def test_connection_pulled_into_the_void_offers_a_node_that_is_connected_there(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, text = branched(watched, up, "void")
    x, y = middle(card(page, "check"))
    pull(page, outlet(page, "check", "false"), (x, y + 120))
    page.mouse.up()
    dialog = page.get_by_role("dialog", name="Add a node after check")
    dialog.get_by_role("combobox", name="Node type").fill("fail")
    dialog.get_by_role("option", name=re.compile("^fail ")).click()

    expect(panel(page, "fail")).to_be_visible()
    box = card(page, "fail").bounding_box()
    assert box is not None
    assert (box["x"], box["y"] + box["height"] / 2) == pytest.approx((x, y + 120), abs=2)
    _, added = changed(text, text_of(page))
    assert added[-1] == '- { src: check, dst: fail, label: "false" }'
    watched.check()


def test_plus_of_an_edge_puts_a_node_into_the_middle_of_it(watched: WatchedPage, up: UpProcess) -> None:
    page, text = branched(watched, up, "inserted")
    page.mouse.click(*middle(page.locator('[aria-label="Edge from check to left, true"] .flow-line')))
    expect(page.get_by_role("complementary", name="Edge from check to left")).to_be_visible()
    page.get_by_role("button", name="Add a node between check and left").click()
    dialog = page.get_by_role("dialog", name="Add a node between check and left")
    dialog.get_by_role("option", name=re.compile("^noop ")).click()

    expect(page.locator('[aria-label="Edge from check to noop, true"]')).to_be_attached()
    expect(page.locator('[aria-label="Edge from noop to left"]')).to_be_attached()
    assert SourceText(text_of(page)).value["edges"] == [
        {"src": "start", "dst": "check"},
        {"src": "check", "dst": "noop", "label": "true"},
        {"src": "noop", "dst": "left"},
    ]
    page.keyboard.press("Escape")
    page.keyboard.press("Control+z")
    expect(card(page, "noop")).to_have_count(0)
    assert text_of(page) == text
    watched.check()


def test_cards_are_selected_together_with_shift_by_clicks_and_by_a_frame(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, _ = branched(watched, up, "shifted")
    selection = page.get_by_role("complementary", name="Selected nodes")
    names = selection.get_by_role("list", name="Names of the selected nodes").get_by_role("listitem")
    card(page, "left").click()
    card(page, "right").click(modifiers=["Shift"])
    expect(names).to_have_text(["left", "right"])
    card(page, "check").click(modifiers=["Shift"])
    expect(selection).to_contain_text("3 nodes")
    card(page, "left").click(modifiers=["Shift"])
    expect(selection).to_contain_text("2 nodes")

    first, last = card(page, "left").bounding_box(), card(page, "right").bounding_box()
    assert first is not None
    assert last is not None
    page.keyboard.down("Shift")
    page.mouse.move(first["x"] - 20, first["y"] - 20)
    page.mouse.down()
    page.mouse.move(last["x"] + last["width"] + 10, last["y"] + last["height"] + 20, steps=8)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(names).to_have_text(["left", "right"])
    watched.check()


def test_small_map_appears_beyond_30_nodes_and_moves_the_view(watched: WatchedPage, up: UpProcess) -> None:
    deploy(up, chain("thirty", 30))
    deploy(up, chain("mapped", 31))
    page = watched.open("/workflows/thirty/edit?node=n0")
    expect(card(page, "n0")).to_be_visible()
    expect(page.locator(".flow-map")).to_have_count(0)
    page = watched.open("/workflows/mapped/edit?node=n0")
    expect(card(page, "n0")).to_be_visible()
    expect(page.get_by_text("No problems.")).to_be_visible()
    expect(card(page, "n30")).to_have_count(0)

    map = page.locator(".flow-map svg")
    box = map.bounding_box()
    assert box is not None
    map.click(position={"x": box["width"] - 10, "y": box["height"] / 2})
    expect(card(page, "n30")).to_be_in_viewport()
    map.click(position={"x": 10, "y": box["height"] / 2})
    expect(card(page, "n0")).to_be_in_viewport()
    watched.check()


def test_cards_give_way_to_one_picture_from_far_away_and_come_back(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, chain("far", 3))
    page = watched.open("/workflows/far/edit")
    start = card(page, "n0")
    expect(start).to_be_visible()
    page.locator(".react-flow__pane").hover()
    for _ in range(12):
        page.mouse.wheel(0, 200)
    picture = page.locator(".flow-far")
    expect(picture).to_be_visible()
    expect(page.locator(".edit-card")).to_have_count(0)
    expect(page.locator(".react-flow__edge")).to_have_count(0)
    page.get_by_role("button", name="Fit View").click()
    expect(start).to_be_visible()
    expect(page.locator(".react-flow__edge")).to_have_count(2)
    expect(picture).to_have_count(0)
    watched.check()


def test_dots_move_with_the_cards(watched: WatchedPage, up: UpProcess) -> None:
    deploy(up, chain("dotted", 3))
    page = watched.open("/workflows/dotted/edit")
    start = card(page, "n0")
    expect(start).to_be_visible()
    dots, pane = page.locator(".flow-dots"), page.locator(".react-flow__pane")
    step = float(dots.evaluate("(each) => parseFloat(getComputedStyle(each).backgroundSize)"))

    def place() -> tuple[float, float]:
        """The place of a card, and its distance from the dot at its left, from 0 to 1."""
        at, first = start.bounding_box(), dots.bounding_box()
        assert at is not None
        assert first is not None
        return at["x"], (at["x"] - first["x"]) % step / step

    before, distance = place()
    box = pane.bounding_box()
    assert box is not None
    corner = box["x"] + 30, box["y"] + 30
    page.mouse.move(*corner)
    page.mouse.down()
    page.mouse.move(corner[0] + 31, corner[1] + 17, steps=4)
    page.mouse.up()
    after, moved = place()
    assert after - before == pytest.approx(31, abs=1)
    assert abs((moved - distance + 0.5) % 1 - 0.5) * step <= 1
    covered = dots.bounding_box()
    assert covered is not None
    assert covered["x"] <= box["x"]
    assert covered["x"] + covered["width"] >= box["x"] + box["width"]
    watched.check()


def test_split_is_drawn_as_a_frame_and_a_join_as_one_card_with_two_edges(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, LINES)
    page = watched.open("/workflows/lines/edit")
    expect(page.get_by_text("No problems.")).to_be_visible()
    frame = page.locator(".flow-frame")
    expect(frame).to_have_text("each item of lines")
    around = frame.bounding_box()
    assert around is not None

    def is_inside(node: str) -> bool:
        x, y = middle(card(page, node))
        return (
            around["x"] < x < around["x"] + around["width"]
            and around["y"] < y < around["y"] + around["height"]
        )

    assert [each for each in ("start", "cheap", "dear", "either", "done") if is_inside(each)] == [
        "cheap",
        "dear",
        "either",
    ]
    for src in ("cheap", "dear"):
        line = page.locator(f'[aria-label="Edge from {src} to either"] .flow-line')
        box = line.bounding_box()
        assert box is not None
        # Both edges end at the one inlet of the join.
        assert box["x"] + box["width"] == pytest.approx(middle(inlet(page, "either"))[0], abs=8)
    watched.check()


def test_copied_nodes_are_pasted_within_a_document_with_their_references_renamed(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, PRICED)
    page = watched.open("/workflows/priced/edit?text=1")
    card(page, "price").click()
    card(page, "done").click(modifiers=["Control"])
    expect(page.get_by_role("complementary", name="Selected nodes")).to_contain_text("2 nodes")

    page.keyboard.press("Control+c")
    page.keyboard.press("Control+v")

    expect(card(page, "price_2")).to_be_visible()
    expect(card(page, "done_2")).to_be_visible()
    pasted = SourceText(text_of(page)).value
    assert pasted["nodes"][3:] == [
        {
            "id": "price_2",
            "type": "edit",
            "parameters": {"assignments": [{"name": "amount", "value": "{{ $start.amount }}"}]},
        },
        {"id": "done_2", "type": "output", "parameters": {"value": "{{ $price_2.amount }}"}},
    ]
    assert pasted["edges"][2:] == [{"src": "price_2", "dst": "done_2"}]
    assert changed(PRICED, text_of(page))[0] == []
    expect(page.get_by_role("button", name="Undo: paste 2 nodes")).to_be_enabled()
    expect(page.locator(".toast")).to_have_count(0)
    page.keyboard.press("Control+z")
    expect(card(page, "price_2")).to_have_count(0)
    assert text_of(page) == PRICED
    watched.check()


def test_nodes_copied_to_another_document_report_what_it_lacks(watched: WatchedPage, up: UpProcess) -> None:
    deploy(up, PRICED.replace("id: priced", "id: giving"))
    deploy(up, "id: taking\nnodes:\n  - id: begin\n    type: input\n  - id: done\n    type: output\n")
    page = watched.open("/workflows/giving/edit")
    card(page, "price").click()
    card(page, "done").click(modifiers=["Control"])
    page.keyboard.press("Control+c")
    expect(page.get_by_role("status").filter(has_text="Copied")).to_be_attached()

    page = watched.open("/workflows/taking/edit?text=1")
    expect(card(page, "begin")).to_be_visible()
    page.keyboard.press("Control+v")

    expect(toast(page, "The pasted nodes mention $start, which this document does not have.")).to_be_visible()
    pasted = SourceText(text_of(page)).value
    assert [each["id"] for each in pasted["nodes"]] == ["begin", "done", "price", "done_2"]
    assert pasted["nodes"][3]["parameters"] == {"value": "{{ $price.amount }}"}
    assert pasted["edges"] == [{"src": "price", "dst": "done_2"}]
    expect(page.get_by_role("region", name="Problems")).to_contain_text("$start")
    watched.check()


def test_text_that_holds_no_nodes_is_not_pasted(watched: WatchedPage, up: UpProcess) -> None:
    page, text = branched(watched, up, "strange")
    code(page).focus()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Shift+End")
    page.keyboard.press("Control+c")
    card(page, "left").click()
    page.keyboard.press("Control+v")
    expect(toast(page, "The clipboard holds no nodes.")).to_be_visible()
    assert text_of(page) == text
    watched.check()


def test_problem_is_shown_on_its_card_and_at_its_line_and_go_to_leads_there(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, _ = branched(watched, up, "wrong")
    write(page, "$start.ok", "$strat.ok")

    expect(card(page, "check").get_by_role("img", name="1 problem", exact=True)).to_be_visible()
    expect(page.locator(".card-alert")).to_have_count(1)
    marker = page.locator(".edit-code .cm-lint-marker-error")
    expect(marker).to_be_visible()
    line = page.locator(".edit-code .cm-line", has_text="$strat").bounding_box()
    assert line is not None
    assert line["y"] <= middle(marker)[1] <= line["y"] + line["height"]

    card(page, "left").click()
    expect(panel(page, "left")).to_be_visible()
    page.get_by_role("button", name="Go to nodes[1].parameters.expression").click()
    expect(panel(page, "check")).to_be_visible()
    expect(code(page)).to_be_focused()
    page.keyboard.insert_text("# here: ")
    expect(page.locator(".edit-code .cm-line", has_text="expression: # here: $strat")).to_be_visible()
    write(page, "# here: $strat.ok", "$start.ok")
    expect(page.locator(".card-alert")).to_have_count(0)
    expect(marker).to_have_count(0)
    watched.check()


def test_go_to_moves_the_graph_to_a_card_that_is_not_on_the_screen(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, chain("distant", 31))
    page = watched.open("/workflows/distant/edit?node=n0&text=1")
    expect(page.get_by_text("No problems.")).to_be_visible()
    expect(card(page, "n30")).to_have_count(0)
    write(page, "id: n30\n    type: noop", "id: n30\n    type: nop")

    page.get_by_role("button", name="Go to nodes[30].type").click()
    expect(card(page, "n30")).to_be_in_viewport()
    expect(panel(page, "n30")).to_be_visible()
    watched.check()
