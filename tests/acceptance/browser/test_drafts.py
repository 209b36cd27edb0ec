"""Drafts of the editor: kept in the browser, shared by its tabs, undone and done again in both views, removed when the
author signs out."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from rune.client import Client
from tests.acceptance.browser.conftest import DEADLINE_MS, WatchedPage
from tests.acceptance.browser.editor_page import add, card, code, panel, rename, text_of, write
from tests.support.cli_process import until
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

SECRET = "a-key-of-the-tests-only"
TEXT = """\
# Watches prices.
id: NAME
nodes:
  # Begins here.
  - id: start
    type: input
  - id: note   # tells somebody
    type: log
    parameters: { message: "hello {{ $start.name }}" }
edges:
  - { src: start, dst: note }
"""
# The text of the draft that the storage of the browser has.
STORED = "(id) => JSON.parse(localStorage.getItem(`rune-draft:bootstrap/${id}`) ?? 'null')?.saved.text"
DRAFTS = "Object.keys(localStorage).filter((each) => each.startsWith('rune-draft:'))"
# Keeps the events of the storage back until `deliver` is called: so two tabs can store before they hear of each other.
HOLD_EVENTS = """
window.held = [];
window.addEventListener("storage", (event) => {
  if (!window.held) return;
  event.stopImmediatePropagation();
  window.held.push(event);
}, true);
window.deliver = () => {
  const events = window.held;
  window.held = null;
  for (const { key, newValue, oldValue, storageArea } of events) {
    window.dispatchEvent(new StorageEvent("storage", { key, newValue, oldValue, storageArea }));
  }
};
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    up = UpProcess(tmp_path_factory.mktemp("drafts"), RUNE_API_KEY=SECRET)
    yield up.start()
    up.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, url: str) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, url, viewport={"width": 1500, "height": 900})
    yield opened
    opened.check()
    opened.close()


def sign_in(page: Page) -> None:
    page.get_by_label("API key").fill(SECRET)
    page.get_by_role("button", name="Sign in").click()


def deployed(url: str, id: str) -> str:
    """Publish the workflow under an id and return its text."""
    text = TEXT.replace("NAME", id)
    with Client(url, key=SECRET) as client:
        client.deploy(text)
    return text


def open_draft(watched: WatchedPage, id: str) -> Page:
    page = watched.open(f"/workflows/{id}/edit?text=1")
    sign_in(page)
    expect(code(page)).to_contain_text("Watches prices.")
    return page


def second_tab(watched: WatchedPage, id: str) -> Page:
    """Open the draft in another tab of the same browser, with the same session."""
    page = watched.context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.on("pageerror", lambda error: watched.wrong.append(str(error)))
    page.goto(f"{watched.url}/workflows/{id}/edit?text=1")
    expect(code(page)).to_contain_text("Watches prices.")
    return page


def wait_for_stored(page: Page, id: str, part: str) -> None:
    until(
        lambda: page.evaluate(f"([id, part]) => ({STORED})(id)?.includes(part)", [id, part]) or None,
        "the draft is stored",
    )


def wait_for_other_tab(page: Page) -> None:
    """Wait until the other tab has stored its text."""
    until(lambda: page.evaluate("window.held.length > 0") or None, "the other tab has stored")


def test_changes_that_two_tabs_store_in_the_same_moment_are_both_kept(watched: WatchedPage, url: str) -> None:
    deployed(url, "both")
    watched.context.add_init_script(HOLD_EVENTS)
    first = open_draft(watched, "both")
    second = second_tab(watched, "both")

    write(first, "# Watches prices.", "# Watches all prices.")
    write(second, "# Begins here.", "# Starts here.")
    for page in (first, second):
        wait_for_other_tab(page)
    for page in (first, second):
        page.evaluate("window.deliver()")

    for page in (first, second):
        expect(code(page)).to_contain_text("# Watches all prices.")
        expect(code(page)).to_contain_text("# Starts here.")
    assert text_of(first) == text_of(second)
    wait_for_stored(first, "both", "# Starts here.")
    wait_for_stored(first, "both", "# Watches all prices.")
    first.reload()
    expect(code(first)).to_contain_text("# Starts here.")
    expect(code(first)).to_contain_text("# Watches all prices.")


def test_change_of_one_tab_is_shown_in_the_other_and_the_later_change_of_a_line_is_kept(
    watched: WatchedPage, url: str
) -> None:
    text = deployed(url, "shown")
    first = open_draft(watched, "shown")
    second = second_tab(watched, "shown")

    write(first, "hello", "good day")
    expect(code(second)).to_contain_text("good day")
    write(second, "good day", "good night")
    expect(code(first)).to_contain_text("good night")

    # each tab can take back what it sees
    first.get_by_role("button", name="Undo: take over a change of another tab").click()
    assert text_of(first) == text.replace("hello", "good day")
    expect(code(second)).to_contain_text("good day")


def test_draft_that_is_discarded_right_after_a_change_is_not_kept(watched: WatchedPage, url: str) -> None:
    text = deployed(url, "given_up")
    page = open_draft(watched, "given_up")
    write(page, "hello", "good day")
    wait_for_stored(page, "given_up", "good day")
    page.reload()
    expect(code(page)).to_contain_text("good day")
    discard = page.get_by_role("button", name="Discard it")
    expect(discard).to_be_visible()

    # the second change has not been stored when the draft is discarded
    write(page, "good day", "good night")
    discard.evaluate("(button) => button.click()")

    expect(page.get_by_text("published text")).to_be_visible()
    until(lambda: text_of(page) == text or None, "the published text is shown")
    assert page.evaluate(DRAFTS) == []
    page.reload()
    expect(code(page)).to_contain_text("hello")
    assert page.evaluate(DRAFTS) == []


def test_other_tab_shows_the_published_text_after_one_tab_has_published(
    watched: WatchedPage, url: str
) -> None:
    text = deployed(url, "out")
    first = open_draft(watched, "out")
    second = second_tab(watched, "out")
    write(first, "hello", "good day")
    expect(code(second)).to_contain_text("good day")
    expect(second.get_by_text("draft, kept in this browser")).to_be_visible()

    first.get_by_role("button", name="Publish", exact=True).click()
    first.get_by_role("dialog").get_by_role("button", name="Publish", exact=True).click()
    expect(first.get_by_text("Published version 2 of out.")).to_be_visible()

    for page in (first, second):
        expect(page.get_by_text("published text")).to_be_visible()
        expect(page.get_by_text("since version 2")).to_be_visible()
        assert text_of(page) == text.replace("hello", "good day")
    assert second.evaluate(DRAFTS) == []


def test_undo_and_redo_cross_the_graph_and_the_text(watched: WatchedPage, url: str) -> None:
    text = deployed(url, "again")
    page = open_draft(watched, "again")
    texts = [text]
    card(page, "note").click()
    rename(page, "tell")
    texts.append(text_of(page))
    page.keyboard.press("Escape")
    code(page).focus()
    page.keyboard.press("Control+Home")
    page.keyboard.insert_text("# Typed.\n")
    texts.append(text_of(page))
    card(page, "tell").click()
    add(page, "noop")
    expect(panel(page, "noop")).to_be_visible()
    texts.append(text_of(page))
    assert len(set(texts)) == 4

    # from the graph
    page.keyboard.press("Escape")
    for expected in (texts[2], texts[1]):
        page.keyboard.press("Control+z")
        assert text_of(page) == expected
    page.keyboard.press("Control+Shift+z")
    assert text_of(page) == texts[2]
    # from the text
    code(page).focus()
    for expected in (texts[1], texts[0]):
        page.keyboard.press("Control+z")
        assert text_of(page) == expected
    expect(card(page, "note")).to_be_visible()
    for expected in texts[1:]:
        page.keyboard.press("Control+y")
        assert text_of(page) == expected
    expect(card(page, "noop")).to_be_visible()
    expect(page.get_by_role("button", name="Redo")).to_be_disabled()


def test_draft_is_removed_when_its_author_signs_out_in_any_tab(watched: WatchedPage, url: str) -> None:
    deployed(url, "left")
    first = open_draft(watched, "left")
    second = second_tab(watched, "left")
    write(first, "hello", "good day")
    wait_for_stored(first, "left", "good day")
    expect(code(second)).to_contain_text("good day")
    assert first.evaluate(DRAFTS) == ["rune-draft:bootstrap/left"]

    # the newest change has not been stored when the author leaves
    write(first, "good day", "good night")
    first.get_by_role("button", name="Sign out").click()

    for page in (first, second):
        expect(page.get_by_label("API key")).to_be_visible()
        assert page.evaluate(DRAFTS) == []
    sign_in(first)
    expect(code(first)).to_contain_text("hello")
    assert first.evaluate(DRAFTS) == []
