"""Requests that fail once, or for a while: what was shown or written stays, and is read again."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import text_of
from tests.acceptance.browser.test_people import BROKEN
from tests.acceptance.browser.test_slow_answers import card, ended
from tests.support.cli_process import until
from tests.support.up_process import UpProcess

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


@pytest.fixture
def watched(browser: Browser, url: str) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, url)
    yield opened
    opened.close()


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
