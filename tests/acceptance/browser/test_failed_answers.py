"""Requests that fail once, or for a while: what was shown or written stays, and is read again."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import text_of
from tests.acceptance.browser.test_people import BROKEN
from tests.acceptance.browser.test_slow_answers import TIMERS, card, ended
from tests.support.api_server import ITEMS, WAITS
from tests.support.cli_process import until
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

TEXT = """\
# Prices are imported every night.
id: nightly-prices
nodes:
  - {id: in, type: input}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("failed"), RUNE_LOG_LEVEL="error")
    yield up.start()
    up.stop(signal.SIGKILL)


class FailingOnce:
    """The first request that matches fails as if the server could not be reached."""

    def __init__(self, page: Page, pattern: str) -> None:
        self.failed = 0
        page.route(re.compile(pattern), self._fail, times=1)

    def _fail(self, route: Route) -> None:
        self.failed += 1
        route.abort()


def test_text_that_could_not_be_read_is_not_replaced_by_json_in_the_editor(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(TEXT)
    page = watched.page
    page.route("**/source", lambda route: route.fulfill(status=503, body=""), times=1)

    watched.open("/workflows/nightly-prices/edit?view=text")

    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("textbox", name="Text of the workflow")).to_be_visible()
    assert text_of(page) == TEXT
    watched.check()


def test_answer_that_is_being_written_stays_when_the_decision_cannot_be_read(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        execution = client.start("approval", {"order": 7, "amount": 5_000}).execution_id
    page = watched.page
    page.clock.install()
    watched.open(f"/waiting/{execution}/ask")
    page.get_by_role("button", name="Send another value").click()
    page.get_by_label("Answer").fill('{"approved": true, "by": "me"}')
    failed: list[str] = []
    page.on("requestfailed", lambda each: failed.append(each.url))
    page.route(f"**/api/v1/waiting/{execution}/ask", lambda route: route.abort())

    # One reading in ten seconds, and another try after one.
    page.clock.fast_forward(11_000)
    until(lambda: len(failed) >= 1 or page.evaluate("null"), "the decision is read again")
    page.clock.fast_forward(3_000)
    until(lambda: len(failed) >= 2 or page.evaluate("null"), "the reading is tried again")

    page.clock.fast_forward(11_000)
    until(lambda: len(failed) >= 3 or page.evaluate("null"), "the decision is read once more")
    expect(page.get_by_label("Answer")).to_have_value('{"approved": true, "by": "me"}')
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("heading", name="Sent")).to_be_visible()
    with Client(watched.url) as client:
        client.wait(execution)


def test_graph_is_shown_although_its_first_reading_failed(watched: WatchedPage) -> None:
    execution = ended(watched.url, BROKEN, {"rows": 0})
    failing = FailingOnce(watched.page, f"/executions/{execution}/graph")

    page = watched.open(f"/executions/{execution}")

    expect(card(page, "empty")).to_have_attribute("data-state", "failed")
    assert failing.failed == 1
    watched.check()


def test_graph_stays_when_it_cannot_be_read_as_the_page_is_shown_again(watched: WatchedPage) -> None:
    execution = ended(watched.url, BROKEN, {"rows": 0})
    page = watched.open(f"/executions/{execution}")
    expect(card(page, "empty")).to_have_attribute("data-state", "failed")
    read: list[str] = []
    page.on("requestfinished", lambda each: read.append(each.url) if "/graph" in each.url else None)
    failing = FailingOnce(page, f"/executions/{execution}/graph")

    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    until(lambda: bool(failing.failed) or page.evaluate("null"), "the graph is read again")
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_have_count(0)
    until(lambda: bool(read) or page.evaluate("null"), "the graph is read once more")
    expect(card(page, "empty")).to_have_attribute("data-state", "failed")
    watched.check()


def test_overview_does_not_tell_that_nothing_failed_when_it_could_not_be_read(watched: WatchedPage) -> None:
    ended(watched.url, BROKEN, {"rows": 0})
    page = watched.page
    page.route(
        re.compile("/api/v1/executions[?]status=failed"), lambda route: route.fulfill(status=400, body="{}")
    )

    watched.open("/")

    failed = page.get_by_role("region", name="Failed in the last 24 hours")
    expect(failed.get_by_role("button", name="Try again")).to_be_visible()
    expect(failed).not_to_contain_text("Nothing failed")
    page.unroute_all()
    failed.get_by_role("button", name="Try again").click()
    expect(failed).to_contain_text("EMPTY_LIST")
    watched.check()


def test_output_that_could_not_be_read_is_not_pinned_as_an_empty_one(watched: WatchedPage) -> None:
    ended(watched.url, BROKEN, {"rows": 3})
    page = watched.open("/workflows/prices/edit?node=store")
    panel = page.get_by_role("complementary", name="Node store")
    panel.get_by_role("button", name="Try", exact=True).click()
    expect(panel.get_by_label("On the data of")).to_be_visible()
    FailingOnce(page, "/nodes/store/output$")

    panel.get_by_role("button", name="Pin the output of store").click()

    expect(page.locator(".toast")).to_contain_text("could not be read")
    panel.get_by_role("button", name="Pin the output of store").click()
    expect(panel.get_by_label("Output", exact=True)).to_have_value("3")
    watched.check()


def test_draft_is_checked_again_after_a_check_that_failed(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(TEXT.replace("nightly-prices", "daily-prices"))
    failing = FailingOnce(watched.page, "/workflows/validate")

    page = watched.open("/workflows/daily-prices/edit")

    expect(page.get_by_text("The draft could not be checked")).to_be_visible()
    expect(page.get_by_text("The draft could not be checked")).to_have_count(0)
    assert failing.failed == 1
    watched.check()


def test_panel_of_a_node_shows_its_input_although_the_first_reading_failed(watched: WatchedPage) -> None:
    execution = ended(watched.url, BROKEN, {"rows": 3})
    failing = FailingOnce(watched.page, "/nodes/store/input")

    page = watched.open(f"/executions/{execution}?node=store")

    panel = page.get_by_role("complementary", name="Node store")
    expect(panel.get_by_role("heading", name="Input")).to_be_visible()
    assert failing.failed == 1
    watched.check()


def test_items_are_shown_although_the_first_reading_of_their_states_failed(watched: WatchedPage) -> None:
    execution = ended(watched.url, ITEMS, {"items": list(range(20))})
    failing = FailingOnce(watched.page, "/items/packed")

    page = watched.open(f"/executions/{execution}?view=items")

    expect(page.get_by_role("img", name=re.compile("20 items of s"))).to_be_visible()
    assert failing.failed == 1
    watched.check()


def test_form_stays_when_its_workflow_cannot_be_read_again(watched: WatchedPage) -> None:
    ended(watched.url, BROKEN, {"rows": 0})
    page = watched.page
    page.clock.install()
    watched.open("/workflows/prices/run")
    page.get_by_label("Input as JSON").fill('{"rows": 12}')
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(status=400, body="{}")

    page.route("**/api/v1/workflows/prices", refuse)

    page.clock.fast_forward(6_000)
    page.evaluate("window.dispatchEvent(new Event('visibilitychange'))")

    until(lambda: bool(refused) or page.evaluate("null"), "the workflow is read again")
    page.evaluate(TIMERS)
    expect(page.get_by_role("heading", name="The server rejected the request")).to_have_count(0)
    expect(page.get_by_label("Input as JSON")).to_have_value('{"rows": 12}')


def test_graph_is_read_again_after_the_reading_of_its_end_failed(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(WAITS)
        execution = client.start("waits").execution_id
        page = watched.open(f"/executions/{execution}")
        expect(card(page, "w")).to_have_attribute("data-state", "waiting")
        failed: list[str] = []

        def fail(route: Route) -> None:
            failed.append(route.request.url)
            route.abort()

        pattern = re.compile(f"/executions/{execution}/graph")
        page.route(pattern, fail)
        client.signal(execution, "go", {})
        client.wait(execution)
    expect(page.locator(".pill[data-size=large]")).to_have_text("completed")
    until(lambda: bool(failed) or page.evaluate("null"), "a reading of the graph failed")
    # The page reads the graph for the last time when the stream has ended, a moment after the last event.
    page.evaluate("new Promise((done) => setTimeout(done, 1500))")
    page.unroute(pattern)

    expect(page.locator(".flow-line[data-edge=pending]")).to_have_count(0)
    watched.check()
