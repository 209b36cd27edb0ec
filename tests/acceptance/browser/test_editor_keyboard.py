"""An author without a mouse: settings, edges, notes, redo, clipboard, pins, a run from a node, a merge, and moving
cards. Every dialog and form of the editor is accessible in both themes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import (
    COUNT_POINTERS,
    card,
    changed,
    choose,
    code,
    deploy,
    panel,
    press_on,
    row,
    source,
    tab_to,
    text_of,
    type_into,
    write,
)
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

BRANCHED = """\
# Tells somebody.
id: branched
nodes:
  - id: start
    type: input
  - id: check
    type: conditional
    parameters: { expression: $start.ok }
  - id: left
    type: log
    parameters: { message: "{{ $start.name }}" }
  - id: right
    type: output
    parameters: { value: "{{ $start.amount }}" }
edges:
  - { src: start, dst: check }
  - { src: check, dst: left, label: "true" }
  - { src: check, dst: right, label: "false" }
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("keyboard"))
    process.start()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, up.said["url"], viewport={"width": 2200, "height": 900})
    opened.context.add_init_script(COUNT_POINTERS)
    yield opened
    assert opened.page.evaluate("window.pointerEvents") == 0
    opened.check()
    opened.close()


def opened(watched: WatchedPage, up: UpProcess, id: str, query: str) -> tuple[Page, str]:
    text = BRANCHED.replace("id: branched", f"id: {id}")
    deploy(up, text)
    page = watched.open(f"/workflows/{id}/edit?{query}")
    expect(page.get_by_text("No problems.")).to_be_visible()
    return page, text


def test_settings_note_and_edge_are_changed_undone_and_done_again_without_a_mouse(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, text = opened(watched, up, "settings", "view=list&text=1")
    choose(page, "left")
    press_on(page, panel(page, "left").get_by_role("button", name="Settings"))
    type_into(page, panel(page, "left").get_by_label("Note"), "For the log")
    type_into(page, panel(page, "left").get_by_label("Attempts"), "3")
    assert changed(text, text_of(page)) == ([], ["notes: For the log", "retry: { max_attempts: 3 }"])

    edges = page.get_by_role("list", name="Edges of check")
    press_on(page, edges.get_by_role("button", name="goes to left if true"))
    edge = page.get_by_role("complementary", name="Edge from check to left")
    tab_to(page, edge.get_by_role("combobox", name="Outlet"))
    page.keyboard.press("ArrowDown")
    expect(edges.get_by_role("button", name="goes to left if false")).to_be_visible()
    tab_to(page, edges.get_by_role("button", name="goes to left if false"))
    edited = text_of(page)
    for undo, redo in (("Control+z", "Control+y"), ("Control+z", "Control+Shift+z")):
        page.keyboard.press(undo)
        expect(edges.get_by_role("button", name="goes to left if true")).to_be_visible()
        page.keyboard.press(redo)
        expect(edges.get_by_role("button", name="goes to left if false")).to_be_visible()
    assert text_of(page) == edited


def test_edge_is_split_and_nodes_are_copied_pasted_and_removed_without_a_mouse(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, text = opened(watched, up, "split-edge", "view=list&text=1")
    press_on(page, page.get_by_role("button", name="Add a node between start and check"))
    dialog = page.get_by_role("dialog", name="Add a node between start and check")
    expect(dialog.get_by_role("combobox", name="Node type")).to_be_focused()
    page.keyboard.insert_text("noop")
    page.keyboard.press("Enter")
    expect(row(page, "noop")).to_contain_text("after start")
    expect(row(page, "check")).to_contain_text("after noop")

    choose(page, "left")
    page.keyboard.press("Control+c")
    page.keyboard.press("Control+v")
    expect(panel(page, "left_2")).to_be_visible()
    choose(page, "left_2")
    page.keyboard.press("Delete")
    expect(row(page, "left_2")).to_have_count(0)
    edges = page.get_by_role("list", name="Edges of check")
    press_on(page, edges.get_by_role("button", name="goes to right if false"))
    page.keyboard.press("Delete")
    expect(edges.get_by_role("button", name="goes to right if false")).to_have_count(0)
    for _ in range(4):
        page.keyboard.press("Control+z")
    expect(page.get_by_text("published text")).to_be_visible()
    assert text_of(page) == text


def test_card_is_moved_with_arrows_and_the_graph_is_laid_out_without_a_mouse(
    watched: WatchedPage, up: UpProcess
) -> None:
    page, text = opened(watched, up, "arrows", "text=1")
    tab_to(page, card(page, "left"))
    page.keyboard.press("Enter")
    expect(panel(page, "left")).to_be_visible()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expect(page.get_by_role("button", name="Undo: move left")).to_be_enabled()
    first = re.search(r"position: \{ x: (-?\d+), y: (-?\d+) \}", text_of(page))
    assert first is not None
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    expect(code(page)).to_contain_text(f"x: {int(first[1]) - 5}, y: {int(first[2]) - 5}")

    page.keyboard.press("Escape")
    page.keyboard.press("l")
    expect(page.get_by_role("button", name="Undo: lay out the graph")).to_be_enabled()
    assert text_of(page) == text
    page.keyboard.press("Control+a")
    selection = page.get_by_role("complementary", name="Selected nodes")
    expect(selection).to_contain_text("4 nodes")
    press_on(page, selection.get_by_role("button", name="Distribute horizontally"))
    expect(page.get_by_role("button", name="Undo: distribute 4 nodes")).to_be_enabled()
    assert text_of(page).count("position: { x: ") == 4
    page.keyboard.press("l")
    expect(page.get_by_role("button", name="Undo: lay out 4 nodes")).to_be_enabled()


def test_output_is_pinned_and_the_draft_runs_from_a_node_without_a_mouse(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, BRANCHED.replace("id: branched", "id: pinning"))
    with Client(up.said["url"]) as client:
        former = client.start("pinning", {"ok": False, "amount": 5}).execution_id
        assert client.wait(former).status == "completed"
    page = watched.open("/workflows/pinning/edit?view=list")
    choose(page, "check")
    press_on(page, panel(page, "check").get_by_role("button", name="Try", exact=True))
    press_on(page, panel(page, "check").get_by_role("button", name="Pin the output of check"))
    outlet = panel(page, "check").get_by_role("combobox", name="Outlet")
    tab_to(page, outlet)
    page.keyboard.press("ArrowDown")
    expect(outlet).to_have_value("false")
    type_into(page, panel(page, "check").get_by_role("textbox", name="Output"), '{"result": false}')
    expect(row(page, "check").get_by_label("output is pinned")).to_be_visible()

    choose(page, "right")
    press_on(page, panel(page, "right").get_by_role("button", name="Try", exact=True))
    press_on(page, panel(page, "right").get_by_role("button", name="Run from right"))
    status = page.get_by_role("status", name="Run of the draft")
    expect(status.get_by_text("completed")).to_be_visible()
    link = status.get_by_role("link", name="Show the run").get_attribute("href")
    assert link is not None
    with Client(up.said["url"]) as client:
        assert client.output(link.rpartition("/")[2]) == 5


def test_draft_is_merged_with_a_newer_version_without_a_mouse(watched: WatchedPage, up: UpProcess) -> None:
    page, text = opened(watched, up, "merging", "view=list")
    choose(page, "left")
    press_on(page, panel(page, "left").get_by_role("button", name="Settings"))
    type_into(page, panel(page, "left").get_by_label("Timeout"), "7")
    with Client(up.said["url"]) as client:
        newer = text.replace("# Tells somebody.", "# Tells everybody.").replace("$start.ok", "$start.fine")
        client.deploy(newer, workflow="merging")
    press_on(page, page.get_by_role("button", name="Publish", exact=True))
    dialog = page.get_by_role("dialog", name="Another author published meanwhile")
    press_on(page, dialog.get_by_role("button", name="Merge into the draft"))
    expect(dialog).to_have_count(0)
    press_on(page, page.get_by_role("button", name="Publish", exact=True))
    press_on(page, page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True))
    expect(page.get_by_text("Published version 3 of merging.")).to_be_visible()

    published = source(up, "merging")
    assert published.startswith("# Tells everybody.\n")
    assert "expression: $start.fine" in published
    assert "    timeout: 7\n" in published


class Checked:
    """A page of the editor that is checked with axe part by part."""

    def __init__(self, browser: Browser, up: UpProcess, id: str, theme: Any) -> None:
        self.text = BRANCHED.replace("id: branched", f"id: {id}")
        deploy(up, self.text)
        viewport = {"width": 2200, "height": 900}
        self.watched = WatchedPage(browser, up.said["url"], color_scheme=theme, viewport=viewport)
        self.page = self.watched.open(f"/workflows/{id}/edit?text=1")
        expect(self.page.get_by_text("No problems.")).to_be_visible()
        self.problems: dict[str, list[str]] = {}

    def check(self, name: str) -> None:
        found = self.watched.accessibility_problems()
        if found:
            self.problems[name] = found

    def check_dialog(self, title: str) -> None:
        """Check an open dialog and close it."""
        dialog = self.page.get_by_role("dialog", name=title)
        expect(dialog).to_be_visible()
        expect(dialog.locator("[aria-busy=true]")).to_have_count(0)
        self.check(title)
        self.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)

    def end(self) -> None:
        self.watched.check()
        self.watched.close()
        assert self.problems == {}, self.problems


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_dialog_of_the_editor_is_accessible(browser: Browser, up: UpProcess, theme: Any) -> None:
    id = f"dialogs-{theme}"
    checked = Checked(browser, up, id, theme)
    page = checked.page
    card(page, "left").click()
    for key, title in (("a", "Add a node after left"), ("c", "Connect left"), ("r", "Rename left")):
        page.keyboard.press(key)
        checked.check_dialog(title)
    page.keyboard.press("/")
    checked.check_dialog("Find a node")
    head = page.locator(".edit-head")
    head.get_by_role("button", name="Try").click()
    checked.check_dialog("Try the draft")

    write(page, "# Tells somebody.", "# Tells us.")
    head.get_by_role("button", name="Publish").click()
    checked.check_dialog(f"Publish a version of {id}")
    # The version of another author differs in the same line.
    with Client(up.said["url"]) as client:
        newer = checked.text.replace("# Tells somebody.", "# Tells all.").replace("$start.ok", "$start.fine")
        client.deploy(newer, workflow=id)
    head.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("button", name="Keep yours")).to_be_visible()
    checked.check_dialog("Another author published meanwhile")
    checked.end()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_graph_and_every_form_of_the_editor_are_accessible(
    browser: Browser, up: UpProcess, theme: Any
) -> None:
    checked = Checked(browser, up, f"forms-{theme}", theme)
    page = checked.page
    checked.check("graph")
    card(page, "left").click()
    form = panel(page, "left")
    expect(form).to_be_visible()
    checked.check("parameters")
    form.get_by_role("button", name="Settings").click()
    form.get_by_label("Note").fill("For the log")
    expect(card(page, "left").locator(".card-note")).to_be_visible()
    checked.check("settings")
    page.locator('[aria-label="Edge from start to check"]').focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name="Edge from start to check")).to_be_visible()
    checked.check("edge")
    page.keyboard.press("Control+a")
    expect(page.get_by_role("complementary", name="Selected nodes")).to_be_visible()
    checked.check("selection")
    write(page, "$start.ok", "$strat.ok")
    expect(card(page, "check").get_by_role("img", name="1 problem", exact=True)).to_be_visible()
    checked.check("problem")
    checked.end()
