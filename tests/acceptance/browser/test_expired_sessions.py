"""Questions of an approval are answered by the person, and what a person has typed is theirs when a session expires."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import code, write
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

SECRET = "open-sesame"
ASKS = """\
id: asks
nodes:
  - id: in
    type: input
  - id: ask
    type: wait
    parameters:
      resume: signal
      name: decision
      schema:
        type: object
        required: [granted, level, because]
        properties:
          granted: { type: boolean, title: Is it granted? }
          level: { enum: [low, high] }
          because: { type: string }
          again: { type: boolean }
          sure: { type: boolean, default: true }
  - id: out
    type: output
    parameters: { value: "{{ $ask }}" }
edges:
  - { src: in, dst: ask }
  - { src: ask, dst: out }
"""
SURE = ASKS.replace("id: asks", "id: sure").replace("granted, level, because]", "sure]")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("expired"), RUNE_API_KEY=SECRET)
    url = up.start()
    with Client(url, key=SECRET) as client:
        client.deploy(ASKS)
        client.deploy(SURE)
    yield url
    up.stop(signal.SIGKILL)


@pytest.fixture
def keys(url: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """A key for each of two people."""
    with Client(url, key=SECRET) as client:
        return {
            name: client.create_key(f"{name} of {request.node.name}", "editor").key for name in ("ada", "bob")
        }


@pytest.fixture(params=["light", "dark"])
def watched(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, url, color_scheme=request.param, viewport={"width": 1100, "height": 800})
    yield opened
    opened.check()
    opened.close()


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def expire(watched: WatchedPage) -> None:
    """What the browser does when the cookie is too old."""
    watched.context.clear_cookies()


def start(url: str, workflow: str = "asks") -> str:
    with Client(url, key=SECRET) as client:
        return client.start(workflow).execution_id


def test_required_question_has_no_answer_before_the_person_gives_one(
    watched: WatchedPage, url: str, keys: dict[str, str]
) -> None:
    execution = start(url)
    page = watched.open(f"/waiting/{execution}/ask")
    sign_in(page, keys["ada"])
    question = page.get_by_role("group", name="Is it granted?")
    for answer in ("Yes", "No"):
        expect(question.get_by_role("button", name=answer)).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_label("level")).to_have_value("-1")
    expect(page.get_by_role("switch", name="sure")).to_be_checked()
    expect(page.locator(".decision p").first).to_have_text("asks")
    page.get_by_label("because").fill("it is late")

    page.get_by_role("button", name="Send", exact=True).click()

    expect(page.locator(".field-error")).to_have_count(2)
    expect(question).to_have_accessible_description("is required")
    colour = "(element) => getComputedStyle(element).borderTopColor"
    marked = page.get_by_label("because").evaluate(colour)
    page.get_by_label("because").fill("")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".field-error")).to_have_count(3)
    shown = {
        each.evaluate(colour)
        for each in (
            page.get_by_label("level"),
            page.get_by_label("because"),
            question.get_by_role("button", name="Yes"),
        )
    }
    assert len(shown) == 1, "every answer that is missing has the same border"
    assert shown != {marked}
    page.get_by_label("because").fill("it is late")
    expect(page.locator(".field-error")).to_have_count(2)
    assert watched.accessibility_problems() == []
    with Client(url, key=SECRET) as client:
        assert client.execution(execution).status == "running"
    page.get_by_label("level").select_option("high")
    question.get_by_role("button", name="No").click()
    expect(question.get_by_role("button", name="No")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("heading", name="Sent")).to_be_visible()
    with Client(url, key=SECRET) as client:
        client.wait(execution)
        given = {"granted": False, "level": "high", "because": "it is late"}
        assert client.output(execution) == {**given, "sure": True}, "the switch showed its default"


def test_question_with_a_default_sends_its_default(
    watched: WatchedPage, url: str, keys: dict[str, str]
) -> None:
    execution = start(url, "sure")
    page = watched.open(f"/waiting/{execution}/ask")
    sign_in(page, keys["ada"])
    expect(page.get_by_role("switch", name="sure")).to_be_checked()

    page.get_by_role("button", name="Send", exact=True).click()

    expect(page.get_by_role("heading", name="Sent")).to_be_visible()
    with Client(url, key=SECRET) as client:
        client.wait(execution)
        assert client.output(execution) == {"sure": True}


def test_typed_answer_is_still_there_after_an_expired_session(
    watched: WatchedPage, url: str, keys: dict[str, str]
) -> None:
    execution = start(url)
    page = watched.open(f"/waiting/{execution}/ask")
    sign_in(page, keys["ada"])
    page.get_by_label("because").fill("three pages of reasons")
    page.get_by_role("group", name="Is it granted?").get_by_role("button", name="Yes").click()
    page.get_by_label("level").select_option("low")
    expire(watched)

    page.get_by_role("button", name="Send", exact=True).click()

    expect(page.get_by_role("heading", name="Your session has expired")).to_be_visible()
    expect(page.get_by_label("because")).to_be_hidden()
    assert watched.accessibility_problems() == []
    sign_in(page, keys["ada"])
    expect(page.get_by_text("so the answer was not sent. Send it again.")).to_be_visible()
    expect(page.get_by_label("because")).to_have_value("three pages of reasons")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("heading", name="Sent")).to_be_visible()
    with Client(url, key=SECRET) as client:
        client.wait(execution)
        assert client.output(execution)["because"] == "three pages of reasons"


def test_open_dialog_and_its_text_are_still_there_after_an_expired_session(
    watched: WatchedPage, url: str, keys: dict[str, str]
) -> None:
    execution = start(url)
    page = watched.open(f"/executions/{execution}")
    sign_in(page, keys["ada"])
    page.get_by_role("button", name="Cancel").click()
    page.get_by_label("Reason").fill("ordered twice")
    expire(watched)

    page.get_by_role("button", name="Cancel the execution").click()

    expect(page.get_by_role("heading", name="Your session has expired")).to_be_visible()
    cover = page.evaluate("getComputedStyle(document.querySelector('.login-over')).backgroundColor")
    assert cover.startswith("rgb("), "the dialog, which is above the page, cannot be read through it"
    page.keyboard.press("Escape")
    sign_in(page, keys["ada"])
    expect(page.get_by_label("Reason")).to_have_value("ordered twice")
    page.get_by_role("button", name="Cancel the execution").click()
    expect(page.locator(".head .pill")).to_have_text("cancelled")


def test_next_person_sees_nothing_of_what_was_typed(
    watched: WatchedPage, url: str, keys: dict[str, str]
) -> None:
    execution = start(url)
    page = watched.open(f"/waiting/{execution}/ask")
    sign_in(page, keys["ada"])
    page.get_by_label("because").fill("between us")
    expire(watched)
    page.get_by_label("level").select_option("low")
    page.get_by_role("group", name="Is it granted?").get_by_role("button", name="Yes").click()
    page.get_by_role("button", name="Send", exact=True).click()

    sign_in(page, keys["bob"])

    expect(page.get_by_label("because")).to_have_value("")
    assert "between us" not in page.content()


def test_draft_comes_back_to_its_author_and_is_not_shown_to_the_next_person(
    watched: WatchedPage, url: str, keys: dict[str, str]
) -> None:
    page = watched.open("/workflows/asks/edit?text=1")
    sign_in(page, keys["ada"])
    expect(code(page)).to_contain_text("Is it granted?")
    write(page, "Is it granted?", "Is it mine?")
    expect(page.get_by_text("draft, kept in this browser")).to_be_visible()
    expire(watched)
    page.reload()

    sign_in(page, keys["bob"])

    expect(code(page)).to_contain_text("Is it granted?")
    assert "Is it mine?" not in page.content()
    write(page, "Is it granted?", "Is it bob's?")
    expect(page.get_by_text("draft, kept in this browser")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, keys["ada"])
    expect(code(page)).to_contain_text("Is it mine?")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.evaluate("localStorage.length") == 0
    sign_in(page, keys["bob"])
    expect(code(page)).to_contain_text("Is it granted?")


def test_draft_that_is_open_when_somebody_else_signs_in_stays_that_of_its_author(
    watched: WatchedPage, url: str, keys: dict[str, str]
) -> None:
    page = watched.open("/workflows/asks/edit?text=1")
    sign_in(page, keys["ada"])
    expect(code(page)).to_contain_text("Is it granted?")
    expire(watched)
    write(page, "Is it granted?", "Is it ada's?")
    expect(page.get_by_role("heading", name="Your session has expired")).to_be_visible()

    sign_in(page, keys["bob"])

    expect(code(page)).to_contain_text("Is it granted?")
    expire(watched)
    page.reload()
    sign_in(page, keys["ada"])
    expect(code(page)).to_contain_text("Is it ada's?")
