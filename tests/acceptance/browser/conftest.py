"""The browser of the tests: Chromium, started once per module, and pages that report what must not happen.

`axe.min.js.gz` is axe-core 4.14.0 (Mozilla Public License 2.0), which checks the accessibility of a page.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

DEADLINE_MS = 120_000
AXE = gzip.decompress((Path(__file__).parent / "axe.min.js.gz").read_bytes()).decode()
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


class WatchedPage:
    """A page of the web interface. It records errors, violations of the content security policy and requests to other
    hosts; `check` fails if there were any."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        # Frames of animations take CPU time from the tests and show nothing that they check.
        self.context = browser.new_context(**{"reduced_motion": "reduce", **options})
        self.context.add_init_script(WATCH)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(DEADLINE_MS)
        self.wrong: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.wrong.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "blob:")):
            self.foreign.append(request.url)

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.url}{path}")
        return self.page

    def check(self) -> None:
        assert self.page.evaluate("window.violations") == []
        assert self.wrong == []
        assert self.foreign == []

    def accessibility_problems(self) -> list[str]:
        """Return the violations that axe finds on the page as it is now."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE)
        found = self.page.evaluate(
            "(tags) => axe.run(document, {runOnly: tags, resultTypes: ['violations'], elementRef: false})",
            ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
        )
        return [
            f"{each['id']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def close(self) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed: `make stores` does it"
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield opened
        opened.close()


@pytest.fixture
def watched(browser: Browser, url: str) -> Iterator[WatchedPage]:
    """A page of the server whose URL the module's fixture `url` returns."""
    opened = WatchedPage(browser, url)
    yield opened
    opened.close()
