"""The status page in a browser: live updates, keyboard use and content security policy."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rune.client import Client
from tests.support.api_server import ITEMS
from tests.support.up_process import UpProcess

DEADLINE_MS = 120_000

STEPS: dict[str, Any] = {
    "id": "steps",
    "name": "Steps <b>in bold</b>",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "first", "type": "wait", "parameters": {"resume": "signal", "name": "one"}},
        {"id": "second", "type": "wait", "parameters": {"resume": "signal", "name": "two"}},
        {"id": "out", "type": "output", "parameters": {"value": "{{ [$first, $second] }}"}},
    ],
    "edges": [
        {"src": "in", "dst": "first"},
        {"src": "first", "dst": "second"},
        {"src": "second", "dst": "out"},
    ],
}
GREEN, AMBER = "rgb(26, 127, 55)", "rgb(154, 103, 0)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("page"))
    url = up.start()
    with Client(url) as client:
        client.deploy(STEPS)
        client.deploy(ITEMS)
    yield url
    up.stop(signal.SIGKILL)


@pytest.fixture
def page(browser: Browser, server: str) -> Iterator[Page]:
    """The page; errors and warnings of the browser fail the test."""
    expect.set_options(timeout=DEADLINE_MS)
    opened = browser.new_page(color_scheme="light")
    opened.set_default_timeout(DEADLINE_MS)
    wrong: list[str] = []
    opened.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("requestfailed", lambda request: wrong.append(f"{request.url}: {request.failure}"))
    opened.goto(server)
    expect(opened.locator("#link")).to_have_text("live")
    yield opened
    opened.close()
    assert [each for each in wrong if "net::ERR_ABORTED" not in each] == []


def _node(page: Page, name: str) -> Any:
    return page.locator(f'#nodes li[data-node="{name}"]')


def test_node_colours_update_live(page: Page, server: str) -> None:
    with Client(server) as client:
        execution = client.start("steps").execution_id
        page.get_by_role("button", name=execution).click()
        expect(_node(page, "first")).to_have_attribute("data-status", "waiting")
        expect(_node(page, "first")).to_have_css("border-left-color", AMBER)
        expect(_node(page, "second")).to_have_attribute("data-status", "pending")
        expect(page.locator("#waiting")).to_contain_text("waits for signal `one`")
        client.signal(execution, "one", 1)
        expect(_node(page, "first")).to_have_css("border-left-color", GREEN)
        expect(_node(page, "second")).to_have_css("border-left-color", AMBER)
        expect(page.locator("#waiting")).to_contain_text("waits for signal `two`")
        client.signal(execution, "two", 2)
        expect(_node(page, "out")).to_have_css("border-left-color", GREEN)
        expect(page.locator("#one-status")).to_have_text("completed")
        expect(page.locator("#output")).to_have_text(re.compile(r"\[\s*1,\s*2\s*\]"))
        row = page.locator(f'#executions tr[data-execution="{execution}"]')
        expect(row.locator(".status")).to_have_text("completed")
        numbers = page.locator("#events li").evaluate_all("lines => lines.map((line) => line.value)")
        assert numbers == list(range(len(numbers), 0, -1))


def test_page_is_usable_by_keyboard(page: Page) -> None:
    page.locator("body").press("Tab")
    for _ in range(20):
        if page.evaluate("document.activeElement.id") == "workflow":
            break
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "workflow"
    page.keyboard.type("Steps")
    expect(page.locator("#workflow")).to_have_value("steps")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("{}")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#one-status")).to_have_text("running")
    expect(_node(page, "first")).to_have_attribute("data-status", "waiting")
    execution = page.evaluate("location.hash.slice(1)")
    assert execution in page.locator("#said").inner_text()
    for act, status in (("Pause", "paused"), ("Resume", "running"), ("Cancel", "cancelled")):
        button = page.get_by_role("button", name=act)
        _tab_to(page, act)
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        page.keyboard.press("Enter")
        expect(page.locator("#one-status")).to_have_text(status)
        expect(button).to_be_hidden()


def _tab_to(page: Page, text: str) -> None:
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == text:
            return
    raise AssertionError(f"`{text}` cannot be reached with the Tab key")


def test_selected_row_keeps_focus_on_updates(page: Page, server: str) -> None:
    with Client(server) as client:
        mine = client.start("steps").execution_id
        button = page.get_by_role("button", name=mine)
        button.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#one-title")).to_contain_text(mine)
        other = client.start("steps").execution_id
        expect(page.get_by_role("button", name=other)).to_be_visible()
        assert page.evaluate("document.activeElement.textContent") == mine
        client.cancel(mine)
        client.cancel(other)


def test_splits_are_shown_as_counts(page: Page, server: str) -> None:
    with Client(server) as client:
        execution = client.start("items", {"items": list(range(30))}).execution_id
    page.goto(f"{server}/#{execution}")
    page.reload()
    expect(_node(page, "twice")).to_contain_text("15 success")
    expect(_node(page, "bad")).to_contain_text("15 failed")


def test_workflow_name_is_escaped(page: Page, server: str) -> None:
    with Client(server) as client:
        execution = client.start("steps").execution_id
        page.get_by_role("button", name=execution).click()
        expect(page.locator("#one-title")).to_contain_text("steps")
        assert page.locator("b").count() == 0
        client.cancel(execution)


def test_invalid_input_is_reported(page: Page) -> None:
    page.locator("#input").fill("{not json")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#said")).to_contain_text("JSON")


def test_content_security_policy_blocks_injected_elements(browser: Browser, server: str) -> None:
    page = browser.new_page()
    page.goto(server)
    expect(page.locator("#link")).to_have_text("live", timeout=DEADLINE_MS)
    page.evaluate(
        """() => {
          window.broken = [];
          document.addEventListener("securitypolicyviolation", (event) => window.broken.push(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
          const image = document.createElement("img");
          image.src = "http://example.invalid/x.png";
          document.body.append(image);
        }"""
    )
    page.wait_for_function("window.broken.length >= 2", timeout=DEADLINE_MS)
    assert page.evaluate("window.ran") is None
    assert set(page.evaluate("window.broken")) == {"script-src-elem", "img-src"}
    page.close()
