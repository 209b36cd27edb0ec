"""Two scenes of which the documentation has clips: an operator retries a failed execution; a fan-out while it runs.

`make clip` sets RUNE_CLIPS, a folder, and so stores the clips; otherwise the scenes are tests like the others.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.test_people import card
from tests.support.api_server import HELLO
from tests.support.clips import Clip
from tests.support.documents import document, node
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

PARCELS: dict[str, Any] = document(
    [
        node("orders", "input"),
        node("each", "split", {"input_array": "{{ range(24) }}"}),
        node("packed", "wait", {"resume": "signal", "name": "packed"}),
        node("heavy", "conditional", {"expression": "$item % 9 == 4"}),
        node("refuse", "fail", {"message": "too heavy for this carrier", "code": "TOO_HEAVY"}),
        node("send", "noop"),
        node("all", "aggregator"),
    ],
    "orders>each",
    "each>packed",
    "packed>heavy",
    "heavy>refuse:true",
    "heavy>send:false",
    "refuse>all",
    "send>all",
    id="parcels",
)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("clips"), RUNE_HTTP_ALLOW="127.0.0.1")
    process.start("--no-examples")
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(
        browser, up.said["url"], viewport={"width": 960, "height": 560}, color_scheme="light"
    )
    yield opened
    opened.close()


@pytest.fixture
def clip(watched: WatchedPage) -> Iterator[Callable[[str], Clip]]:
    made: dict[str, Clip] = {}

    def begin(name: str) -> Clip:
        made[name] = Clip(watched.page, enabled="RUNE_CLIPS" in os.environ)
        return made[name]

    yield begin
    for name, each in made.items():
        if "RUNE_CLIPS" in os.environ:
            each.write(Path(os.environ["RUNE_CLIPS"]) / f"{name}.png")


def test_operator_opens_a_failed_execution_and_retries_it_when_the_service_is_back(
    watched: WatchedPage, clip: Callable[[str], Clip]
) -> None:
    scene = clip("clip-retry")
    stock = document(
        [
            node("order", "input"),
            node(
                "stock",
                "http",
                {"url": f"{watched.url}/api/v1/workflows/hello", "raise_on_status": "4xx,5xx"},
            ),
            node("ship", "output", {"value": "{{ $stock.body.version }}"}),
        ],
        "order>stock",
        "stock>ship",
        id="shipping",
    )
    with Client(watched.url) as client:
        client.deploy(stock)
        failed = client.start("shipping", {"order": 7}).execution_id
        client.wait(failed)
    page = watched.open("/executions?workflow=shipping")
    expect(page.locator(".list-row")).to_have_count(1)
    scene.frame("An execution has failed")
    page = watched.open(f"/executions/{failed}")
    expect(card(page, "stock")).to_have_attribute("data-state", "failed")
    scene.frame("The graph shows where")
    page.get_by_role("button", name="Show stock").click()
    expect(page.get_by_role("complementary", name="Node stock")).to_contain_text("HTTP_STATUS")
    scene.frame("The error of the node, and what it sent")

    with Client(watched.url) as client:
        client.deploy(HELLO)  # the address exists from now on
    page.get_by_role("button", name="Retry", exact=True).click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Retry")
    expect(confirm).to_be_in_viewport(ratio=1)
    scene.frame("Retry it, once the service is back")
    confirm.click()

    expect(page).not_to_have_url(re.compile(failed))
    expect(card(page, "ship")).to_have_attribute("data-state", "success")
    scene.frame("The retry has completed; results that existed were kept")
    watched.check()


def test_items_of_a_fan_out_change_their_state_on_an_open_page(
    watched: WatchedPage, clip: Callable[[str], Clip]
) -> None:
    scene = clip("clip-fan-out")
    with Client(watched.url) as client:
        client.deploy(PARCELS)
        execution = client.start("parcels").execution_id
        page = watched.open(f"/executions/{execution}")
        expect(card(page, "packed")).to_contain_text("24")
        scene.frame("A split of 24 items, all of which wait")
        for number in range(10):
            client.signal(execution, "packed", item=f"each:{number}")
        expect(card(page, "packed")).to_contain_text("14/24")
        scene.frame("Items go on as their signals arrive")
        page.get_by_role("tab", name="Items").click()
        expect(page.get_by_role("button", name=re.compile("^failed 1"))).to_be_visible()
        scene.frame("Each item by its state, while the others wait")
        for number in range(10, 24):
            client.signal(execution, "packed", item=f"each:{number}")
        expect(page.locator(".head .pill")).to_have_text("completed with 3 failed items")
        scene.frame("The page follows until the end: 3 items failed, the rest is done")
        assert client.execution(execution).status == "completed"
    watched.check()
