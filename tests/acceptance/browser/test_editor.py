"""The editor: text and graph are one document, two authors lose nothing, nodes are tried on old data, large
documents."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import (
    add,
    card,
    code,
    deploy,
    panel,
    rename,
    row,
    source,
    text_of,
)
from tests.support.cli_process import Rune
from tests.support.large_executions import large_document
from tests.support.paths import ROOT
from tests.support.up_process import UpProcess
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

N8N_EXPORT = ROOT / "tests/unit/importers/cases/n8n/25-code.json"
EDIT_MS = 400  # of the main thread, with everything that a gesture and the check after it draw

COMMENTED = """\
# Watches prices.
id: watch
nodes:
  # Begins here.
  - id: start
    type: input
  - id: note   # tells somebody
    type: log
    parameters: { message: "hello {{ $start.name }}" }
edges:
  - { src: start, dst: note }
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("editor"))
    process.start()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, up.said["url"], viewport={"width": 1500, "height": 900})
    yield opened
    opened.close()


def test_text_and_graph_are_one_document_and_a_draft_survives_a_reload(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, COMMENTED)
    page = watched.open("/workflows/watch/edit?text=1")
    expect(page.locator(".edit-card")).to_have_count(2)

    card(page, "note").click()
    rename(page, "tell")
    assert text_of(page) == COMMENTED.replace("id: note ", "id: tell ").replace("dst: note", "dst: tell")
    page.keyboard.press("Escape")
    code(page).focus()
    page.keyboard.press("Control+Home")
    page.keyboard.insert_text("# Typed.\n")
    expect(page.get_by_text("draft, kept in this browser")).to_be_visible()

    page.reload()
    expect(page.get_by_text("Your draft was kept in this browser.")).to_be_visible()
    expect(card(page, "tell")).to_be_visible()
    page.get_by_role("button", name="Undo: typing").click()
    page.get_by_role("button", name="Undo: rename note to tell").click()
    assert text_of(page) == COMMENTED
    expect(card(page, "note")).to_be_visible()
    watched.check()


def test_impossible_connection_is_refused_with_the_reason(watched: WatchedPage, up: UpProcess) -> None:
    deploy(up, COMMENTED.replace("id: watch", "id: refused"))
    page = watched.open("/workflows/refused/edit")
    card(page, "note").click()

    page.keyboard.press("c")

    dialog = page.get_by_role("dialog", name="Connect note")
    expect(dialog).to_contain_text("start starts the workflow and takes no input")
    expect(dialog.get_by_role("button", name="Connect")).to_be_disabled()
    watched.check()


def test_node_is_moved_by_dragging_and_the_position_makes_no_version(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, COMMENTED.replace("id: watch", "id: moved"))
    page = watched.open("/workflows/moved/edit")
    expect(card(page, "note")).to_be_visible()
    box = card(page, "note").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 80, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 160, steps=5)
    page.mouse.up()
    expect(page.get_by_role("button", name="Undo: move note")).to_be_visible()

    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("Published version 1 of moved.")).to_be_visible()

    assert "position: { x: " in source(up, "moved")
    with Client(up.said["url"]) as client:
        assert client.workflow("moved").version == 1
    watched.check()


def write(page: Page, before: str, after: str) -> None:
    """Replace a piece of the text in the text pane."""
    page.evaluate(
        """([before, after]) => {
          const content = document.querySelector(".edit-code").shadowRoot.querySelector(".cm-content");
          const view = content.cmTile?.view ?? content.cmView.view;
          const from = view.state.doc.toString().indexOf(before);
          view.dispatch({ changes: { from, to: from + before.length, insert: after } });
        }""",
        [before, after],
    )


def test_second_author_merges_instead_of_overwriting(browser: Browser, up: UpProcess) -> None:
    deploy(up, COMMENTED.replace("id: watch", "id: shared"))
    url = up.said["url"]
    first, second = WatchedPage(browser, url), WatchedPage(browser, url)
    for each in (first, second):
        page = each.open("/workflows/shared/edit?view=text")
        expect(code(page)).to_contain_text("Watches prices.")

    write(first.page, "# Watches prices.", "# Watches all prices.")
    write(first.page, 'message: "hello', 'message: "good day')
    first.page.get_by_role("button", name="Publish", exact=True).click()
    first.page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    expect(first.page.get_by_text("Published version 2 of shared.")).to_be_visible()
    write(second.page, "# Begins here.", "# Starts here.")
    write(second.page, 'message: "hello', 'message: "good night')
    second.page.get_by_role("button", name="Publish", exact=True).click()
    dialog = second.page.get_by_role("dialog", name="Another author published meanwhile")
    expect(dialog.get_by_role("button", name="Merge into the draft")).to_be_disabled()
    dialog.get_by_role("button", name="Keep yours").click()
    dialog.get_by_role("button", name="Merge into the draft").click()
    expect(code(second.page)).to_contain_text("Watches all prices.")
    second.page.get_by_role("button", name="Publish", exact=True).click()
    second.page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    expect(second.page.get_by_text("Published version 3 of shared.")).to_be_visible()

    published = source(up, "shared")
    assert "# Watches all prices." in published
    assert "# Starts here." in published
    assert 'message: "good night' in published
    for each in (first, second):
        each.check()
        each.close()


def test_comment_published_while_dialog_is_open_is_merged(browser: Browser, up: UpProcess) -> None:
    deploy(up, COMMENTED.replace("id: watch", "id: raced"))
    url = up.said["url"]
    first, second = WatchedPage(browser, url), WatchedPage(browser, url)
    for each in (first, second):
        page = each.open("/workflows/raced/edit?view=text")
        expect(code(page)).to_contain_text("Watches prices.")
    write(first.page, "# Begins here.", "# Starts here.")
    first.page.get_by_role("button", name="Publish", exact=True).click()
    open_dialog = first.page.get_by_role("dialog", name="Publish a version of raced")
    expect(open_dialog.get_by_label("Note")).to_be_visible()

    write(second.page, "# Watches prices.", "# Watches all prices.")
    second.page.get_by_role("button", name="Publish", exact=True).click()
    second.page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    expect(second.page.get_by_text("Published version 1 of raced.")).to_be_visible()

    open_dialog.get_by_role("button", name="Publish", exact=True).click()
    dialog = first.page.get_by_role("dialog", name="Another author published meanwhile")
    dialog.get_by_role("button", name="Merge into the draft").click()
    expect(code(first.page)).to_contain_text("Watches all prices.")
    first.page.get_by_role("button", name="Publish", exact=True).click()
    first.page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    expect(first.page.get_by_text("Published version 1 of raced.")).to_be_visible()

    published = source(up, "raced")
    assert "# Watches all prices." in published
    assert "# Starts here." in published
    for each in (first, second):
        each.check()
        each.close()


def test_cards_selected_together_are_aligned_and_laid_out_in_one_step(
    watched: WatchedPage, up: UpProcess
) -> None:
    text = COMMENTED.replace("id: watch", "id: lined")
    deploy(up, text)
    page = watched.open("/workflows/lined/edit?text=1")
    card(page, "start").click()
    card(page, "note").click(modifiers=["Control"])
    selection = page.get_by_role("complementary", name="Selected nodes")
    expect(selection).to_contain_text("2 nodes")

    selection.get_by_role("button", name="Align left").click()
    expect(page.get_by_role("button", name="Undo: align 2 nodes")).to_be_enabled()
    columns = re.findall(r"position: \{ x: (-?\d+),", text_of(page))
    assert len(columns) == 2
    assert len(set(columns)) == 1
    page.get_by_role("button", name="Lay out the selection").click()
    expect(page.get_by_role("button", name="Undo: lay out 2 nodes")).to_be_enabled()
    page.get_by_role("button", name="Undo: lay out 2 nodes").click()
    page.get_by_role("button", name="Undo: align 2 nodes").click()

    assert text_of(page) == text
    watched.check()


def test_schedule_shows_its_next_times_while_the_cron_expression_is_written(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(
        up,
        "id: nightly\nnodes:\n  - id: night\n    type: schedule\n    parameters: { cron: 30 2 * * 1 }\n"
        "  - id: done\n    type: output\nedges:\n  - { src: night, dst: done }\n",
    )
    page = watched.open("/workflows/nightly/edit?node=night")
    ticks = page.get_by_role("list", name="Next times, UTC")
    expect(ticks.get_by_role("listitem")).to_have_count(5)
    expect(ticks.get_by_role("listitem").first).to_contain_text("Mon")

    page.get_by_label("cron", exact=True).fill("30 2 * * 5")
    expect(ticks.get_by_role("listitem").first).to_contain_text("Fri")
    page.get_by_label("cron", exact=True).fill("30 2 * *")
    expect(panel(page, "night")).to_contain_text("does not have five fields")
    watched.check()


@pytest.mark.parametrize("theme", ["light", "dark"] if WHOLE else ["dark"])
def test_selection_try_tab_and_find_dialog_have_no_accessibility_problems(
    browser: Browser, up: UpProcess, theme: Any
) -> None:
    deploy(up, COMMENTED.replace("id: watch", f"id: axe_{theme}"))
    watched = WatchedPage(browser, up.said["url"], color_scheme=theme)
    page = watched.open(f"/workflows/axe_{theme}/edit?view=list")
    page.get_by_role("checkbox", name="Select start").check()
    page.get_by_role("checkbox", name="Select note").check()
    expect(page.get_by_role("complementary", name="Selected nodes")).to_be_visible()
    assert watched.accessibility_problems() == []
    row(page, "note").click()
    panel(page, "note").get_by_role("button", name="Try").click()
    expect(page.get_by_role("region", name="Pinned output")).to_be_visible()
    assert watched.accessibility_problems() == []
    page.get_by_role("button", name="Find a node").click()
    expect(page.get_by_role("dialog", name="Find a node")).to_be_visible()
    assert watched.accessibility_problems() == []
    watched.check()
    watched.close()


def test_document_of_2000_nodes_is_edited_within_the_budget_and_published(
    watched: WatchedPage, up: UpProcess
) -> None:
    text = large_document(2_000)
    assert len(text) > 256 * 1024
    deploy(up, text)
    page = watched.open("/workflows/large/edit?node=n1")
    expect(panel(page, "n1")).to_be_visible()
    expect(page.get_by_text("No problems.")).to_be_visible()
    session = page.context.new_cdp_session(page)
    # Time of the main thread, so that other programs on the machine do not count.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return 1_000 * float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    spent = {}
    began = busy()
    page.get_by_role("combobox", name="level").select_option("warning")
    expect(page.get_by_role("button", name="Undo: change level of n1")).to_be_visible()
    spent["change"] = busy() - began
    page.get_by_role("heading", level=1).click()
    began = busy()
    add(page, "noop")
    expect(panel(page, "noop")).to_be_visible()
    spent["add"] = busy() - began
    page.keyboard.press("Escape")
    began = busy()
    page.keyboard.press("Control+z")
    expect(page.get_by_role("button", name="Undo: change level of n1")).to_be_visible()
    spent["undo"] = busy() - began
    page.keyboard.press("Control+z")
    expect(page.get_by_text("published text")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.insert_text("number 1777")
    page.keyboard.press("Enter")
    expect(panel(page, "n1777")).to_be_visible()
    expect(card(page, "n1777")).to_be_visible()
    page.get_by_role("combobox", name="level").select_option("warning")
    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("Published version 2 of large.")).to_be_visible()

    assert source(up, "large").count("level: warning") == 1
    assert max(spent.values()) < EDIT_MS, spent
    watched.check()


def test_import_reports_what_was_not_translated_and_opens_the_result_unsaved(
    watched: WatchedPage, up: UpProcess
) -> None:
    page = watched.open("/workflows")
    page.get_by_role("button", name="Import").click()
    dialog = page.get_by_role("dialog")
    with page.expect_file_chooser() as chooser:
        dialog.get_by_role("button", name="Choose a file").click()
    chooser.value.set_files(N8N_EXPORT)
    expect(dialog.get_by_label("Document")).to_have_value(re.compile("n8n-nodes-base.code"))
    dialog.get_by_role("button", name="Import", exact=True).click()

    expect(dialog.get_by_role("heading", name="Imported from n8n")).to_be_visible()
    lost = dialog.get_by_role("list", name="What became of each element").get_by_role("listitem")
    expect(lost).to_have_count(1)
    expect(lost).to_contain_text("code cannot be imported")
    assert watched.accessibility_problems() == []
    dialog.get_by_role("button", name="carried").click()
    expect(lost.first).to_contain_text("name")
    dialog.get_by_role("button", name="Open in the editor").click()

    expect(page.get_by_role("heading", name="Code", level=1)).to_be_visible()
    expect(card(page, "Prepare")).to_be_visible()
    expect(page.get_by_text("draft, kept in this browser")).to_be_visible()
    with Client(up.said["url"]) as client:
        assert "code" not in {each.workflow_id for each in client.workflows()}
    watched.check()


def test_import_gives_a_test_with_the_pinned_data_to_download(watched: WatchedPage, tmp_path: Path) -> None:
    export = {
        "name": "Prices",
        "nodes": [
            {"name": "Start", "type": "n8n-nodes-base.manualTrigger", "parameters": {}},
            {
                "name": "Quote",
                "type": "n8n-nodes-base.httpRequest",
                "typeVersion": 4.2,
                "parameters": {"url": "https://prices.example/quote"},
            },
        ],
        "connections": {"Start": {"main": [[{"node": "Quote", "type": "main", "index": 0}]]}},
        "pinData": {"Quote": [{"json": {"price": 12}}]},
    }
    page = watched.open("/workflows")
    page.get_by_role("button", name="Import").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Document").fill(json.dumps(export))
    dialog.get_by_role("button", name="Import", exact=True).click()

    made = dialog.get_by_role("region", name="Test with the pinned data")
    expect(made.get_by_label("Test", exact=True)).to_contain_text("price: 12")
    expect(made.get_by_role("button", name="Copy the test")).to_be_visible()
    assert watched.accessibility_problems() == []
    with page.expect_download() as download:
        made.get_by_role("link", name="Download test_prices.yaml").click()
    download.value.save_as(tmp_path / "test_prices.yaml")

    done = Rune(tmp_path)("test", str(tmp_path / "test_prices.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    watched.check()


def test_import_of_a_document_of_no_known_tool_says_why_it_is_refused(watched: WatchedPage) -> None:
    page = watched.open("/workflows")
    page.get_by_role("button", name="Import").click()
    dialog = page.get_by_role("dialog", name="Import a workflow")
    dialog.get_by_label("Document").fill('{"jobs": {"build": {}}}')
    dialog.get_by_role("button", name="Import", exact=True).click()
    expect(dialog.locator(".notice")).to_contain_text("format")
    watched.check()


PINNED = """\
id: pinned
nodes:
  - id: start
    type: input
  - id: risky
    type: fail
    parameters: { message: must not be called }
  - id: done
    type: output
    parameters: { value: "{{ $risky.amount }}" }
edges:
  - { src: start, dst: risky }
  - { src: risky, dst: done }
"""

PRICED = """\
id: priced
nodes:
  - id: start
    type: input
  - id: price
    type: edit
    parameters: { assignments: [ { name: amount, value: "{{ $start.amount }}" } ] }
  - id: done
    type: output
    parameters: { value: "{{ $price.amount }}" }
edges:
  - { src: start, dst: price }
  - { src: price, dst: done }
"""


def output_of_trial(page: Page, up: UpProcess) -> Any:
    """Wait for the run of the draft and return its output."""
    status = page.get_by_role("status", name="Run of the draft")
    expect(status.get_by_text("completed")).to_be_visible()
    link = status.get_by_role("link", name="Show the run").get_attribute("href")
    assert link is not None
    with Client(up.said["url"]) as client:
        return client.output(link.rpartition("/")[2])


def test_node_with_a_pinned_output_is_not_called_when_the_draft_is_tried(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, PINNED)
    page = watched.open("/workflows/pinned/edit?node=risky")
    panel(page, "risky").get_by_role("button", name="Try").click()
    page.get_by_role("button", name="Pin the output of risky").click()
    page.get_by_role("textbox", name="Output").fill('{"amount": 7}')
    expect(card(page, "risky").get_by_label("output is pinned")).to_be_visible()
    page.reload()
    expect(card(page, "risky").get_by_label("output is pinned")).to_be_visible()

    page.locator(".edit-head").get_by_role("button", name="Try").click()
    dialog = page.get_by_role("dialog", name="Try the draft")
    expect(dialog).to_contain_text("Not called, because their output is pinned: risky.")
    dialog.get_by_role("button", name="Start").click()

    assert output_of_trial(page, up) == 7
    assert source(up, "pinned") == PINNED
    watched.check()


def test_draft_runs_from_a_node_with_the_data_of_a_former_execution(
    watched: WatchedPage, up: UpProcess
) -> None:
    deploy(up, PRICED)
    with Client(up.said["url"]) as client:
        former = client.start("priced", {"amount": 5}).execution_id
        assert client.wait(former).status == "completed"
    page = watched.open("/workflows/priced/edit?node=done")
    page.get_by_role("textbox", name="value", exact=True).focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("now {{ $price.amount }}")
    expect(page.get_by_text("draft, kept in this browser")).to_be_visible()
    panel(page, "done").get_by_role("button", name="Try").click()
    page.get_by_role("button", name="Run from done").click()

    assert output_of_trial(page, up) == "now 5"
    watched.check()
