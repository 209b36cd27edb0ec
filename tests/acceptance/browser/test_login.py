"""The login of the web interface: a key is exchanged for a cookie that no script can read."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.support.api_server import WAITS
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

SECRET = "open-sesame"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("locked"), RUNE_API_KEY=SECRET)
    url = up.start()
    with Client(url, key=SECRET) as client:
        client.deploy(WAITS)
    yield url
    up.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, locked: str) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, locked)
    yield opened
    opened.close()


def give_key(watched: WatchedPage, key: str) -> None:
    watched.page.get_by_label("API key").fill(key)
    watched.page.get_by_role("button", name="Sign in").click()


def test_wrong_key_is_refused_and_right_one_opens_the_requested_page(watched: WatchedPage) -> None:
    page = watched.open("/workflows")
    give_key(watched, "wrong")
    expect(page.get_by_role("alert")).to_have_text("This key is not valid.")

    give_key(watched, SECRET)

    expect(page.get_by_role("heading", name="Workflows")).to_be_visible()
    expect(page.get_by_role("link", name="waits", exact=True)).to_be_visible()
    expect(page.get_by_text("Live")).to_be_visible()
    watched.check()


def test_session_is_a_cookie_that_scripts_cannot_read(watched: WatchedPage) -> None:
    page = watched.open("/executions")
    give_key(watched, SECRET)
    expect(page.get_by_role("heading", name="Executions", exact=True)).to_be_visible()

    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    cookies = watched.context.cookies()
    assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]
    assert SECRET not in cookies[0]["value"]
    page.reload()
    expect(page.get_by_role("heading", name="Executions", exact=True)).to_be_visible()


def test_sign_out_ends_the_session(watched: WatchedPage) -> None:
    page = watched.open("/")
    give_key(watched, SECRET)
    page.get_by_role("button", name="Sign out").click()

    expect(page.get_by_label("API key")).to_be_visible()
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()


def test_viewer_sees_actions_disabled_with_the_role_they_take(watched: WatchedPage, locked: str) -> None:
    with Client(locked, key=SECRET) as client:
        key = client.create_key("watcher", "viewer").key
        execution = client.start("waits").execution_id
    page = watched.open(f"/executions/{execution}")
    give_key(watched, key)

    cancel = page.get_by_role("button", name="Cancel")
    expect(cancel).to_be_disabled()
    expect(cancel).to_have_attribute("title", "Requires the role runner; your role is viewer.")
    page.goto(f"{locked}/keys")
    expect(page.get_by_role("heading", name="Your key does not permit this")).to_be_visible()


ROLES = {
    # May it run a workflow, set an alias, create a key?
    "viewer": (False, False, False),
    "runner": (True, False, False),
    "editor": (True, True, False),
    "admin": (True, True, True),
}


@pytest.mark.parametrize("role", ROLES)
def test_role_enables_exactly_the_controls_it_permits(watched: WatchedPage, locked: str, role: str) -> None:
    runs, edits, administers = ROLES[role]
    with Client(locked, key=SECRET) as client:
        key = client.create_key(f"one {role}", role).key
    page = watched.open("/workflows/waits")
    give_key(watched, key)
    expect(page.get_by_role("heading", name="waits", level=1)).to_be_visible()
    expect(page.locator(".who")).to_contain_text(role)

    expect(page.get_by_role("link", name="Run", exact=True).first).to_be_visible(visible=runs)
    expect(page.get_by_role("button", name="Set an alias")).to_be_enabled(enabled=edits)
    page.goto(f"{locked}/keys")
    if administers:
        expect(page.get_by_role("button", name="Create a key")).to_be_enabled()
    else:
        expect(page.get_by_role("heading", name="Your key does not permit this")).to_be_visible()
    page.goto(f"{locked}/credentials")
    expect(page.get_by_role("heading", name="Credentials", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Add a credential")).to_be_enabled(enabled=administers)
    page.goto(f"{locked}/executions")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    watched.check()


def test_approver_sees_the_inbox_only_and_answers(watched: WatchedPage, locked: str) -> None:
    with Client(locked, key=SECRET) as client:
        key = client.create_key("boss", "approver").key
        execution = client.start("approval", {"order": 7, "amount": 5_000}).execution_id
    page = watched.open("/")
    give_key(watched, key)
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(1)

    page.get_by_role("link", name="approval").click()
    page.get_by_role("button", name="Reject").click()

    expect(page.get_by_role("heading", name="Sent")).to_be_visible()
    with Client(locked, key=SECRET) as client:
        assert client.wait(execution).status == "completed"
        assert client.output(execution)["shipped"] is False
