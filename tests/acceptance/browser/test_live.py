"""What the web interface shows while nodes run: progress, attempts, logs; and how tabs share streams."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.test_people import card
from tests.support.api_server import WAITS
from tests.support.documents import document, node
from tests.support.paths import SOURCE, python_path
from tests.support.up_process import UpProcess

CODE = """
import logging
from pathlib import Path
from rune import NodeContext, NodeFailure, node

@node("shop.pack")
def pack(ctx: NodeContext, file: str) -> str:
    ctx.log("packing")
    if ctx.attempt == 1:
        raise NodeFailure("the box is missing", code="NO_BOX")
    ctx.progress("3 of 4")
    Path(file).read_text()  # a pipe: waits until the test writes
    ctx.log("taped", level="warning")
    Path(file).read_text()
    return "parcel"
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    folder = tmp_path_factory.mktemp("live")
    (folder / "shop_nodes.py").write_text(CODE)
    process = UpProcess(folder / "home", RUNE_NODES="shop_nodes", PYTHONPATH=python_path(SOURCE, folder))
    process.start()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, up.said["url"])
    yield opened
    opened.close()


def packing(gate: Path) -> dict[str, Any]:
    os.mkfifo(gate)
    pack = node("p", "shop.pack", {"file": str(gate)}, retry={"max_attempts": 2, "initial_delay": 0.01})
    return document([node("a", "input"), pack, node("out", "output")], "a>p", "p>out", id="parcels")


def test_running_node_shows_progress_attempts_and_log_lines_as_they_come(
    watched: WatchedPage, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with Client(watched.url) as client:
        client.deploy(packing(gate))
        execution = client.start("parcels").execution_id
    page = watched.open(f"/executions/{execution}?node=p")
    panel = page.get_by_role("complementary", name="Node p")
    expect(card(page, "p")).to_have_attribute("data-state", "running")
    expect(card(page, "p")).to_contain_text("3 of 4")
    expect(card(page, "p").get_by_role("progressbar")).to_have_attribute("value", "0.75")
    expect(panel.locator(".attempts > li")).to_have_count(2)
    expect(panel.locator(".attempts > li").first).to_contain_text("NO_BOX")
    expect(panel.locator(".attempts > li").last).to_contain_text("running")
    log = panel.get_by_label("Log of attempt 2")
    expect(log).to_contain_text("packing")
    expect(log).not_to_contain_text("taped")

    gate.write_text("")

    expect(log).to_contain_text("taped")
    gate.write_text("")
    expect(card(page, "p")).to_have_attribute("data-state", "success")
    expect(card(page, "p").get_by_role("progressbar")).to_have_count(0)
    expect(panel.locator(".attempts > li").last).to_contain_text("succeeded")
    expect(log.locator(".log-line")).to_have_count(2)
    expect(panel.get_by_role("heading", name="Input")).to_be_visible()
    watched.check()


def test_tabs_of_a_browser_share_one_stream_and_another_takes_over(watched: WatchedPage) -> None:
    opened: list[str] = []
    pages: list[Page] = [watched.page, watched.context.new_page(), watched.context.new_page()]
    for each in pages:
        each.on("request", noting(opened))
        each.goto(f"{watched.url}/executions?workflow=waits")
        expect(each.get_by_text("Live", exact=True)).to_be_visible()
        expect(each.get_by_text("No execution matches all filters.")).to_be_visible()
    assert len(opened) == 1
    with Client(watched.url) as client:
        client.deploy(WAITS)
        execution = client.start("waits").execution_id
        for each in pages:
            expect(each.get_by_role("button", name="1 new")).to_be_visible()
            each.get_by_role("button", name="1 new").click()
            expect(each.locator(".list-row")).to_contain_text("running")

        pages[0].close()

        client.cancel(execution)
        for each in pages[1:]:
            expect(each.locator(".list-row")).to_contain_text("cancelled")
            expect(each.get_by_text("Live", exact=True)).to_be_visible()
    assert len(opened) == 2


def noting(opened: list[str]) -> Callable[[Request], None]:
    def on_request(request: Request) -> None:
        if re.search(r"/api/v1/events$", request.url):
            opened.append(request.url)

    return on_request


def test_more_watched_executions_than_streams_stay_current(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(WAITS)
        executions = [client.start("waits").execution_id for _ in range(8)]
        pages = [watched.context.new_page() for _ in executions]
        for each, execution in zip(pages, executions, strict=True):
            each.goto(f"{watched.url}/executions/{execution}")
            expect(card(each, "w")).to_have_attribute("data-state", "waiting")

        for execution in executions:
            client.signal(execution, "go", 1)

        for each in pages:
            expect(card(each, "out")).to_have_attribute("data-state", "success")
            expect(each.locator(".head .pill")).to_have_text("completed")


def test_going_from_overview_to_fleet_shows_the_processes(watched: WatchedPage) -> None:
    page = watched.open("/")
    expect(page.get_by_role("link", name="Fleet").last).to_contain_text("slots busy in 1 process")

    page.get_by_role("navigation").get_by_role("link", name="Fleet").click()

    expect(page.get_by_role("heading", name="Processes")).to_be_visible()
    expect(page.locator(".slots")).to_have_count(1)
    watched.check()
