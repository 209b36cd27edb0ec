"""The login of the status page: the key is requested once, kept per tab and sent with every request."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from rune.client import Client
from tests.acceptance.browser.test_status_page import DEADLINE_MS, STEPS
from tests.support.up_process import UpProcess

SECRET = "open-sesame"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("locked"), RUNE_API_KEY=SECRET)
    url = up.start()
    with Client(url, key=SECRET) as client:
        client.deploy(STEPS)
    yield url
    up.stop(signal.SIGKILL)


@pytest.fixture
def page(browser: Browser, locked: str) -> Iterator[Page]:
    """A page without a key."""
    expect.set_options(timeout=DEADLINE_MS)
    opened = browser.new_page()
    opened.set_default_timeout(DEADLINE_MS)
    yield opened
    opened.close()


def _give(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_login_stores_key_and_sends_it_with_requests(page: Page, locked: str) -> None:
    page.goto(locked)
    expect(page.locator("#login")).to_be_visible()
    _give(page, "wrong")
    expect(page.locator("#key-said")).to_have_text("Invalid key.")
    assert page.evaluate("sessionStorage.length") == 0
    _give(page, SECRET)
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#login")).to_be_hidden()
    asked: list[Request] = []

    def note(request: Request) -> None:
        asked.append(request)

    page.on("request", note)
    with Client(locked, key=SECRET) as client:
        execution = client.start("steps").execution_id
        page.get_by_role("button", name=execution).click()
        first = page.locator('#nodes li[data-node="first"]')
        expect(first).to_have_attribute("data-status", "waiting")
        client.signal(execution, "one", 1)
        expect(first).to_have_attribute("data-status", "success")
        client.signal(execution, "two", 2)
        expect(page.locator("#one-status")).to_have_text("completed")
    assert any(each.url.endswith("/events?view=rollup") for each in asked)
    to_the_api = [each for each in asked if "/api/" in each.url]
    assert all(each.headers.get("authorization") == f"Bearer {SECRET}" for each in to_the_api)
    assert all(SECRET not in each.url for each in asked)
    page.reload()
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#login")).to_be_hidden()


def test_key_is_kept_in_session_storage_only(page: Page, locked: str) -> None:
    page.goto(locked)
    expect(page.locator("#login")).to_be_visible()
    _give(page, SECRET)
    expect(page.locator("#link")).to_have_text("live")
    assert page.evaluate("localStorage.length") == 0
    assert page.evaluate("document.cookie") == ""
