"""Expressions in the editor: completion, and previews on the data of former executions, also for nodes that are not in
them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import add, code, deploy, panel, rename, row
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

SHOP = """\
id: shop
nodes:
  - id: start
    type: input
  - id: price
    type: edit
    parameters: { assignments: [ { name: amount, value: "{{ $start.amount }}" } ] }
  - id: each
    type: split
    parameters: { input_array: "{{ $start.rows }}" }
  - id: named
    type: edit
    parameters: { assignments: [ { name: title, value: "{{ $item.name }}" } ] }
  - id: all
    type: aggregator
  - id: done
    type: output
    parameters: { value: "{{ $price.amount }}" }
edges:
  - { src: start, dst: price }
  - { src: price, dst: each }
  - { src: each, dst: named }
  - { src: named, dst: all }
  - { src: all, dst: done }
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("expressions"))
    process.start()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def runs(up: UpProcess) -> list[str]:
    """The ids of two executions, the older one first."""
    deploy(up, SHOP)
    made = []
    with Client(up.said["url"]) as client:
        for amount in (5, 6):
            rows = [{"name": f"a{amount}"}, {"name": f"b{amount}"}]
            run = client.start("shop", {"amount": amount, "rows": rows}).execution_id
            assert client.wait(run).status == "completed"
            made.append(run)
    return made


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, up.said["url"], viewport={"width": 1500, "height": 900})
    yield opened
    opened.check()
    opened.close()


def add_log(page: Page, after: str) -> Locator:
    """Add a node behind another one and return the field of its message, an expression."""
    row(page, after).click()
    expect(panel(page, after)).to_be_visible()
    add(page, "log")
    expect(panel(page, "log")).to_be_visible()
    page.get_by_role("button", name="Write message as an expression").click()
    return page.get_by_role("textbox", name="message", exact=True)


def preview(page: Page) -> Locator:
    return page.get_by_role("status", name="Preview of message")


def options(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Completions").get_by_role("option")


def test_expression_of_new_node_is_previewed_on_the_chosen_execution(
    watched: WatchedPage, runs: list[str]
) -> None:
    page = watched.open("/workflows/shop/edit?view=list")
    message = add_log(page, "price")
    message.focus()
    page.keyboard.insert_text("{{ $price.amount }} {{ len($json.rows) }}")
    expect(preview(page)).to_contain_text("6 2")
    page.get_by_role("combobox", name="On the data of").select_option(runs[0])
    expect(preview(page)).to_contain_text("5 2")

    # the executions have the node under its former id
    row(page, "price").click()
    rename(page, "cost")
    row(page, "log").click()
    expect(message).to_contain_text("$cost.amount")
    expect(preview(page)).to_contain_text("6 2")
    assert watched.accessibility_problems() == []


def test_expression_inside_a_split_is_previewed_on_the_chosen_item(
    watched: WatchedPage, runs: list[str]
) -> None:
    page = watched.open("/workflows/shop/edit?view=list")
    message = add_log(page, "named")
    message.focus()
    page.keyboard.insert_text("{{ $item.name }} {{ $named.title }} {{ $index }}")
    expect(preview(page)).to_contain_text("a6 a6 0")
    page.get_by_label("Item").fill("each:1")
    expect(preview(page)).to_contain_text("b6 b6 1")
    page.get_by_label("Item").fill("each:2")
    expect(preview(page)).to_contain_text("no item 2 of each")


def test_completion_offers_what_can_have_run_and_the_keys_of_former_outputs(
    watched: WatchedPage, runs: list[str]
) -> None:
    page = watched.open("/workflows/shop/edit?view=list")
    message = add_log(page, "named")
    expect(page.get_by_label("Item")).to_be_visible()  # the server has checked the draft
    message.focus()
    page.keyboard.type("{{ $")
    for name in ("$named", "$price", "$item"):
        expect(options(page).filter(has_text=name)).not_to_have_count(0)
    for name in ("$done", "$all", "$log"):
        expect(options(page).filter(has_text=name)).to_have_count(0)
    page.keyboard.type("named.")
    expect(options(page)).to_have_count(2)
    expect(options(page).first).to_contain_text("name")
    expect(options(page).last).to_contain_text("title")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type(" }}")
    expect(message).to_have_text("{{ $named.title }}")
    expect(preview(page)).to_contain_text("a6")


def test_completion_in_the_text_offers_what_can_have_run_at_the_cursor(
    watched: WatchedPage, runs: list[str]
) -> None:
    page = watched.open("/workflows/shop/edit?view=text")
    expect(code(page)).to_contain_text("$item.name")
    page.evaluate(
        """() => {
          const content = document.querySelector(".edit-code").shadowRoot.querySelector(".cm-content");
          const view = content.cmTile?.view ?? content.cmView.view;
          view.focus();
          view.dispatch({ selection: { anchor: view.state.doc.toString().indexOf("$item.name") } });
        }"""
    )
    page.keyboard.type("$")
    expect(options(page).filter(has_text="$price")).to_have_count(1)
    expect(options(page).filter(has_text="$done")).to_have_count(0)
    page.keyboard.type("start.")
    expect(options(page)).to_have_count(2)
    expect(options(page).first).to_contain_text("amount")
    expect(options(page).last).to_contain_text("rows")
