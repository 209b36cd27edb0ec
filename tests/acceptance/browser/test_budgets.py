"""The web interface with 2,000 nodes, 100,000 items and a value of 64 MB stays within three times its budgets.

CPU time and memory are held by every measurement. A time on the clock, such as that of the longest task, depends on
what else the machine does: it is divided by how much longer than its CPU time other work takes at that moment, and the
best of several measurements counts.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.measurements import (
    BUDGETS,
    GUARD,
    ITEMS,
    STEADY,
    Site,
    measure_editor,
    measure_graph,
    measure_items,
    measure_list,
    measure_value,
    open_site,
)
from tests.support.large_executions import CODES, FAILED_EVERY

pytestmark = pytest.mark.long

PROBE_S = 0.2
ROUNDS = 4
"""Number of measurements of which the best time on the clock counts."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    up, site = open_site(Path(tmp_path_factory.mktemp("large")) / "home")
    yield site
    up.stop(signal.SIGKILL)


def check(measure: Callable[[Browser, Site], dict[str, float]], browser: Browser, site: Site) -> None:
    figures = measure_on_idle_machine(measure, browser, site)
    assert {name: value for name, value in exceeding(figures).items() if is_steady(name)} == {}
    for _ in range(ROUNDS - 1):
        if not exceeding(figures):
            return
        again = measure_on_idle_machine(measure, browser, site)
        figures = {name: min(value, again[name]) for name, value in figures.items()}
    assert exceeding(figures) == {}


def measure_on_idle_machine(
    measure: Callable[[Browser, Site], dict[str, float]], browser: Browser, site: Site
) -> dict[str, float]:
    """Return the figures of a measurement, with times on the clock as an idle machine would have them."""
    before = slowdown()
    figures = measure(browser, site)
    factor = max(before, slowdown())
    return {name: value if is_steady(name) else value / factor for name, value in figures.items()}


def slowdown() -> float:
    """Return how many times its CPU time work takes on the clock, because other processes run."""
    began, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < PROBE_S:
        pass
    return max(1.0, (time.perf_counter() - began) / PROBE_S)


def is_steady(name: str) -> bool:
    """Return whether a figure does not depend on what else the machine does."""
    return any(each in name for each in STEADY)


def exceeding(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if value > GUARD * BUDGETS[name]}


def test_list_is_usable_within_budget(browser: Browser, site: Site) -> None:
    check(measure_list, browser, site)


def test_graph_of_2000_nodes_is_shown_moved_and_run_within_budget(browser: Browser, site: Site) -> None:
    check(measure_graph, browser, site)


def test_editor_of_2000_nodes_is_shown_and_moved_within_budget(browser: Browser, site: Site) -> None:
    check(measure_editor, browser, site)


def test_grid_of_100000_items_is_shown_and_filtered_within_budget(browser: Browser, site: Site) -> None:
    check(measure_items, browser, site)


def test_value_of_64_mb_is_shown_level_by_level_within_budget(browser: Browser, site: Site) -> None:
    check(measure_value, browser, site)


def test_grid_of_100000_items_counts_states_and_codes_and_opens_an_item(browser: Browser, site: Site) -> None:
    watched = WatchedPage(browser, site.url)
    page = watched.open(f"/executions/{site.items}?view=items")
    failed = ITEMS // FAILED_EVERY
    expect(page.get_by_role("button", name=f"failed {failed}")).to_be_visible()
    for code in CODES:
        expect(page.locator(".chip", has_text=code)).to_be_visible()
    assert page.locator(".item-row").count() < 100

    page.get_by_role("button", name=f"failed {failed}").click()
    second = f"s:{FAILED_EVERY + 7}"
    expect(page.locator(".item-button").nth(1)).to_contain_text(second)
    page.locator(".item-button").nth(1).click()

    expect(page.locator(".crumbs")).to_contain_text(second)
    expect(page.locator('.react-flow__node[data-id="fetch"] .flow-card')).to_have_attribute(
        "data-state", "failed"
    )
    watched.check()
    watched.close()
