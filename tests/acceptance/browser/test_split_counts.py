"""The figures of a split that runs: its aggregator says how many items it has, and each count stays of one kind."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.support.documents import document, node
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

ITEMS = 12
PARTLY: dict[str, Any] = document(
    [
        node("in", "input"),
        node("each", "split", {"input_array": "{{ $in.items }}"}),
        node("early", "conditional", {"expression": "$item < 5"}),
        node("quick", "noop"),
        node("hold", "wait", {"resume": "signal", "name": "go"}),
        node("all", "aggregator"),
        node("out", "output", {"value": "{{ len($all) }}"}),
    ],
    "in>each",
    "each>early",
    "early>quick:true",
    "early>hold:false",
    "quick>all",
    "hold>all",
    "all>out",
    id="partly",
)
# Remembers every text that a card has shown.
REMEMBER = """(id) => {
  const card = document.querySelector(`.react-flow__node[data-id="${id}"]`);
  window.shown = [card.innerText];
  const observer = new MutationObserver(() => window.shown.push(card.innerText));
  observer.observe(card, { subtree: true, childList: true, characterData: true });
}"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("counts"))
    process.start("--no-examples")
    yield process
    process.stop(signal.SIGKILL)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_aggregator_shows_how_many_items_it_has_and_counts_stay_counts_of_all_items(
    browser: Browser, up: UpProcess, theme: str
) -> None:
    with Client(up.said["url"]) as client:
        client.deploy(PARTLY, workflow="partly")
        execution = client.start("partly", {"items": list(range(ITEMS))}).execution_id
        watched = WatchedPage(
            browser, up.said["url"], color_scheme=theme, viewport={"width": 1500, "height": 900}
        )
        page = watched.open(f"/executions/{execution}")
        gathering = page.locator('.react-flow__node[data-id="all"]')
        hold = page.locator('.react-flow__node[data-id="hold"]')
        expect(gathering).to_contain_text(f"5 of {ITEMS}")
        expect(gathering.get_by_role("progressbar", name="Items that reached all")).to_have_attribute(
            "value", "5"
        )
        expect(hold).to_contain_text("7/12")
        assert watched.accessibility_problems() == []
        page.evaluate(REMEMBER, "hold")
        for item in range(5, 9):
            client.signal(execution, "go", item, item=f"each:{item}")
            expect(gathering).to_contain_text(f"{item + 1} of {ITEMS}")
        shown = [each.replace("\n", " ") for each in page.evaluate("window.shown")]
        totals = {total for each in shown for total in re.findall(r"/(\d+)", each)}
        assert totals == {str(ITEMS)}, shown
        assert all("waiting" in each for each in shown), shown
        for item in range(9, ITEMS):
            client.signal(execution, "go", item, item=f"each:{item}")
        assert client.wait(execution).status == "completed"
    expect(gathering).not_to_contain_text(" of ")
    watched.check()
    watched.close()
