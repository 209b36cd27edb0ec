"""What people read to understand a run: comparisons, versions, the timeline, events and the replay of an execution."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.test_people import BROKEN
from tests.support.api_server import ITEMS
from tests.support.documents import document, node
from tests.support.large_executions import write_items
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

MANY = 25_000
RUNS = 1_200
FIRST_TEXT = """\
# Prices are imported every night.
id: import
nodes:
  - {id: in, type: input}
  - {id: parse, type: noop}   # becomes a real parser one day
  - {id: old, type: noop}
edges:
  - {id: a, src: in, dst: parse}
  - {id: b, src: parse, dst: old}
"""
SECOND_TEXT = """\
# Prices are imported every night.
id: import
nodes:
  - {id: in, type: input}
  - {id: parse, type: noop, timeout: 30}   # becomes a real parser one day
  - {id: store, type: noop}
edges:
  - {id: a, src: in, dst: parse}
  - {id: c, src: parse, dst: store}
"""
STEPS: dict[str, Any] = document(
    [
        node("in", "input"),
        node("lines", "split", {"input_array": "{{ $trigger.lines }}"}),
        node("each", "noop"),
        node("all", "aggregator"),
        node("quick", "noop"),
        node(
            "flaky",
            "fail",
            {"message": "not yet", "code": "NOT_YET"},
            retry={"max_attempts": 3, "initial_delay": 0.2, "backoff": 1, "jitter": False, "on": ["NOT_YET"]},
            error="ignore",
        ),
        node("done", "output", {"value": "done"}, join="all"),
    ],
    "in>lines",
    "lines>each",
    "each>all",
    "in>quick",
    "all>flaky",
    "flaky>done",
    "quick>done",
    id="steps",
)


NESTED: dict[str, Any] = document(
    [
        node("in", "input"),
        node("users", "split", {"input_array": "{{ $trigger.users }}"}),
        node("orders", "split", {"input_array": "{{ $item }}"}),
        node("price", "log", {"message": "{{ 1 / $item }}"}),
        node("sum", "aggregator"),
        node("all", "aggregator"),
    ],
    "in>users",
    "users>orders",
    "orders>price",
    "price>sum",
    "sum>all",
    id="nested",
)


class Site(msgspec.Struct, frozen=True):
    """A server with two large executions."""

    url: str
    before: str
    after: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = Path(tmp_path_factory.mktemp("looking"))
    before = write_items(home, MANY)
    after = write_items(home, MANY, failed_every=100)
    up = UpProcess(home, RUNE_LOG_LEVEL="error")
    yield Site(up.start(), before, after)
    up.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, site: Site) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, site.url)
    yield opened
    opened.close()


def card(page: Page, name: str) -> Any:
    return page.locator(f'.react-flow__node[data-id="{name}"] .flow-card')


def test_comparison_names_the_first_difference_and_groups_the_items(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(ITEMS)
        pair = [
            client.start("items", {"items": each}).execution_id
            for each in ([0, 2, 4, 6, 8, 1], [0, 2, 5, 7, 9, 1])
        ]
        for each in pair:
            client.wait(each)
        found = client.compare(*pair)

    page = watched.open(f"/executions/{pair[0]}/diff/{pair[1]}")

    expect(page.locator(".notice")).to_contain_text(
        f"The executions differ from {found.first} onwards, in {found.differing} of {found.compared} node runs."
    )
    expect(page.locator(".notice")).to_contain_text("Different input. Same definition.")
    given = page.get_by_role("region", name="Differences of the input")
    expect(given).to_contain_text("before")
    expect(given.locator(".tree")).to_have_count(2)
    failed = page.get_by_role("region", name="Differences of bad")
    expect(failed).to_contain_text("3 items with this difference")
    expect(failed).to_contain_text("no result→failedFAILED")
    failed.get_by_role("button", name="bad", exact=True).click()
    failed.get_by_role("button", name="s:3", exact=True).click()
    expect(failed).to_contain_text("No result.")
    expect(failed).to_contain_text("FAILED odd")
    expect(failed.get_by_role("link", name="bad · s:3")).to_have_attribute(
        "href", f"/executions/{pair[1]}?node=bad&item=s:3"
    )
    assert watched.accessibility_problems() == []

    page.get_by_role("button", name=f"List all {found.differing} differing node runs").click()
    rows = page.get_by_role("group", name="Node runs that differ").locator("tbody tr")
    expect(rows).to_have_count(found.differing)
    page.get_by_role("combobox", name="Node").select_option("bad")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("s:2")
    assert watched.accessibility_problems() == []

    watched.open(f"/executions/{pair[0]}/diff/{pair[0]}")
    expect(page.get_by_role("heading", name="No differences")).to_be_visible()
    watched.check()


def test_comparison_of_executions_with_many_items_is_read_in_pages(watched: WatchedPage, site: Site) -> None:
    sizes: list[int] = []
    watched.page.on("requestfinished", lambda each: sizes.append(each.sizes()["responseBodySize"]))

    page = watched.open(f"/executions/{site.before}/diff/{site.after}")

    expect(page.locator(".notice")).to_contain_text("The executions differ from fetch onwards")
    groups = page.get_by_role("region", name="Differences of fetch")
    expect(groups.filter(has_text=re.compile("items with this difference"))).not_to_have_count(0)
    page.get_by_role("button", name=re.compile("^List all")).click()
    rows = page.get_by_role("group", name="Node runs that differ").locator("tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(200)
    assert max(sizes) < 200_000
    watched.check()


def test_difference_of_versions_is_shown_in_the_graph_and_in_both_texts(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        assert client.deploy(FIRST_TEXT).version == 1
        assert client.deploy(SECOND_TEXT, workflow="import").version == 2
        moved = SECOND_TEXT.replace("{id: store, type: noop}", "{id: store, type: noop, position: [10, 20]}")
        assert client.deploy(moved, workflow="import").version == 2

    page = watched.open("/workflows/import")
    page.get_by_role("link", name="Compare version 2 with version 1").click()

    expect(page.get_by_role("heading", name="Version 1 → 2")).to_be_visible()
    marks = {"store": "added", "old": "removed", "parse": "changed"}
    for name, mark in marks.items():
        expect(card(page, name)).to_have_attribute("data-mark", mark)
        expect(card(page, name)).to_contain_text(mark)
    expect(card(page, "in")).not_to_have_attribute("data-mark", re.compile(".*"))
    expect(page.locator(".flow-line[data-mark=added]")).to_have_count(1)
    expect(page.locator(".flow-line[data-mark=removed]")).to_have_count(1)
    before, after = page.get_by_label("Text of version 1"), page.get_by_label("Text of version 2")
    expect(before.locator("[data-kind=removed]")).to_have_count(3)
    expect(after.locator("[data-kind=added]")).to_have_count(3)
    expect(before.locator("[data-kind=removed]").nth(1)).to_contain_text("removed   - {id: old, type: noop}")
    expect(after.locator("[data-kind=added]").first).to_contain_text("timeout: 30}   # becomes a real parser")
    expect(before.locator("[data-kind=gap]").first).to_contain_text("2 lines")
    expect(before.locator("[data-kind=same]").first).to_contain_text("nodes:")
    assert before.locator("> div").count() == after.locator("> div").count()
    assert watched.accessibility_problems() == []

    watched.open("/workflows/import/versions/2")
    expect(page.get_by_label("Text of version 2")).to_contain_text("# Prices are imported every night.")
    watched.check()


def test_difference_of_versions_in_json_is_shown_by_lines(watched: WatchedPage) -> None:
    nodes = [{"id": "start", "type": "input"}, {"id": "rest", "type": "wait", "parameters": {"amount": 1}}]
    first = {"id": "compact", "nodes": nodes, "edges": [{"src": "start", "dst": "rest"}]}
    text = json.dumps(first, separators=(",", ":"))
    with Client(watched.url) as client:
        client.deploy(text)
        client.deploy(text.replace('"amount":1', '"amount":2'), workflow="compact")
        stored = client.source("compact", 1)

    page = watched.open("/workflows/compact/versions/1..2")

    before, after = page.get_by_label("Text of version 1"), page.get_by_label("Text of version 2")
    expect(before.locator("[data-kind=removed]")).to_have_text(re.compile(r'removed +"amount": 1$'))
    expect(after.locator("[data-kind=added]")).to_have_text(re.compile(r'added +"amount": 2$'))
    assert stored == text.encode()
    watched.check()


def test_events_are_selected_by_the_server_and_only_rows_in_view_are_in_the_page(
    watched: WatchedPage,
) -> None:
    with Client(watched.url) as client:
        client.deploy(ITEMS)
        execution = client.start("items", {"items": list(range(400))}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}?view=events")
    rows = page.locator(".event-row")
    expect(rows.first).to_contain_text("execution.completed")
    assert rows.count() < 100
    page.wait_for_function(
        """() => {
          const list = document.querySelector(".event-list");
          list.scrollTop = list.scrollHeight;
          return list.textContent.includes("execution.accepted");
        }"""
    )
    assert rows.count() < 100

    page.get_by_role("combobox", name="Kind").select_option("node.failed")
    expect(page).to_have_url(re.compile("kind=node.failed"))
    expect(rows.first).to_contain_text("node.failed")
    expect(rows.first).to_contain_text("FAILED: odd")
    page.get_by_role("combobox", name="Node").select_option("s")
    expect(page.get_by_role("heading", name="No such events")).to_be_visible()
    page.get_by_role("combobox", name="Kind").select_option("")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("node.success")

    page.get_by_role("combobox", name="Node").select_option("bad")
    chosen = rows.first.get_by_role("button", name=re.compile("^bad · s:"))
    item = chosen.inner_text().partition(" · ")[2]
    chosen.click()
    expect(page.get_by_role("complementary", name="Node bad")).to_contain_text(item)
    assert watched.accessibility_problems() == []
    watched.check()


def test_timeline_shows_attempts_after_many_events_and_opens_the_items_of_a_split(
    watched: WatchedPage,
) -> None:
    with Client(watched.url) as client:
        client.deploy(STEPS)
        execution = client.start("steps", {"lines": list(range(RUNS))}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}?view=timeline")
    expect(page.get_by_role("img", name=re.compile("flaky failed after"))).to_be_visible()
    page.get_by_role("button", name="Show as a table").click()
    table = page.get_by_role("group", name="Table of node runs")

    def row(name: str) -> Any:
        return table.locator("tbody tr").filter(has=page.get_by_role("button", name=name, exact=True))

    # The attempts are behind more than a thousand events.
    expect(row("flaky")).to_contain_text(re.compile(r"3 \(.+, .+, .+\)"))
    band = row("each item of lines")
    expect(band).to_contain_text(re.compile("items: shortest .+, median .+, p95 .+"))
    band.get_by_role("button", name="Open").click()
    expect(page).to_have_url(re.compile("open=lines"))
    expect(row("lines:49")).to_be_visible()
    expect(row("lines:50")).to_have_count(0)
    expect(page.get_by_text("The first 50 of 1,200 items of lines are shown")).to_be_visible()

    page.get_by_role("button", name="Critical path").click()
    expect(
        page.get_by_text("Critical path: in → lines → each item of lines → all → flaky → done")
    ).to_be_visible()
    expect(row("quick").locator("td").nth(5)).to_have_text("")
    expect(row("flaky").locator("td").nth(5)).to_have_text("yes")
    assert watched.accessibility_problems() == []
    row("lines:3").get_by_role("button", name="lines:3", exact=True).click()
    expect(page.get_by_role("complementary", name="Node each")).to_contain_text("lines:3")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Zoom to flaky").click()
    expect(row("quick")).to_have_count(0)
    expect(row("flaky")).to_have_count(1)
    page.get_by_role("button", name="Whole time").click()
    expect(row("quick")).to_have_count(1)
    watched.check()


def test_stretch_of_the_timeline_is_chosen_with_the_pointer(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(STEPS)
        execution = client.start("steps", {"lines": [1]}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}?view=timeline")
    bars = page.get_by_role("img", name=re.compile("^Timeline"))
    expect(bars).to_have_attribute("aria-label", re.compile("quick"))
    box = bars.bounding_box()
    assert box is not None

    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 60)
    page.mouse.up()

    expect(page).to_have_url(re.compile(r"time=\d+-\d+"))
    expect(bars).not_to_have_attribute("aria-label", re.compile("quick"))
    expect(bars).to_have_attribute("aria-label", re.compile("flaky"))
    page.get_by_role("button", name="Whole time").click()
    expect(bars).to_have_attribute("aria-label", re.compile("quick"))
    watched.check()


def test_slider_replays_an_execution_event_by_event(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(BROKEN)
        execution = client.start("prices", {"rows": 0}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}")
    slider = page.get_by_role("slider", name="Replay")
    expect(card(page, "empty")).to_have_attribute("data-state", "failed")
    last = int(slider.get_attribute("max") or 0)
    assert last > 3

    slider.fill("1")

    expect(page).to_have_url(re.compile("at=1$"))
    expect(card(page, "empty")).to_have_attribute("data-state", "pending")
    expect(page.locator(".flow-line[data-edge=dead]")).to_have_count(0)
    page.reload()
    expect(card(page, "empty")).to_have_attribute("data-state", "pending")
    expect(slider).to_have_attribute("aria-valuetext", f"event 1 of {last}")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(card(page, "check")).to_have_attribute("data-state", "success")
    expect(card(page, "empty")).to_have_attribute("data-state", "queued")
    assert watched.accessibility_problems() == []
    page.get_by_role("button", name="To the end").click()
    expect(page).not_to_have_url(re.compile("at="))
    expect(card(page, "empty")).to_have_attribute("data-state", "failed")
    watched.check()


def test_link_to_a_replayed_moment_keeps_it_while_the_last_event_is_read(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(BROKEN)
        execution = client.start("prices", {"rows": 0}).execution_id
        client.wait(execution)
    held: list[Route] = []
    page = watched.page

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile("/history\\?.*before="), hold)

    watched.open(f"/executions/{execution}?at=1")

    slider = page.get_by_role("slider", name="Replay")
    expect(slider).to_have_attribute("aria-valuetext", "event 1 of 1")
    # A timer of the page that ends after the one of the slider.
    page.evaluate("new Promise((done) => setTimeout(done, 300))")
    assert page.url.endswith("at=1")
    for each in held:
        each.continue_()
    expect(slider).not_to_have_attribute("aria-valuetext", "event 1 of 1")
    expect(card(page, "empty")).to_have_attribute("data-state", "pending")
    watched.check()


def test_nested_items_are_reached_through_the_outer_one_and_shared_with_the_data(
    watched: WatchedPage,
) -> None:
    with Client(watched.url) as client:
        client.deploy(NESTED)
        execution = client.start("nested", {"users": [[1, 2], [0, 4]]}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}?view=items&split=orders")
    expect(page.get_by_role("heading", name="orders is inside another split")).to_be_visible()
    page.get_by_role("group", name="Split").get_by_role("button", name="users").click()
    page.locator(".item-button").filter(has_text="users:1").click()
    expect(page.locator(".crumbs")).to_contain_text("users:1")
    page.get_by_role("tab", name="Items").click()
    page.get_by_role("group", name="Split").get_by_role("button", name="orders").click()
    expect(page.locator(".item-row")).to_have_count(2)
    page.locator(".item-button").filter(has_text="users:1/orders:1").click()

    expect(page.locator(".crumbs")).to_contain_text("users:1›orders:1")
    expect(card(page, "price")).to_have_attribute("data-state", "success")
    page.get_by_role("tab", name="Data").click()
    value = page.locator(".data-value").filter(has_text="$price")
    expect(value).to_contain_text("users:1/orders:1")
    value.locator(".data-toggle").click()
    expect(value.locator(".tree")).to_contain_text("0.25")
    assert watched.accessibility_problems() == []
    page.get_by_role("button", name="all items").click()
    expect(page.locator(".data-value").filter(has_text="price")).to_contain_text("in each item of")
    watched.check()


def test_graph_has_a_list_with_the_same_states_and_actions(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(BROKEN)
        execution = client.start("prices", {"rows": 0}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}")
    page.get_by_role("button", name="Show as a list").click()
    entries = page.get_by_role("list", name="Nodes in order").get_by_role("listitem")
    expect(entries).to_have_count(4)
    expect(entries.filter(has_text="after check; ends here").filter(has_text="failed")).to_have_count(1)
    expect(entries.nth(1)).to_contain_text("after in; goes to store (true), empty (false)")
    assert watched.accessibility_problems() == []

    entries.filter(has_text="failed").get_by_role("button").press("Enter")

    expect(page.get_by_role("complementary", name="Node empty")).to_contain_text("EMPTY_LIST")
    page.get_by_role("button", name="Show as a graph").click()
    expect(card(page, "empty")).to_be_visible()
    watched.check()
