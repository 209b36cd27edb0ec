"""Data that tries to run scripts, on every screen: it is shown as text, and nothing of it runs or is requested."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

SECRET = "open-sesame"
CANARY = "<img src=x onerror=window.ran=1><script>window.ran=1</script>"
CORPUS = (
    CANARY,
    "javascript:window.ran=1",
    '"><svg onload=window.ran=1>',
    "'-alert`1`-'",
    "https://example.invalid/pixel.png",
    "![x](https://example.invalid/pixel.png)",
    "\u202egnp.exe \U0001f4a5",
)
BAD = " ".join(CORPUS)
LONG = "w" * 300
DATA = {
    CANARY: BAD,
    "list": [*CORPUS, "{{constructor.constructor('window.ran=1')()}}"],
    "__proto__": {"ran": 1},
    LONG: LONG,
}
HOSTILE: dict[str, Any] = {
    "id": "hostile",
    "name": BAD,
    "inputs": {
        "type": "object",
        "title": BAD,
        "properties": {
            CANARY: {"type": "string", "title": BAD, "description": BAD, "default": BAD},
            "choice": {"enum": [BAD, CANARY], "description": BAD},
            "list": {"type": "array", "items": {"type": "string", "title": BAD}},
        },
    },
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "clock", "type": "schedule", "name": BAD, "parameters": {"cron": "0 0 1 1 *"}},
        {"id": "bad", "type": "fail", "name": BAD, "parameters": {"message": BAD, "code": "HOSTILE"}},
    ],
    "edges": [{"id": "e", "src": "in", "dst": "bad"}, {"id": "f", "src": "clock", "dst": "bad"}],
}
ASKS: dict[str, Any] = {
    "id": "asks",
    "name": CANARY,
    "nodes": [
        {"id": "in", "type": "input"},
        {
            "id": "ask",
            "type": "wait",
            "name": BAD,
            "parameters": {
                "resume": "signal",
                "name": "go",
                "title": BAD,
                "description": BAD,
                "choices": [CANARY, "<b>x</b>"],
            },
        },
        {"id": "out", "type": "output", "parameters": {"value": "{{ $trigger }}"}},
    ],
    "edges": [{"src": "in", "dst": "ask"}, {"src": "ask", "dst": "out"}],
}
PATHS = (
    "/",
    "/workflows",
    f"/workflows?q={quote(CANARY)}",
    "/workflows/hostile",
    "/workflows/hostile?node=bad",
    "/workflows/hostile/run",
    "/workflows/hostile/versions/1..2",
    "/workflows/hostile/edit?node=bad",
    "/workflows/hostile/edit?view=list",
    "/workflows/hostile/edit?view=text",
    "/executions",
    f"/executions?q={quote(BAD)}&label={quote('a=' + CANARY)}&code={quote(CANARY)}",
    "/executions/{hostile}?node=bad",
    "/executions/{hostile}?view=data",
    "/executions/{hostile}?view=events",
    "/executions/{hostile}?view=timeline",
    f"/executions/{{hostile}}?node={quote(CANARY)}&view={quote(CANARY)}",
    "/executions/{hostile}/diff/{again}",
    "/executions/{cancelled}",
    "/bulk",
    "/bulk/{job}",
    "/waiting",
    "/waiting/{asks}/ask",
    "/triggers",
    "/dead-letters",
    "/dead-letters?kind=messages",
    "/fleet",
    "/credentials",
    "/keys",
    "/log",
    f"/log?actor={quote(CANARY)}",
    "/settings",
    f"/{quote(CANARY)}",
)

ON_PHONE = (
    "/workflows",
    "/workflows/hostile",
    "/workflows/hostile/run",
    "/executions",
    "/executions/{hostile}?node=bad",
    "/executions/{hostile}?view=data",
    "/waiting/{asks}/ask",
    "/log",
)
WIDTHS = {1360: PATHS, 390: ON_PHONE}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    up = UpProcess(tmp_path_factory.mktemp("hostile"), RUNE_API_KEY=SECRET)
    url = up.start()
    ids: dict[str, str] = {}
    with Client(url, key=SECRET) as client:
        for document in (HOSTILE, {**HOSTILE, "name": CANARY}, ASKS):
            client.deploy(document, note=BAD)
        client.create_key(CANARY, "viewer")
        client.add_credential("mail", "bearer", {"token": CANARY}, hosts=["*"])
        for name in ("hostile", "again"):
            started = client.start(
                "hostile", {**DATA, "run": name}, labels={"team": "<b>x</b>", "a": CANARY[:60]}
            )
            ids[name] = started.execution_id
        ids["asks"] = client.start("asks", DATA).execution_id
        ids["cancelled"] = client.start("asks", DATA).execution_id
        client.cancel(ids["cancelled"], BAD)
        for each in ("hostile", "again", "cancelled"):
            client.wait(ids[each])
        ids["job"] = client.bulk("retry", ids=[ids["hostile"], ids["cancelled"]]).id
    yield url, ids
    up.stop(signal.SIGKILL)


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_data_is_shown_as_text_on_every_screen(
    browser: Browser, server: tuple[str, dict[str, str]], width: int
) -> None:
    url, ids = server
    watched = WatchedPage(browser, url, viewport={"width": width, "height": 860})
    sign_in = {"Authorization": f"Bearer {SECRET}", "Origin": url}
    assert watched.context.request.post(f"{url}/api/v1/session", headers=sign_in).ok
    wrong: list[str] = []
    for path in WIDTHS[width]:
        page = watched.open(path.format(**ids))
        expect(page.locator("main h1, main h2").first).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        ran = page.evaluate("window.ran ?? Object.prototype.ran")
        injected = page.locator("main img, main script, main b:text-is('x'), [href^=javascript]").count()
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if ran is not None or injected or wide > 0:
            wrong.append(f"{path}: ran={ran} injected={injected} overflow={wide}")
    watched.check()
    watched.close()

    assert wrong == []
