"""What people administer: credentials, API keys, triggers, dead letters, workflows and their limits, checks."""

from __future__ import annotations

import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rune.client import ApiError, Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.test_people import BROKEN
from tests.support.api_server import WAITS
from tests.support.documents import document, node
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

SECRET = "open-sesame"
HOOK: dict[str, Any] = document(
    [node("asked", "webhook", {"auth": "header"}), node("done", "output", {"value": "done"})],
    "asked>done",
    id="hook",
)
CALLS: dict[str, Any] = document(
    [
        node("start", "input"),
        node("ask", "http", {"url": "https://api.shop.example/"}, credentials={"name": "shop"}),
        node("other", "http", {"url": "https://api.shop.example/"}, credentials={"name": "warehouse"}),
    ],
    "start>ask",
    "start>other",
    id="calls",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """A server with a key, and two executions that it has given up on."""
    home = Path(tmp_path_factory.mktemp("administering"))
    up = UpProcess(home, RUNE_API_KEY=SECRET, RUNE_LOG_LEVEL="error")
    url = up.start()
    with Client(url, key=SECRET) as client:
        client.deploy(BROKEN)
        given_up = [client.start("prices", {"rows": 0}).execution_id for _ in range(2)]
        for each in given_up:
            client.wait(each)
    up.stop()
    db = sqlite3.connect(home / "rune.db")
    now = time.time_ns() // 1_000_000
    db.executemany(
        "INSERT INTO dead_letter (execution, code, at) VALUES (?, 'WORKER_CRASH', ?)",
        [(each, now + at) for at, each in enumerate(given_up)],
    )
    db.commit()
    db.close()
    yield up.start(), given_up
    up.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, server: tuple[str, list[str]]) -> Iterator[WatchedPage]:
    """A page of somebody who has signed in as administrator."""
    opened = WatchedPage(browser, server[0])
    page = opened.open("/settings")
    page.get_by_label("API key").fill(SECRET)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Settings", exact=True)).to_be_visible()
    yield opened
    opened.close()


def admin(watched: WatchedPage) -> Client:
    return Client(watched.url, key=SECRET)


def row(page: Page, name: str) -> Any:
    return page.locator("tbody tr").filter(has_text=name)


def test_credential_is_added_granted_changed_and_deleted_without_its_value_coming_out(
    watched: WatchedPage,
) -> None:
    received: list[str] = []
    watched.page.on(
        "response", lambda each: received.append(each.text()) if "/credentials" in each.url else None
    )
    page = watched.open("/credentials")
    page.get_by_role("button", name="Add a credential").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("shop")
    dialog.get_by_label("Type").select_option("api_key")
    expect(dialog.get_by_label("place")).to_be_visible()
    expect(dialog.get_by_role("button", name="Store")).to_be_disabled()
    dialog.get_by_label("key").fill("hunter2")
    expect(dialog.get_by_label("key")).to_have_attribute("type", "password")
    dialog.get_by_label("Hosts").fill("api.shop.example")
    assert watched.accessibility_problems() == []
    dialog.get_by_role("button", name="Store").click()
    expect(row(page, "shop")).to_contain_text("key: •••")
    expect(row(page, "shop")).to_contain_text("api.shop.example")

    row(page, "shop").get_by_role("button", name="Grants").click()
    expect(dialog.get_by_label("Granted to").locator("li")).to_have_count(1)
    dialog.get_by_label("Grant to").fill("somebody")
    dialog.get_by_role("button", name="Grant", exact=True).click()
    expect(dialog.locator(".notice")).to_be_visible()
    dialog.get_by_label("Grant to").fill("workflow:orders-*")
    dialog.get_by_role("button", name="Grant", exact=True).click()
    expect(dialog.get_by_label("Granted to").locator("li")).to_have_count(2)
    assert watched.accessibility_problems() == []
    dialog.get_by_role("button", name="Withdraw from workflow:orders-*").click()
    expect(dialog.get_by_label("Granted to").locator("li")).to_have_count(1)
    dialog.get_by_role("button", name="Close").last.click()

    row(page, "shop").get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("key")).to_have_value("")
    dialog.get_by_label("key").fill("hunter3")
    dialog.get_by_role("button", name="Store").click()
    expect(page.get_by_text("Changed shop")).to_be_visible()
    with admin(watched) as client:
        assert client.credential("shop").version == 2

    page.get_by_role("button", name="Delete shop").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No credentials")).to_be_visible()
    assert received != []
    assert "hunter" not in "".join(received)
    watched.check()


def test_credential_lists_the_nodes_that_refer_to_it(watched: WatchedPage) -> None:
    with admin(watched) as client:
        client.add_credential("shop", "bearer", {"token": "secret"}, hosts=["api.shop.example"])
        client.add_credential("unused", "bearer", {"token": "secret"}, hosts=["api.shop.example"])
        client.deploy(CALLS)
        (use,) = client.credential_uses("shop")
    assert (use.workflow_id, use.version, use.nodes) == ("calls", 1, ["ask"])
    page = watched.open("/credentials")
    dialog = page.get_by_role("dialog")

    page.get_by_role("button", name="Uses of unused").click()
    expect(dialog.get_by_text("No workflow refers to it.")).to_be_visible()
    dialog.get_by_role("button", name="Close").last.click()
    page.get_by_role("button", name="Uses of shop").click()
    expect(dialog.get_by_label("Workflows").locator("li")).to_have_count(1)
    expect(dialog.get_by_label("Workflows")).to_contain_text("ask")
    assert watched.accessibility_problems() == []
    dialog.get_by_role("link", name="calls 1").click()

    expect(page.get_by_role("heading", name="Version 1")).to_be_visible()
    with admin(watched) as client:
        client.remove_credential("shop")
        client.remove_credential("unused")
    watched.check()


def test_key_is_shown_once_works_and_is_revoked(watched: WatchedPage) -> None:
    page = watched.open("/keys")
    page.get_by_role("button", name="Create a key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("nightly imports")
    dialog.get_by_label("Role").select_option("runner")
    dialog.get_by_label("Workflows").fill("prices")
    assert watched.accessibility_problems() == []
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_contain_text("It is not shown again.")
    key = dialog.locator("code").inner_text()
    dialog.get_by_role("button", name="Done").click()

    expect(row(page, "nightly imports")).to_contain_text("prices")
    expect(page.locator("body")).not_to_contain_text(key)
    with Client(watched.url, key=key) as client:
        assert client.me().role == "runner"
        page.reload()
        expect(page.locator("body")).not_to_contain_text(key)

        row(page, "nightly imports").get_by_role("button", name="Revoke").click()
        dialog.get_by_role("button", name="Revoke").click()
        expect(row(page, "nightly imports")).to_contain_text("revoked")
        with pytest.raises(ApiError) as refused:
            client.me()
        assert refused.value.status == 401
    watched.check()


def test_trigger_is_switched_off_and_on_and_its_path_and_secret_are_rotated(watched: WatchedPage) -> None:
    with admin(watched) as client:
        client.deploy(HOOK)
    page = watched.open("/triggers")
    trigger = page.get_by_role("region", name="Trigger asked of hook")
    expect(trigger.get_by_role("button", name="Copy as curl")).to_be_visible()
    switch = trigger.get_by_role("switch", name="Enable asked")
    expect(switch).to_have_attribute("aria-checked", "true")

    switch.click()
    expect(switch).to_have_attribute("aria-checked", "false")
    with admin(watched) as client:
        assert [each.enabled for each in client.triggers(workflow="hook")] == [False]
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")

    before = trigger.locator("dd code").first.inner_text()
    trigger.get_by_role("button", name="Rotate").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="New path").click()
    expect(dialog).to_contain_text("The new path is /hooks/")
    path = dialog.locator(".notice code").inner_text()
    assert not before.endswith(path)
    dialog.get_by_role("button", name="Done").click()
    expect(trigger.locator("dd code").first).to_have_text(f"{watched.url}{path}")
    trigger.get_by_role("button", name="Rotate").click()
    dialog.get_by_role("button", name="New secret").click()
    expect(dialog).to_contain_text("The new secret is shown only now:")
    secret = dialog.locator(".notice code").inner_text()
    assert watched.accessibility_problems() == []
    dialog.get_by_role("button", name="Done").click()
    expect(page.locator("body")).not_to_contain_text(secret)
    watched.check()


def test_executions_that_were_given_up_on_are_requeued_or_discarded(
    watched: WatchedPage, server: tuple[str, list[str]]
) -> None:
    page = watched.open("/dead-letters")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").first).to_contain_text("WORKER_CRASH")
    assert watched.accessibility_problems() == []

    page.locator("tbody tr").first.get_by_role("button", name="Requeue").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Discard").click()
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()
    page.get_by_role("link", name="Open the new execution").click()
    expect(page.get_by_text("retry of")).to_be_visible()

    page.get_by_text("retry of").get_by_role("link").first.click()
    expect(page.get_by_text("retried as")).to_be_visible()
    watched.check()


def test_list_of_workflows_counts_all_running_and_failed_ones(watched: WatchedPage) -> None:
    with admin(watched) as client:
        client.deploy(WAITS)
        for _ in range(25):  # more than the last outcomes that a row shows
            client.start("waits")
    page = watched.open("/workflows")
    waits = row(page, "waits")
    expect(waits.get_by_role("link", name="25", exact=True)).to_be_visible()
    expect(row(page, "Import prices").locator("td").nth(3)).to_have_text(re.compile("^[2-9]$"))
    expect(waits.locator("td").nth(3)).to_have_text("–")

    page.get_by_label("Filter by name or id").fill("prices")
    expect(page.locator("tbody tr")).to_have_count(1)
    row(page, "Import prices").locator("td").nth(3).get_by_role("link").click()
    expect(page).to_have_url(re.compile("status=failed&since=24h"))
    expect(page.locator(".list-row").first).to_contain_text("prices")
    watched.check()


def test_workflow_is_limited_archived_and_restored(watched: WatchedPage) -> None:
    with admin(watched) as client:
        client.deploy({**WAITS, "id": "spare"})
    page = watched.open("/workflows/spare")
    limits = page.get_by_role("region", name="Limits")
    expect(limits).to_contain_text("not limited")
    limits.get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Starts").fill("ten a day")
    dialog.get_by_role("button", name="Store").click()
    expect(dialog.locator(".notice")).to_be_visible()
    dialog.get_by_label("Starts").fill("10/s")
    dialog.get_by_label("Running").fill("3")
    assert watched.accessibility_problems() == []
    dialog.get_by_role("button", name="Store").click()
    expect(limits).to_contain_text("10/s")
    with admin(watched) as client:
        found = client.limits("spare")
        assert (found.rate, found.running, found.waiting) == ("10/s", 3, None)

    page.get_by_role("button", name="Archive").click()
    dialog.get_by_role("button", name="Archive").click()
    expect(page.get_by_role("heading", name="Workflows", exact=True)).to_be_visible()
    expect(row(page, "spare")).to_have_count(0)
    page.get_by_role("button", name="show hidden").click()
    expect(row(page, "spare")).to_contain_text("hidden")
    row(page, "spare").get_by_role("button", name="Restore spare").click()
    expect(row(page, "spare")).not_to_contain_text("hidden")
    watched.check()


def test_workflow_page_shows_the_version_of_stable(watched: WatchedPage) -> None:
    with admin(watched) as client:
        first = {**WAITS, "id": "rolled"}
        client.deploy(first)
        client.set_alias("rolled", "stable", 1)
        client.deploy({**first, "nodes": [*WAITS["nodes"], {"id": "extra", "type": "noop"}]})
    page = watched.open("/workflows/rolled")
    expect(page.locator(".facts-line")).to_contain_text("version 1")
    expect(page.locator('.react-flow__node[data-id="w"]')).to_be_visible()
    expect(page.locator('.react-flow__node[data-id="extra"]')).to_have_count(0)

    page.get_by_role("button", name=re.compile("^Version 2")).click()
    expect(page.locator(".facts-line")).to_contain_text("version 2")
    expect(page.locator('.react-flow__node[data-id="extra"]')).to_be_visible()
    watched.check()


def test_checks_of_the_server_are_made_on_request(watched: WatchedPage) -> None:
    page = watched.open("/settings")
    page.get_by_role("button", name="Check the server and its stores").click()

    results = page.get_by_role("list", name="Results of the checks").get_by_role("listitem")
    with admin(watched) as client:
        checks = client.doctor().checks
    expect(results).to_have_count(len(checks))
    for each in checks:
        expect(results.filter(has_text=each.check)).not_to_have_count(0)
    expect(page.get_by_role("button", name="Check again")).to_be_enabled()
    assert watched.accessibility_problems() == []
    watched.check()
