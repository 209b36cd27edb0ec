"""Answers of the server that are slow, or arrive in another order than they were asked for."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.test_administering import HOOK
from tests.acceptance.browser.test_people import BROKEN
from tests.support.api_server import ITEMS
from tests.support.cli_process import until
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

# Ends after the timers by which a page puts off a change of its address.
TIMERS = "new Promise((done) => setTimeout(done, 400))"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("slow"), RUNE_LOG_LEVEL="error")
    yield up.start()
    up.stop(signal.SIGKILL)


class Held:
    """Requests of a page that are kept back until a test passes them on."""

    def __init__(self, page: Page, pattern: str, method: str | None = None) -> None:
        self.routes: list[Route] = []
        self._page = page
        self._method = method
        self._pattern = re.compile(pattern)
        page.route(self._pattern, self._hold)

    def _hold(self, route: Route) -> None:
        if self._method in (None, route.request.method):
            self.routes.append(route)
        else:
            route.continue_()

    def arrived(self, count: int = 1) -> None:
        until(lambda: len(self.routes) >= count or self._page.evaluate("null"), f"{count} requests are held")

    def pass_on(self) -> None:
        for each in self.routes:
            each.continue_()
        self._page.unroute(self._pattern)


def ended(url: str, document: dict[str, Any], given: dict[str, Any]) -> str:
    """Run a workflow to its end, and return the id of the execution."""
    with Client(url) as client:
        client.deploy(document)
        execution = client.start(document["id"], given).execution_id
        client.wait(execution)
    return execution


def card(page: Page, name: str) -> Any:
    return page.locator(f'.react-flow__node[data-id="{name}"] .flow-card')


def test_run_with_an_earlier_input_starts_only_after_it_was_read(watched: WatchedPage) -> None:
    execution = ended(watched.url, BROKEN, {"rows": 0})
    held = Held(watched.page, f"/executions/{execution}/input")
    page = watched.open(f"/workflows/prices/run?from={execution}")
    start = page.get_by_role("button", name="Start")
    held.arrived()

    expect(start).to_be_disabled()

    held.pass_on()
    expect(page.get_by_label("Input as JSON")).to_have_value(re.compile('"rows": 0'))
    expect(start).to_be_enabled()
    watched.check()


def test_second_click_does_not_rotate_a_secret_again(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(HOOK)
    page = watched.open("/triggers")
    trigger = page.get_by_role("region", name="Trigger asked of hook")
    trigger.get_by_role("button", name="Rotate").click()
    dialog = page.get_by_role("dialog")
    held = Held(page, "/rotate$")

    dialog.get_by_role("button", name="New secret").click()
    held.arrived()

    expect(dialog.get_by_role("button", name="New secret")).to_be_disabled()
    expect(dialog.get_by_role("button", name="New path")).to_be_disabled()
    held.pass_on()
    expect(dialog).to_contain_text("The new secret is shown only now:")
    watched.check()


def test_input_of_the_run_that_was_chosen_last_is_tried(watched: WatchedPage) -> None:
    first, second = (ended(watched.url, BROKEN, {"rows": rows}) for rows in (1, 2))
    page = watched.open("/workflows/prices/edit")
    page.get_by_role("button", name="Try", exact=True).click()
    dialog = page.get_by_role("dialog", name="Try the draft")
    held = Held(page, "/executions/[^/]*/input$")
    dialog.get_by_label("Input of").select_option(first)
    held.arrived()
    dialog.get_by_label("Input of").select_option(second)
    held.arrived(2)
    expect(dialog.get_by_role("button", name="Start")).to_be_disabled()

    field = dialog.get_by_label("Input as JSON")
    held.routes[1].continue_()
    expect(field).to_have_value(re.compile('"rows": 2'))
    with page.expect_response(re.compile(f"{first}/input$")):
        held.routes[0].continue_()

    page.evaluate(TIMERS)
    expect(field).to_have_value(re.compile('"rows": 2'))
    expect(dialog.get_by_role("button", name="Start")).to_be_enabled()
    watched.check()


def test_first_key_is_for_an_administrator_also_before_the_keys_were_read(watched: WatchedPage) -> None:
    held = Held(watched.page, "/api/v1/keys$")
    page = watched.open("/keys")
    page.get_by_role("button", name="Create a key").click()
    held.arrived()

    held.pass_on()

    expect(page.get_by_role("dialog").get_by_label("Role")).to_have_value("admin")
    watched.check()


def test_new_key_is_shown_although_its_dialog_was_to_be_closed(watched: WatchedPage) -> None:
    page = watched.open("/keys")
    page.get_by_role("button", name="Create a key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("nightly")
    held = Held(page, "/api/v1/keys$", "POST")

    dialog.get_by_role("button", name="Create", exact=True).click()
    held.arrived()
    page.keyboard.press("Escape")

    expect(dialog.get_by_text("Close", exact=True)).to_be_disabled()
    held.routes[0].fulfill(json={"key": "rune_secret-of-the-key"})
    expect(dialog).to_contain_text("rune_secret-of-the-key")
    watched.check()


def test_withdrawn_grants_are_gone_whatever_answer_comes_last(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.add_credential("shop", "bearer", {"token": "t0ken-of-the-shop"}, hosts=["shop.example"])
        client.grant("shop", ["queue", "everyone"])
    page = watched.open("/credentials")
    page.get_by_role("row", name="shop").get_by_role("button", name="Grants").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem")).to_have_count(3)
    held = Held(page, "/credentials/shop/grants$", "POST")
    for name in ("queue", "everyone"):
        dialog.get_by_role("button", name=f"Withdraw from {name}").click()
    held.arrived(2)

    # Both are carried out in order, but the answer to the first comes last.
    answers = [each.fetch() for each in held.routes]
    for each, answer in reversed(list(zip(held.routes, answers, strict=True))):
        each.fulfill(response=answer)

    expect(dialog.get_by_role("listitem")).to_have_count(1)
    watched.check()


def test_queue_is_not_called_unserved_before_the_processes_were_read(watched: WatchedPage) -> None:
    page = watched.page
    held = Held(page, "/api/v1/workers$")
    queue = {"name": "default", "depth": 0, "held": 0, "oldest_ms": None}
    page.route("**/api/v1/queues", lambda route: route.fulfill(json={"queues": [queue]}))

    watched.open("/fleet")

    row = page.get_by_role("group", name="Table of queues").locator("tbody tr")
    expect(row).to_contain_text("default")
    expect(row).not_to_contain_text("no worker")
    held.pass_on()
    expect(row).to_contain_text("1 process")
    watched.check()


def test_menu_leads_to_lists_without_the_former_search(watched: WatchedPage) -> None:
    ended(watched.url, BROKEN, {"rows": 0})
    page = watched.open("/executions?q=nothing-has-this-text")
    menu = page.get_by_role("navigation", name="Main")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()

    menu.get_by_role("link", name="Executions").click()

    expect(page.locator(".list-row").first).to_be_visible()
    page.evaluate(TIMERS)
    assert page.url == f"{watched.url}/executions"
    expect(page.get_by_role("searchbox")).to_have_value("")

    watched.open("/workflows?q=nothing-has-this-text")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    menu.get_by_role("link", name="Workflows").click()
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("searchbox")).to_have_value("")

    watched.open("/log?actor=nobody")
    menu.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("searchbox", name="Filter by actor")).to_have_value("")
    watched.check()


def test_command_box_opens_no_execution_that_was_found_for_another_text(watched: WatchedPage) -> None:
    older = ended(watched.url, BROKEN, {"rows": 0})
    ended(watched.url, BROKEN, {"rows": 0})
    page = watched.open("/settings")
    expect(page.get_by_role("heading", name="Settings", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    box = page.get_by_role("dialog", name="Search")
    expect(box.get_by_role("option").filter(has_text=re.compile("Executions$")).nth(1)).to_be_visible()
    held = Held(page, "/api/v1/executions[?].*q=")

    page.keyboard.insert_text(older)
    held.arrived()
    expect(box.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")

    expect(page).to_have_url(f"{watched.url}/executions/{older}")
    held.pass_on()
    watched.check()


def test_items_are_coloured_by_states_until_their_durations_were_read(watched: WatchedPage) -> None:
    execution = ended(watched.url, ITEMS, {"items": list(range(20))})
    page = watched.open(f"/executions/{execution}?view=items")
    picture = page.get_by_role("img", name=re.compile("items of s"))
    held = Held(page, "/packed[?].*by=duration")
    expect(picture).to_be_visible()

    page.get_by_label("Coloured by").select_option("duration")
    held.arrived()

    picture.hover(position={"x": 3, "y": 3})
    expect(page.locator(".legend")).to_have_text("item 0: succeeded")
    held.pass_on()
    picture.hover(position={"x": 4, "y": 4})
    expect(page.locator(".legend")).to_contain_text("about")
    watched.check()


def test_answer_of_an_action_does_not_lead_away_from_another_screen(watched: WatchedPage) -> None:
    execution = ended(watched.url, BROKEN, {"rows": 0})
    page = watched.open(f"/executions/{execution}")
    page.get_by_role("button", name="Retry", exact=True).click()
    held = Held(page, "/retry$")
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    held.arrived()
    page.keyboard.press("Escape")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Workflows").click()
    expect(page.get_by_role("heading", name="Workflows", exact=True)).to_be_visible()

    held.pass_on()

    expect(page.locator(".toast")).to_contain_text("Retried as")
    assert page.url == f"{watched.url}/workflows"
    page.locator(".toast").get_by_role("link").click()
    expect(page.get_by_text("retry of")).to_be_visible()
    watched.check()


def test_answer_of_a_start_does_not_lead_away_from_another_screen(watched: WatchedPage) -> None:
    ended(watched.url, BROKEN, {"rows": 0})
    page = watched.open("/workflows/prices/run")
    held = Held(page, "/workflows/prices/executions$")
    page.get_by_role("button", name="Start").click()
    held.arrived()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Triggers").click()
    expect(page.get_by_role("heading", name="Triggers", exact=True)).to_be_visible()

    held.pass_on()

    expect(page.locator(".toast")).to_contain_text("Started")
    assert page.url == f"{watched.url}/triggers"
    page.locator(".toast").get_by_role("link").click()
    expect(page).to_have_url(re.compile("/executions/x"))
    watched.check()


def test_slider_keeps_the_focus_while_a_moment_is_read(watched: WatchedPage) -> None:
    execution = ended(watched.url, BROKEN, {"rows": 0})
    page = watched.open(f"/executions/{execution}")
    slider = page.get_by_role("slider", name="Replay")
    expect(card(page, "empty")).to_have_attribute("data-state", "failed")
    last = int(slider.get_attribute("max") or 0)
    held = Held(page, "/history[?].*before=")

    slider.focus()
    for step in (1, 2):
        page.keyboard.press("ArrowLeft")
        expect(page).to_have_url(re.compile(f"at={last - step}$"))
        expect(card(page, "empty")).to_be_visible()
        expect(slider).to_have_attribute("aria-valuetext", f"event {last - step} of {last}")

    expect(slider).to_be_focused()
    held.pass_on()
    watched.check()
