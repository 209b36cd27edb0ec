"""Check the built site in a browser: accessibility in both themes, no requests to other hosts, no errors.

    python tools/check_site.py [FOLDER]

Serves `build/site`, opens a page of every kind in Chromium and runs axe-core on it. Exits 1 if anything is found.
"""

from __future__ import annotations

import functools
import gzip
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
AXE = ROOT / "tests" / "acceptance" / "browser" / "axe.min.js.gz"
DEADLINE_MS = 120_000
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PAGES = (
    "index.html",
    "start/*.html",
    "guides/author/*.html",
    "guides/develop/*.html",
    "guides/operate/*.html",
    "reference/*.html",
    "reference/nodes/*.html",
    "reference/errors/*.html",
    "reference/api/*.html",
    "about/*.html",
)
"""One page of each pattern is checked: the longest, which has most kinds of content."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port; yield its URL."""
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def sample(folder: Path) -> list[str]:
    """Return the longest page of each pattern; raise if a pattern has none."""
    found = []
    for pattern in PAGES:
        pages = sorted(folder.glob(pattern), key=lambda each: each.stat().st_size)
        if not pages:
            raise SystemExit(f"{folder} has no page {pattern}: run `make docs`")
        found.append(str(pages[-1].relative_to(folder)))
    return found


def violations(page: Page) -> list[str]:
    """Return what axe finds on the page as it is now."""
    page.evaluate(gzip.decompress(AXE.read_bytes()).decode())
    found = page.evaluate(
        "(tags) => axe.run(document, {runOnly: tags, resultTypes: ['violations'], elementRef: false})", RULES
    )
    return [f"{each['id']}: {node['target']}" for each in found["violations"] for node in each["nodes"]]


def check_page(browser: Browser, url: str, name: str, theme: Literal["light", "dark"]) -> list[str]:
    """Open a page; return its accessibility violations, requests to other hosts and script errors."""
    context = browser.new_context(color_scheme=theme, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url + name)
    found = violations(page)
    context.close()
    foreign = [each for each in requests if not each.startswith((url, "data:", "blob:"))]
    return [*found, *errors, *(f"request to {each}" for each in foreign)]


def check(folder: Path) -> list[str]:
    """Check a sample of the pages in both themes; return everything that is wrong."""
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: `make stores` does it")
    wrong: list[str] = []
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    with served(folder) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for theme in themes:
            for name in sample(folder):
                found = check_page(browser, url, name, theme)
                print(f"{theme:5} {name}: {len(found)} problems", flush=True)
                wrong += (f"{theme} {name}: {each}" for each in found)
        browser.close()
    return wrong


def main() -> int:
    wrong = check(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
    print("\n".join(wrong) if wrong else "no violations, no requests to other hosts", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
