"""The API reference in a real browser: operations are listed, and no request goes to another host."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.browser.conftest import DEADLINE_MS
from tests.support.up_process import UpProcess

SECRET = "open-sesame"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("reference"), RUNE_API_KEY=SECRET)
    yield up.start()
    up.stop(signal.SIGKILL)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    expect.set_options(timeout=DEADLINE_MS)
    opened = browser.new_page()
    opened.set_default_timeout(DEADLINE_MS)
    yield opened
    opened.close()


def test_reference_lists_operations_and_sends_requests_to_its_own_host_only(page: Page, locked: str) -> None:
    urls: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None
    )
    page.goto(f"{locked}/docs")
    page.get_by_label("API key").fill(SECRET)
    page.get_by_role("button", name="Sign in").click()

    expect(page.locator(".opblock-tag-section")).not_to_have_count(0)
    page.locator("#operations-tag-session").click()
    page.locator("#operations-session-get_me .opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table .response-col_status").last).to_contain_text("200")

    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    assert wrong == []
    assert [each for each in urls if not each.startswith((locked, "data:", "blob:"))] == []
