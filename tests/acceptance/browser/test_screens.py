"""Every screen in both themes and on a phone: accessible, within the content security policy, and free of scripts that
data brings. With `RUNE_PICTURES` set to a folder the tests also store a picture of each screen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.test_people import BROKEN
from tests.support.api_server import ITEMS
from tests.support.up_process import UpProcess

CANARY = "<img src=x onerror=window.ran=1><script>window.ran=1</script>"
HOSTILE: dict[str, Any] = {
    "id": "hostile",
    "name": CANARY,
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "bad", "type": "fail", "name": CANARY, "parameters": {"message": CANARY, "code": "HOSTILE"}},
    ],
    "edges": [{"id": "e", "src": "in", "dst": "bad", "label": None}],
}
SCREENS = {
    "overview": ("/", "Overview"),
    "workflows": ("/workflows", "Workflows"),
    "workflow": ("/workflows/approval", "Approval"),
    "run": ("/workflows/approval/run", "Run Approval"),
    "versions": ("/workflows/prices/versions/1..2", "Version 1 → 2"),
    "executions": ("/executions", "Executions"),
    "execution": ("/executions/{approval}?node=ask", "approval"),
    "failed": ("/executions/{failed}?node=empty", "prices"),
    "items": ("/executions/{items}?view=items", "items"),
    "timeline": ("/executions/{items}?view=timeline", "items"),
    "data": ("/executions/{items}?view=data", "items"),
    "events": ("/executions/{items}?view=events", "items"),
    "compare": ("/executions/{failed}/diff/{retried}", "Compare executions"),
    "inbox": ("/waiting", "Inbox"),
    "decision": ("/waiting/{approval}/ask", "ask"),
    "triggers": ("/triggers", "Triggers"),
    "dead-letters": ("/dead-letters", "Dead letters"),
    "fleet": ("/fleet", "Fleet"),
    "credentials": ("/credentials", "Credentials"),
    "keys": ("/keys", "API keys"),
    "audit-log": ("/log", "Audit log"),
    "settings": ("/settings", "Settings"),
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1360, "height": 860}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1360, "height": 860}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 800}},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    up = UpProcess(tmp_path_factory.mktemp("screens"))
    url = up.start()
    ids: dict[str, str] = {}
    with Client(url) as client:
        for document in (ITEMS, BROKEN, HOSTILE):
            client.deploy(document)
        client.deploy({**BROKEN, "nodes": [*BROKEN["nodes"][:-1], {"id": "empty", "type": "noop"}]})
        ids["failed"] = client.start("prices", {"rows": 0}, version="1").execution_id
        client.wait(ids["failed"])
        ids["retried"] = client.retry(ids["failed"]).execution_id
        ids["items"] = client.start("items", {"items": list(range(400))}).execution_id
        ids["approval"] = client.start(
            "approval", {"order": 1042, "amount": 4_800}, labels={"team": "sales"}
        ).execution_id
        ids["hostile"] = client.start("hostile", {"text": CANARY}, labels={"team": "<b>x</b>"}).execution_id
        for each in ("retried", "items", "hostile"):
            client.wait(ids[each])
    yield url, ids
    up.stop(signal.SIGKILL)


@pytest.mark.parametrize("look", LOOKS)
def test_screen_is_accessible_and_loads_nothing_foreign(
    browser: Browser, server: tuple[str, dict[str, str]], look: str
) -> None:
    url, ids = server
    watched = WatchedPage(browser, url, reduced_motion="reduce", **LOOKS[look])
    problems: dict[str, list[str]] = {}
    for name, (path, title) in SCREENS.items():
        page = watched.open(path.format(**ids))
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        page.evaluate("document.fonts.ready")
        found = watched.accessibility_problems()
        if found:
            problems[name] = found
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        picture(watched, f"{name}-{look}")
    watched.check()
    watched.close()

    assert problems == {}, problems


def picture(watched: WatchedPage, name: str) -> None:
    folder = os.environ.get("RUNE_PICTURES")
    if folder:
        watched.page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")


def test_hostile_data_is_shown_as_text(browser: Browser, server: tuple[str, dict[str, str]]) -> None:
    url, ids = server
    watched = WatchedPage(browser, url)
    execution = f"/executions/{ids['hostile']}"
    for path in (
        "/",
        "/workflows",
        "/workflows/hostile",
        "/executions",
        f"{execution}?node=bad",
        f"{execution}?view=data",
        f"{execution}?view=events",
        f"{execution}?view=timeline",
        "/log",
    ):
        page = watched.open(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        assert page.evaluate("window.ran") is None, path
        assert page.locator("main img, main b:text-is('x')").count() == 0, path
    watched.check()
    watched.close()


def test_content_security_policy_blocks_injected_elements(
    browser: Browser, server: tuple[str, dict[str, str]]
) -> None:
    watched = WatchedPage(browser, server[0])
    page = watched.open("/settings")
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()

    page.evaluate(
        """() => {
          const style = document.createElement("style");
          style.textContent = "body { color: red }";
          document.body.append(style);
          const image = document.createElement("img");
          image.src = "http://example.invalid/x.png";
          document.body.append(image);
          try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); } catch { window.refused = true; }
        }"""
    )

    page.wait_for_function("window.violations.length >= 3")
    assert page.evaluate("window.refused") is True
    assert {each.split()[0] for each in page.evaluate("window.violations")} == {
        "style-src-elem",
        "img-src",
        "require-trusted-types-for",
    }
    watched.close()
