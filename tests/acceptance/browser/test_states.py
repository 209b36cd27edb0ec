"""What a screen shows while it loads, when a request fails, when something is gone, after an update of the server."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.acceptance.browser.conftest import WatchedPage
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

DARK_PHONE = {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}}
LOOKS = {"light": {}, "phone-dark": DARK_PHONE}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("states"), RUNE_LOG_LEVEL="error")
    yield up.start()
    up.stop(signal.SIGKILL)


@pytest.fixture(params=LOOKS)
def watched(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, url, **LOOKS[request.param])
    yield opened
    opened.close()


def test_skeleton_stands_where_rows_will_be_until_they_arrive(watched: WatchedPage) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    watched.page.route(re.compile("/api/v1/workflows[?]"), hold)
    page = watched.open("/workflows")

    expect(page.get_by_role("status", name="Loading")).to_be_visible()
    expect(page.locator(".skeleton").first).to_have_css("animation-delay", "0s, 0.15s")
    assert watched.accessibility_problems() == []

    for each in held:
        each.continue_()
    page.unroute(re.compile("/api/v1/workflows[?]"))
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("status", name="Loading")).to_have_count(0)
    watched.check()


def test_failed_request_shows_its_reason_and_code_and_can_be_repeated(watched: WatchedPage) -> None:
    problem = {"status": 400, "title": "Bad request", "detail": "the store is read-only", "code": "READ_ONLY"}

    def refuse(route: Route) -> None:
        route.fulfill(status=400, content_type="application/problem+json", body=json.dumps(problem))

    watched.page.route(re.compile("/api/v1/workflows[?]"), refuse)
    page = watched.open("/workflows")
    expect(page.get_by_role("heading", name="The server rejected the request")).to_be_visible()
    expect(page.locator(".blank")).to_contain_text("the store is read-only READ_ONLY")
    assert watched.accessibility_problems() == []

    page.unroute(re.compile("/api/v1/workflows[?]"))
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Workflows", exact=True)).to_be_visible()
    watched.check()


def test_failed_request_is_named_by_the_id_of_the_log_and_of_the_header(watched: WatchedPage) -> None:
    ids: list[str | None] = []
    watched.page.on(
        "response", lambda each: ids.append(each.header_value("x-request-id")) if each.status == 404 else None
    )
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])

    page = watched.open("/workflows/nowhere")

    shown = page.locator(".request-id").first
    expect(shown).to_be_visible()
    shown.get_by_role("button", name="Copy the request id").click()
    expect(shown.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied in ids
    expect(shown).to_contain_text(copied)
    assert watched.accessibility_problems() == []


@pytest.mark.parametrize(
    ("path", "title"),
    [
        (f"/executions/x{0:026x}", "Not found"),
        ("/workflows/nowhere", "Not found"),
        ("/nowhere", "Page not found"),
    ],
)
def test_page_of_something_that_does_not_exist_says_so(watched: WatchedPage, path: str, title: str) -> None:
    page = watched.open(path)

    expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
    assert watched.accessibility_problems() == []
    assert watched.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_page_asks_to_be_reloaded_after_the_server_was_updated(watched: WatchedPage) -> None:
    page = watched.page
    page.clock.install()
    watched.open("/settings")
    expect(page.get_by_role("heading", name="Server", exact=True)).to_be_visible()
    expect(page.get_by_text("The server was updated.")).to_have_count(0)
    page.route("**/version", lambda route: route.fulfill(json={"version": "9.9.9", "build": "another"}))

    page.clock.fast_forward(61_000)

    expect(page.get_by_text("The server was updated.")).to_be_visible()
    assert watched.accessibility_problems() == []
    page.unroute("**/version")
    page.get_by_role("button", name="Reload the page").click()
    expect(page.get_by_role("heading", name="Server", exact=True)).to_be_visible()
    expect(page.get_by_text("The server was updated.")).to_have_count(0)


@pytest.mark.parametrize("look", LOOKS)
def test_login_is_accessible_in_both_themes(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, look: str
) -> None:
    up = UpProcess(tmp_path_factory.mktemp("locked"), RUNE_API_KEY="open-sesame")
    try:
        watched = WatchedPage(browser, up.start(), **LOOKS[look])
        page = watched.open("/executions")
        expect(page.get_by_label("API key")).to_be_visible()
        assert watched.accessibility_problems() == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        watched.check()
        watched.close()
    finally:
        up.stop(signal.SIGKILL)
