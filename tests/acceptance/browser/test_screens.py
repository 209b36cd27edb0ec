"""Every screen, light on a desktop and dark on a phone, with RUNE_WHOLE=1 in both themes on both: accessible and within
the content security policy. With `RUNE_PICTURES` set to a folder the tests also store a picture of each screen in both
themes and both widths (`make pictures`)."""

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
from tests.support.documents import document, edit, node
from tests.support.up_process import UpProcess
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

ORDERS: dict[str, Any] = document(
    [
        node("start", "input"),
        node("lines", "split", {"input_array": "{{ $trigger.lines }}"}),
        node("known", "conditional", {"expression": "$item.sku % 41 != 0"}, name="Known article?"),
        node(
            "unknown",
            "fail",
            {"message": "no article has the number {{ $item.sku }}", "code": "UNKNOWN_ARTICLE"},
        ),
        node("stock", "conditional", {"expression": "$item.sku % 29 != 0"}, name="In stock?"),
        node("sold_out", "fail", {"message": "{{ $item.sku }} is sold out", "code": "SOLD_OUT"}),
        edit("reserve", "{{ $item.sku }}", name="Reserve"),
        node("all", "aggregator", name="Collect"),
        node("done", "output", {"value": "{{ $all }}"}),
    ],
    "start>lines",
    "lines>known",
    "known>unknown:false",
    "known>stock:true",
    "stock>sold_out:false",
    "stock>reserve:true",
    "unknown>all",
    "sold_out>all",
    "reserve>all",
    "all>done",
    id="orders",
    name="Import orders",
)
REPORT: dict[str, Any] = document(
    [
        node("weekdays", "schedule", {"cron": "30 6 * * 1-5", "timezone": "Europe/Berlin"}),
        node("asked", "webhook"),
        node("send", "output", {"value": "sent"}),
    ],
    "weekdays>send",
    "asked>send",
    id="report",
    name="Morning report",
)
LINES = [{"sku": 1_000 + n * 7 % 640, "quantity": 1 + n % 4} for n in range(640)]
SCREENS = {
    "overview": ("/", "Overview"),
    "workflows": ("/workflows", "Workflows"),
    "workflow": ("/workflows/approval", "Approval"),
    "run": ("/workflows/approval/run", "Run Approval"),
    "editor": ("/workflows/approval/edit?node=ask", "Approval"),
    "editor-list": ("/workflows/approval/edit?view=list&text=1", "Approval"),
    "editor-text": ("/workflows/approval/edit?view=text", "Approval"),
    "new-workflow": ("/editor", "new-workflow"),
    "versions": ("/workflows/prices/versions/1..2", "Version 1 → 2"),
    "executions": ("/executions", "Executions"),
    "execution": ("/executions/{approval}?node=ask", "approval"),
    "failed": ("/executions/{failed}?node=empty", "prices"),
    "split": ("/executions/{orders}", "orders"),
    "items": ("/executions/{orders}?view=items", "orders"),
    "timeline": ("/executions/{orders}?view=timeline", "orders"),
    "data": ("/executions/{orders}?view=data", "orders"),
    "events": ("/executions/{orders}?view=events", "orders"),
    "compare": ("/executions/{failed}/diff/{repaired}", "Compare executions"),
    "inbox": ("/waiting", "Inbox"),
    "decision": ("/waiting/{approval}/ask", "ask"),
    "triggers": ("/triggers", "Triggers"),
    "dead-letters": ("/dead-letters", "Dead letters"),
    "dead-messages": ("/dead-letters?kind=messages", "Dead letters"),
    "bulk-jobs": ("/bulk", "Bulk jobs"),
    "bulk-job": ("/bulk/{job}", "Retry 2 executions"),
    "fleet": ("/fleet", "Fleet"),
    "credentials": ("/credentials", "Credentials"),
    "keys": ("/keys", "API keys"),
    "audit-log": ("/log", "Audit log"),
    "settings": ("/settings", "Settings"),
}
OPENED = {
    "import": ("/workflows", "Workflows", "Import", "Import a workflow"),
    "editor-try": ("/workflows/approval/edit?node=ask", "Approval", "Try", "Pinned output"),
}
"""What a button of a screen opens: path, title, the last button of this name, and the name of what appears."""

ON_DESKTOP = {"editor-try"}  # a phone shows the text of a workflow only
DESKTOP, PHONE = {"width": 1360, "height": 860}, {"width": 390, "height": 800}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": DESKTOP},
    "phone-dark": {"color_scheme": "dark", "viewport": PHONE},
}
if WHOLE or "RUNE_PICTURES" in os.environ:
    LOOKS["dark"] = {"color_scheme": "dark", "viewport": DESKTOP}
    LOOKS["phone"] = {"color_scheme": "light", "viewport": PHONE}

REPLACE_HOME = """
(home) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replaceAll(home, ".rune");
}
"""
"""Replaces the folder of the test, which differs from machine to machine, by the default one."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    home = tmp_path_factory.mktemp("screens")
    up = UpProcess(home)
    url = up.start()
    ids = {"home": str(home)}
    with Client(url) as client:
        for workflow in (ORDERS, BROKEN, REPORT):
            client.deploy(workflow)
        client.add_credential("shop", "bearer", {"token": "secret"}, hosts=["api.shop.example"])
        client.deploy({**BROKEN, "nodes": [*BROKEN["nodes"][:-1], {"id": "empty", "type": "noop"}]})
        ids["failed"] = client.start("prices", {"rows": 0}, version="1").execution_id
        client.wait(ids["failed"])
        ids["retried"] = client.retry(ids["failed"]).execution_id
        ids["repaired"] = client.start("prices", {"rows": 3}, version="2").execution_id
        ids["orders"] = client.start("orders", {"lines": LINES}).execution_id
        ids["approval"] = client.start(
            "approval", {"order": 1042, "amount": 4_800}, labels={"team": "sales"}
        ).execution_id
        for each in ("retried", "repaired", "orders"):
            client.wait(ids[each])
        ids["job"] = client.bulk("retry", ids=[ids["failed"], ids["orders"]]).id
    yield url, ids
    up.stop(signal.SIGKILL)


@pytest.mark.parametrize("look", LOOKS)
def test_screen_is_accessible_and_loads_nothing_foreign(
    browser: Browser, server: tuple[str, dict[str, str]], look: str
) -> None:
    url, ids = server
    watched = WatchedPage(browser, url, **LOOKS[look])
    problems: dict[str, list[str]] = {}
    opened = {name: each for name, each in OPENED.items() if "phone" not in look or name not in ON_DESKTOP}
    for name, (path, title, *button) in {**SCREENS, **opened}.items():
        page = watched.open(path.format(**ids))
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
        if button:
            page.get_by_role("button", name=button[0], exact=True).last.click()
            expect(page.get_by_label(button[1])).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        page.evaluate("document.fonts.ready")
        found = watched.accessibility_problems()
        if found:
            problems[name] = found
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        if "phone" not in look:
            assert page.locator(".nav-link[aria-current=page]").count() == 1, name
        for tab in page.locator("[role=tab][aria-selected=true]").all():
            expect(tab).to_be_in_viewport(ratio=1)
        picture(watched, f"{name}-{look}", ids["home"])
    watched.check()
    watched.close()

    assert problems == {}, problems


def picture(watched: WatchedPage, name: str, home: str) -> None:
    folder = os.environ.get("RUNE_PICTURES")
    if folder:
        watched.page.evaluate(REPLACE_HOME, home)
        watched.page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")


def test_content_security_policy_blocks_injected_elements(
    browser: Browser, server: tuple[str, dict[str, str]]
) -> None:
    watched = WatchedPage(browser, server[0])
    page = watched.open("/settings")
    expect(page.get_by_role("heading", name="Settings", exact=True)).to_be_visible()

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
