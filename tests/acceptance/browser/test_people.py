"""What people come to do in the web interface: a newcomer, an operator, an approver with a phone."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.support.api_server import ITEMS, WAITS
from tests.support.documents import document, node
from tests.support.in_process_cli import InProcessCli
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

PHONE = {"viewport": {"width": 320, "height": 640}, "has_touch": True}
BROKEN: dict[str, Any] = {
    "id": "prices",
    "name": "Import prices",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "check", "type": "conditional", "parameters": {"expression": "$trigger.rows > 0"}},
        {"id": "store", "type": "output", "parameters": {"value": "{{ $trigger.rows }}"}},
        {"id": "empty", "type": "fail", "parameters": {"message": "the list is empty", "code": "EMPTY_LIST"}},
    ],
    "edges": [
        {"src": "in", "dst": "check"},
        {"id": "full", "src": "check", "dst": "store", "label": "true"},
        {"id": "none", "src": "check", "dst": "empty", "label": "false"},
    ],
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("people"))
    process.start()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, up.said["url"])
    yield opened
    opened.close()


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[UpProcess]:
    """A server without executions, which a test may kill."""
    process = UpProcess(tmp_path, RUNE_HTTP_ALLOW="127.0.0.1")
    process.start()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def first_page(browser: Browser, new_server: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, new_server.said["url"])
    yield opened
    opened.close()


def test_author_copies_an_execution_as_a_test_that_passes_without_its_services(
    browser: Browser, new_server: UpProcess, tmp_path: Path
) -> None:
    url = new_server.said["url"]
    called = document(
        [
            node("in", "input"),
            node("each", "split", {"input_array": "{{ $in.names }}"}),
            node("call", "http", {"url": f"{url}/version?{{{{ $item }}}}"}),
            node("all", "aggregator"),
            node("out", "output", {"value": "{{ $all[1].body.version }}"}),
        ],
        "in>each",
        "each>call",
        "call>all",
        "all>out",
        id="calls",
    )
    with Client(url) as client:
        client.deploy(called)
        started = client.start("calls", {"names": ["a", "b"]})
        assert started.wait(60).status == "completed"
    watched = WatchedPage(browser, url, permissions=["clipboard-read", "clipboard-write"])
    page = watched.open(f"/executions/{started.execution_id}?node=call&item=each:1")

    page.get_by_role("button", name="Copy as a test").click()

    expect(page.get_by_text("Copied a test.")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    watched.check()
    watched.close()
    new_server.stop(signal.SIGKILL)
    (tmp_path / "test-calls.json").write_text(copied, encoding="utf-8")
    rune = InProcessCli(tmp_path / "home")
    assert rune.json("test", str(tmp_path / "test-calls.json"))["status"] == "passed"
    broken = json.loads(copied)
    assert broken["expect"]["nodes"][0]["item"] == "each:1"
    broken["expect"]["nodes"][0]["output"]["status"] = 500
    (tmp_path / "test-broken.json").write_text(json.dumps(broken), encoding="utf-8")
    assert rune.json("test", str(tmp_path / "test-broken.json"), code=1)["status"] == "failed"


def card(page: Page, name: str) -> Any:
    return page.locator(f'.react-flow__node[data-id="{name}"] .flow-card')


@pytest.fixture
def newcomers_page(browser: Browser, tmp_path: Path) -> Iterator[WatchedPage]:
    """The page of a first `rune up`, which has started an example."""
    process = UpProcess(tmp_path, RUNE_RUN_EXAMPLE="true")
    opened = WatchedPage(browser, process.start())
    yield opened
    opened.close()
    process.stop(signal.SIGKILL)


def test_newcomer_finds_an_example_that_runs_and_decides_on_it(newcomers_page: WatchedPage) -> None:
    page = newcomers_page.open("/")
    expect(page.get_by_role("heading", name="Welcome to Rune")).to_be_visible()

    page.get_by_role("link", name=re.compile("running approval")).first.click()

    expect(card(page, "ask")).to_have_attribute("data-state", "waiting")
    expect(card(page, "ship")).to_have_attribute("data-state", "pending")
    with Client(newcomers_page.url) as client:
        client.signal(page.url.rsplit("/", 1)[1], "decision", {"approved": True, "by": "Ada"})
    expect(card(page, "ship")).to_have_attribute("data-state", "success")
    expect(page.locator(".head .pill")).to_have_text("completed")
    newcomers_page.check()


def test_newcomer_runs_an_example_with_one_click_and_sees_it_on_the_graph(first_page: WatchedPage) -> None:
    page = first_page.open("/")
    expect(page.get_by_role("heading", name="Welcome to Rune")).to_be_visible()

    page.get_by_role("button", name=re.compile("^Run ")).click()

    expect(page).to_have_url(re.compile("/executions/x"))
    expect(page.locator(".flow-card").first).to_have_attribute("data-state", "success")
    expect(page.locator(".head .pill")).to_have_text("completed")
    first_page.check()


def test_operator_finds_the_failed_node_and_retries(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(BROKEN)
        failed = client.start("prices", {"rows": 0}).execution_id
        client.wait(failed)
    page = watched.open(f"/executions/{failed}")

    page.get_by_role("button", name="Show empty").click()

    panel = page.get_by_role("complementary", name="Node empty")
    expect(panel).to_contain_text("EMPTY_LIST")
    expect(panel).to_contain_text("the list is empty")
    expect(card(page, "empty")).to_have_attribute("data-state", "failed")
    expect(card(page, "empty")).to_be_in_viewport(ratio=1)
    expect(card(page, "store")).to_have_attribute("data-state", re.compile("skipped|not_reached"))
    expect(page.locator(".flow-line[data-edge='alive']")).to_have_count(2)
    expect(page.locator(".flow-line[data-edge='dead']")).to_have_count(1)
    page.get_by_role("button", name="Retry", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").dblclick()
    expect(page).not_to_have_url(re.compile(failed))
    expect(page.get_by_text("retry of")).to_be_visible()
    with Client(watched.url) as client:
        assert len(list(client.executions(workflow="prices"))) == 2
    page.get_by_role("link", name="compare").click()
    expect(page.get_by_role("heading", name="Compare executions")).to_be_visible()
    watched.check()


def test_operator_sees_item_and_error_within_three_clicks_and_retries_the_failed_items(
    watched: WatchedPage,
) -> None:
    with Client(watched.url) as client:
        client.deploy(ITEMS)
        execution = client.start("items", {"items": list(range(40))}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}")

    page.get_by_role("tab", name="Items").click()
    page.get_by_role("button", name=re.compile("^failed 20")).click()
    expect(page.locator(".item-button").nth(3)).to_contain_text("s:7")  # the rows are those of the filter
    page.locator(".item-button").nth(3).click()

    panel = page.get_by_role("complementary", name="Node bad")
    expect(panel).to_contain_text("s:7")
    expect(panel.locator(".notice")).to_contain_text("odd")
    expect(panel).to_contain_text("19 other items of 40 failed with")
    expect(panel.locator("time").first).to_be_visible()
    page.get_by_role("button", name="Retry 20 failed items").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page).not_to_have_url(re.compile(execution))
    expect(page.get_by_text("retry of")).to_be_visible()
    expect(page.locator(".head .pill")).to_have_text("completed with 20 failed items")
    watched.check()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_operator_opens_what_to_do_about_an_error_code(browser: Browser, up: UpProcess, theme: str) -> None:
    watched = WatchedPage(browser, up.said["url"], color_scheme=theme, **PHONE)
    share = {"id": "share", "type": "output", "parameters": {"value": "{{ 1 / $in.people }}"}}
    with Client(watched.url) as client:
        client.deploy(
            {
                "id": "share",
                "nodes": [{"id": "in", "type": "input"}, share],
                "edges": [{"src": "in", "dst": "share"}],
            }
        )
        execution = client.start("share", {"people": 0}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}")
    with watched.context.expect_page() as opened:
        page.locator(".notice").get_by_role("link", name="EXPRESSION_ERROR").click()
    watched.page = opened.value

    section = watched.page.locator(":target")
    expect(section).to_have_text("EXPRESSION_ERROR")
    expect(section).to_be_in_viewport()
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 320
    assert watched.accessibility_problems() == []
    watched.close()


COLOUR_OF_SUCCESS = """() => {
  const pill = document.createElement("span");
  pill.className = "pill";
  pill.dataset.state = "completed";
  document.body.append(pill);
  const colour = getComputedStyle(pill).color;
  pill.remove();
  return colour;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_execution_with_failed_items_does_not_look_like_a_success(
    browser: Browser, up: UpProcess, theme: str
) -> None:
    watched = WatchedPage(browser, up.said["url"], color_scheme=theme)
    with Client(watched.url) as client:
        client.deploy(ITEMS)
        execution = client.start("items", {"items": list(range(40))}).execution_id
        client.wait(execution)

    page = watched.open(f"/executions/{execution}")
    pill = page.locator(".head .pill")
    expect(pill).to_have_text("completed with 20 failed items")
    colour = pill.evaluate("each => getComputedStyle(each).color")
    assert colour != page.evaluate(COLOUR_OF_SUCCESS)
    assert watched.accessibility_problems() == []
    for path in ("/executions", "/", "/workflows/items"):
        watched.open(path)
        small = page.locator(".pill[data-state='completed_with_failures']").first
        expect(small).to_be_visible()
        assert small.evaluate("each => getComputedStyle(each).color") == colour
        expect(page.get_by_text("20 failed items").first).to_be_visible()
    watched.check()
    watched.close()


def test_live_graph_follows_signals_pause_and_cancel(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(WAITS)
        execution = client.start("waits").execution_id
        page = watched.open(f"/executions/{execution}?node=w")
        panel = page.get_by_role("complementary", name="Node w")
        expect(panel).to_contain_text("waits for signal go")
        expect(card(page, "w")).to_have_attribute("data-state", "waiting")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator(".head .pill")).to_have_text("paused")
        page.get_by_role("button", name="Resume").click()
        expect(page.locator(".head .pill")).to_have_text("running")
        panel.get_by_role("button", name="Send go").click()
        page.get_by_role("textbox", name="Value").fill('{"by": "ada"}')
        page.get_by_role("dialog").get_by_role("button", name="Send").click()
        expect(card(page, "out")).to_have_attribute("data-state", "success")
        expect(page.locator(".head .pill")).to_have_text("completed")
        expect(panel).to_contain_text('"ada"')
        other = client.start("waits").execution_id
        watched.open(f"/executions/{other}")
        page.get_by_role("button", name="Cancel").click()
        page.get_by_label("Reason").fill("ordered twice")
        page.get_by_role("button", name="Cancel the execution").click()
        expect(page.locator(".head .pill")).to_have_text("cancelled")
    watched.check()


def test_page_reconnects_after_the_server_was_killed(first_page: WatchedPage, new_server: UpProcess) -> None:
    with Client(first_page.url) as client:
        client.deploy(WAITS)
        execution = client.start("waits").execution_id
    page = first_page.open(f"/executions/{execution}")
    expect(card(page, "w")).to_have_attribute("data-state", "waiting")

    new_server.stop(signal.SIGKILL)

    expect(page.get_by_role("alert")).to_contain_text("connection to the server is lost")
    expect(card(page, "w")).to_be_visible()
    new_server.start()
    with Client(first_page.url) as client:
        client.signal(execution, "go", 1)
    expect(card(page, "out")).to_have_attribute("data-state", "success")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def test_approver_decides_on_a_phone(browser: Browser, up: UpProcess) -> None:
    watched = WatchedPage(browser, up.said["url"], **PHONE)
    with Client(watched.url) as client:
        execution = client.start("approval", {"order": 7, "amount": 5_000}).execution_id
    page = watched.open("/waiting")
    page.get_by_role("link", name=re.compile("approval")).click()
    expect(page.locator(".decision")).to_contain_text("5000")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320

    page.get_by_role("button", name="Approve").click()

    expect(page.get_by_role("heading", name="Sent")).to_be_visible()
    with Client(watched.url) as client:
        assert client.wait(execution).status == "completed"
    watched.check()
    watched.close()


def test_approver_who_sends_again_after_a_lost_response_learns_that_the_answer_was_delivered(
    browser: Browser, up: UpProcess
) -> None:
    watched = WatchedPage(browser, up.said["url"], **PHONE)
    with Client(watched.url) as client:
        execution = client.start("approval", {"order": 7, "amount": 5_000}).execution_id
    page = watched.open(f"/waiting/{execution}/ask")

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/signals", lose, times=1)
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".notice")).to_contain_text("Your answer is kept here; send it again.")
    with Client(watched.url) as client:
        assert client.wait(execution).status == "completed"

    page.get_by_role("button", name="Approve").click()

    expect(page.locator(".notice")).to_contain_text("was delivered before")
    with Client(watched.url) as client:
        assert client.output(execution)["shipped"] is True
    watched.close()


def test_items_of_a_split_are_counted_filtered_and_opened(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(ITEMS)
        execution = client.start("items", {"items": list(range(300))}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}?view=items")
    page.get_by_role("button", name=re.compile("^failed 150")).click()
    expect(page.locator(".item-row").first).to_contain_text("s:1")

    page.locator(".item-button").first.click()

    expect(page).to_have_url(re.compile("item=s:1"))
    expect(card(page, "bad")).to_have_attribute("data-state", "failed")
    expect(card(page, "twice")).to_have_attribute("data-state", "skipped")
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_role("img", name=re.compile("^Timeline"))).to_be_visible()
    watched.check()


def test_list_filters_by_address_and_changes_rows_in_place(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(WAITS)
        first = client.start("waits", labels={"team": "a"}).execution_id
        page = watched.open("/executions?workflow=waits&label=team%3Da")
        row = page.get_by_role("listitem").filter(has_text="waits")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("running")
        client.start("waits", labels={"team": "b"})
        client.start("waits", labels={"team": "a"})
        expect(page.get_by_role("button", name="1 new")).to_be_visible()
        expect(row).to_have_count(1)
        client.cancel(first)
        expect(row).to_contain_text("cancelled")
        page.get_by_role("button", name="1 new").click()
        expect(row).to_have_count(2)
        page.get_by_role("checkbox").first.click()
        page.get_by_role("toolbar").get_by_role("button", name="Cancel 1").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("dialog")).to_contain_text("cancelled")
        page.get_by_role("button", name="Done").click()
        expect(row.filter(has_text="cancelled")).to_have_count(2)
    watched.check()


def test_run_form_checks_its_fields_and_starts(watched: WatchedPage) -> None:
    page = watched.open("/workflows/approval/run")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert").first).to_have_text("is required")
    page.get_by_label("amount").fill("12.5")
    page.get_by_label("order").fill("7")

    page.get_by_role("button", name="Start", exact=True).click()

    expect(page).to_have_url(re.compile("/executions/x"))
    expect(page.locator(".head .pill")).to_have_text("completed")
    page.get_by_role("tab", name="Data").click()
    expect(page.locator(".tree").first).to_contain_text("12.5")
    watched.check()


def test_keyboard_reaches_commands_rows_and_nodes(first_page: WatchedPage) -> None:
    with Client(first_page.url) as client:
        client.wait(client.start("hello", {"name": "Ada"}).execution_id)
    page = first_page.open("/")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Search")).to_be_focused()
    page.keyboard.type("executions")
    expect(page.get_by_role("option", selected=True)).to_contain_text("ExecutionsGo to")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Executions", exact=True)).to_be_visible()
    expect(page.locator(".list-row")).to_have_count(1)
    page.keyboard.press("j")
    expect(page.locator(".list-row[data-cursor]")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".flow-card")).not_to_have_count(0)
    page.locator('.react-flow__node[data-id="in"], .react-flow__node').first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".panel")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".panel")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    first_page.check()
