"""An author builds the example of the README from nothing, without a mouse: tries it, breaks it, mends it, publishes it
and rolls it out. With `RUNE_CLIP` set to a file the test also stores the scenario as an animated picture."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from rune.client import Client
from rune.documents.textedit import SourceText
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import (
    COUNT_POINTERS,
    add,
    card,
    choose,
    panel,
    press_on,
    rename,
    row,
    tab_to,
    type_into,
)
from tests.support.clips import Clip
from tests.support.paths import ROOT
from tests.support.up_process import UpProcess


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("author"))
    process.start()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(
        browser,
        up.said["url"],
        viewport={"width": 1000, "height": 600},
        color_scheme="light",
    )
    opened.context.add_init_script(COUNT_POINTERS)
    yield opened
    opened.close()


@pytest.fixture
def clip(watched: WatchedPage) -> Iterator[Clip]:
    made = Clip(watched.page, enabled="RUNE_CLIP" in os.environ)
    yield made
    if "RUNE_CLIP" in os.environ:
        made.write(Path(os.environ["RUNE_CLIP"]))


def readme_example() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```yaml file=hello\.yaml\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def write_value(page: Page, text: str) -> None:
    press_on(page, page.get_by_role("button", name="Write value as an expression"))
    type_into(page, page.get_by_role("textbox", name="value", exact=True), text)


def build(page: Page, clip: Clip) -> None:
    """Build the example in the list, which is the twin of the graph."""
    workflow = page.get_by_role("complementary", name="Workflow")
    type_into(page, workflow.get_by_label("Id"), "greeting")
    choose(page, "start")
    add(page, "conditional")
    rename(page, "early")
    type_into(page, page.get_by_role("textbox", name="expression", exact=True), "$start.hour < 12")
    clip.frame("A conditional behind the start, with its expression")
    for outlet, greeting in (("morning", "Good morning"), ("evening", "Good evening")):
        choose(page, "early")
        add(page, "output")
        rename(page, outlet)
        write_value(page, f"{greeting}, {{{{ $start.name }}}}!")
    expect(page.get_by_text("No problems.")).to_be_visible()
    clip.frame("Both branches; the server finds no problem")


def try_it(page: Page, clip: Clip) -> None:
    press_on(page, page.get_by_role("button", name="Try", exact=True).first)
    dialog = page.get_by_role("dialog", name="Try the draft")
    type_into(page, dialog.get_by_role("textbox", name="Input as JSON"), '{"name": "Ada", "hour": 9}')
    clip.frame("Try the draft without publishing it")
    press_on(page, dialog.get_by_role("button", name="Start"))
    expect(page.get_by_role("status", name="Run of the draft").get_by_text("completed")).to_be_visible()


def break_and_mend(page: Page, clip: Clip) -> None:
    choose(page, "early")
    type_into(page, page.get_by_role("textbox", name="expression", exact=True), "$strat.hour < 12")
    problems = page.get_by_role("region", name="Problems")
    expect(problems).to_contain_text("$strat")
    clip.frame("A reference that does not exist is reported while typing")
    press_on(page, page.get_by_role("button", name="Replace $strat by $start"))
    expect(page.get_by_text("No problems.")).to_be_visible()


def publish(page: Page, note: str) -> None:
    press_on(page, page.get_by_role("button", name="Publish", exact=True))
    dialog = page.get_by_role("dialog")
    type_into(page, dialog.get_by_label("Note"), note)
    press_on(page, dialog.get_by_role("button", name="Publish", exact=True))
    expect(page.get_by_text("published text")).to_be_visible()


def roll_out(watched: WatchedPage, clip: Clip) -> None:
    """Publish a second version and send a tenth of the starts to it."""
    page = watched.page
    choose(page, "morning")
    type_into(page, page.get_by_role("textbox", name="value", exact=True), "Hello, {{ $start.name }}!")
    publish(page, "shorter")
    press_on(page, page.locator(".edit-head").get_by_role("link", name="greeting", exact=True))
    press_on(page, page.get_by_role("button", name="Set an alias"))
    type_into(page, page.get_by_role("combobox", name="Alias"), "stable")
    tab_to(page, page.get_by_role("slider"))
    page.keyboard.press("Home")
    for _ in range(20):
        if page.get_by_role("button", name="Send 10 %").is_visible():
            break
        page.keyboard.press("ArrowRight")
    press_on(page, page.get_by_role("button", name="Send 10 %"))
    expect(page.get_by_text("stable 10 %")).to_be_visible()
    clip.frame("Rolled out to 10 %")


def test_author_without_a_mouse_builds_tries_mends_publishes_and_rolls_out_the_example_of_the_readme(
    watched: WatchedPage, up: UpProcess, clip: Clip
) -> None:
    page = watched.open("/editor?view=list")
    expect(page.get_by_role("heading", name="new-workflow", level=1)).to_be_visible()
    clip.frame("A new workflow begins with one node")
    build(page, clip)
    press_on(page, page.get_by_role("group", name="View").get_by_role("button", name="Graph"))
    expect(card(page, "evening")).to_be_visible()
    clip.frame("The graph is a view of the same text")
    try_it(page, clip)
    expect(card(page, "morning")).to_contain_text("succeeded")
    clip.frame("The cards show the run of the draft")
    press_on(page, page.get_by_role("group", name="View").get_by_role("button", name="List"))
    break_and_mend(page, clip)
    publish(page, "first version")
    clip.frame("Published, with a note and the changed lines")

    expect(page).to_have_url(re.compile("/workflows/greeting/edit"))
    with Client(up.said["url"]) as client:
        published = SourceText(client.source("greeting").decode()).value
        # The server has a workflow with the id of the example already.
        assert {**published, "id": "hello"} == SourceText(readme_example()).value
        run = client.start("greeting", {"name": "Ada", "hour": 20})
        assert client.wait(run.execution_id).status == "completed"
        client.set_alias("greeting", "stable", 1)

    page = watched.open("/workflows/greeting/edit?view=list")
    roll_out(watched, clip)
    with Client(up.said["url"]) as client:
        assert client.workflow("greeting").version == 2
    assert page.evaluate("window.pointerEvents") == 0
    watched.check()


def test_selection_without_a_mouse_is_aligned_duplicated_found_connected_and_undone(
    watched: WatchedPage, up: UpProcess
) -> None:
    with Client(up.said["url"]) as client:
        client.deploy(readme_example().replace("id: hello\n", "id: arranged\n"))
    page = watched.open("/workflows/arranged/edit?view=list")
    choose(page, "morning")
    press_on(page, page.get_by_role("checkbox", name="Select evening"), "Space")
    selection = page.get_by_role("complementary", name="Selected nodes")
    expect(selection).to_contain_text("2 nodes")
    press_on(page, selection.get_by_role("button", name="Align left"))
    expect(page.get_by_role("button", name="Undo: align 2 nodes")).to_be_enabled()

    page.keyboard.press("d")
    expect(row(page, "morning_2")).to_be_visible()
    expect(row(page, "evening_2")).to_be_visible()
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    expect(page.get_by_text("published text")).to_be_visible()
    page.keyboard.press("Escape")

    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Id, name, type or text")).to_be_focused()
    page.keyboard.insert_text("Good evening")
    page.keyboard.press("Enter")
    expect(panel(page, "evening")).to_be_visible()
    press_on(page, page.get_by_role("button", name="Remove evening").first)
    expect(row(page, "evening")).to_have_count(0)
    page.keyboard.press("Control+z")
    choose(page, "start")
    page.keyboard.press("c")
    dialog = page.get_by_role("dialog", name="Connect start")
    press_on(page, dialog.get_by_role("combobox", name="Target"), "ArrowDown")
    press_on(page, dialog.get_by_role("button", name="Connect", exact=True))
    expect(page.get_by_role("button", name=re.compile("Undo: connect start to"))).to_be_enabled()
    page.keyboard.press("Control+z")
    expect(page.get_by_text("published text")).to_be_visible()

    assert page.evaluate("window.pointerEvents") == 0
    watched.check()
