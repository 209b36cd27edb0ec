"""An author fills in the forms of nodes, edges and the workflow: each field changes its own lines of the text."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import card, changed, deploy, panel, row, text_of, write
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

FORMS = """\
id: forms
nodes:
  - id: start
    type: input
  - id: call   # asks the shop
    type: http
    parameters:
      url: https://shop.example/prices
      headers: { Accept: application/json }
  - id: set
    type: edit
    parameters:
      assignments:
        - { name: amount, value: 1 }
  - id: ask
    type: wait
    parameters: { resume: signal, name: answer }
  - id: child
    type: workflow
    parameters: { workflow: helper }
  - id: when
    type: datetime
  - id: say
    type: log
    parameters: { message: hello }
edges:
  - { src: start, dst: call }
  - { src: call, dst: set }
  - { src: set, dst: ask }
  - { src: ask, dst: child }
  - { src: child, dst: when }
  - { src: call, dst: say }
"""
HELPER = "id: {id}\nnodes:\n  - id: start\n    type: input\n"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("forms"))
    process.start()
    for id in ("helper", "other-helper"):
        deploy(process, HELPER.format(id=id))
    with Client(process.said["url"]) as client:
        client.add_credential("shop", "bearer", {"token": "secret"}, hosts=["shop.example"])
        client.add_credential(
            "mail", "smtp", {"host": "mail.example", "username": "u", "password": "p"}, hosts=["mail.example"]
        )
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, up.said["url"], viewport={"width": 2000, "height": 1000})
    yield opened
    opened.close()


def form_of(watched: WatchedPage, up: UpProcess, id: str, node: str) -> tuple[Locator, str]:
    """Open a document at a node, beside its text, and return the panel of the node with the text."""
    text = FORMS.replace("id: forms", f"id: {id}")
    deploy(up, text)
    page = watched.open(f"/workflows/{id}/edit?node={node}&view=list&text=1")
    expect(page.get_by_text("No problems.")).to_be_visible()
    return panel(page, node), text


def open_settings(form: Locator) -> None:
    form.get_by_role("button", name="Settings").click()
    expect(form.get_by_label("Timeout")).to_be_visible()


def field(form: Locator, label: str) -> Locator:
    return form.get_by_label(label, exact=True)


def test_retry_shows_its_defaults_and_writes_what_differs_from_them(
    watched: WatchedPage, up: UpProcess
) -> None:
    form, text = form_of(watched, up, "retried", "call")
    open_settings(form)
    retry = form.get_by_role("group", name="Retry")
    shown = {
        label: field(retry, label).get_attribute("placeholder")
        for label in ("Attempts", "First delay", "Factor", "Longest delay", "Error codes")
    }
    assert shown == {
        "Attempts": "1",
        "First delay": "1",
        "Factor": "2",
        "Longest delay": "300",
        "Error codes": "every transient one",
    }
    expect(retry.get_by_role("switch", name="Jitter")).to_be_checked()

    field(retry, "Attempts").fill("4")
    field(retry, "First delay").fill("0.5")
    field(retry, "Factor").fill("3")
    field(retry, "Longest delay").fill("60")
    field(retry, "Error codes").press_sequentially("HTTP_TIMEOUT, HTTP_CONNECT")
    expect(field(retry, "Error codes")).to_have_value("HTTP_TIMEOUT, HTTP_CONNECT")
    retry.get_by_role("switch", name="Jitter").click()
    assert changed(text, text_of(watched.page)) == (
        [],
        [
            "retry: { max_attempts: 4, initial_delay: 0.5, backoff: 3, max_delay: 60, "
            '"on": [HTTP_TIMEOUT, HTTP_CONNECT], jitter: false }'
        ],
    )

    retry.get_by_role("switch", name="Jitter").click()
    field(retry, "Error codes").fill("")
    for label in ("Attempts", "First delay", "Factor", "Longest delay"):
        field(retry, label).fill("")
    assert text_of(watched.page) == text
    watched.check()


def test_timeout_join_queue_and_at_most_once_are_written_to_the_node(
    watched: WatchedPage, up: UpProcess
) -> None:
    form, text = form_of(watched, up, "settled", "call")
    open_settings(form)
    field(form, "Timeout").fill("2.5")
    field(form, "Join").select_option("any")
    field(form, "Queue").fill("slow")
    form.get_by_role("switch", name="At most once").click()
    assert changed(text, text_of(watched.page)) == (
        [],
        ["timeout: 2.5", "join: any", "queue: slow", "at_most_once: true"],
    )

    form.get_by_role("switch", name="At most once").click()
    field(form, "Queue").fill("")
    field(form, "Join").select_option("")
    field(form, "Timeout").fill("")
    assert text_of(watched.page) == text
    watched.check()


def test_error_policy_is_chosen_and_an_edge_becomes_the_error_edge(
    watched: WatchedPage, up: UpProcess
) -> None:
    form, text = form_of(watched, up, "failing", "call")
    page = watched.page
    open_settings(form)
    field(form, "On error").select_option("ignore the error")
    assert changed(text, text_of(page)) == ([], ["error: ignore"])
    field(form, "On error").select_option("default: halt the execution")
    assert text_of(page) == text

    page.get_by_role("list", name="Edges of call").get_by_role("button", name="goes to say").click()
    edge = page.get_by_role("complementary", name="Edge from call to say")
    field(edge, "Outlet").select_option("error")
    assert changed(text, text_of(page)) == (
        ["- { src: call, dst: say }"],
        ["error: branch", "- { src: call, dst: say, is_error: true }"],
    )
    expect(page.get_by_text("No problems.")).to_be_visible()
    expect(page.get_by_role("button", name="goes to say on error")).to_be_visible()
    watched.check()


def test_credential_is_picked_among_those_that_fit_the_type(watched: WatchedPage, up: UpProcess) -> None:
    form, text = form_of(watched, up, "trusted", "call")
    open_settings(form)
    picker = field(form, "Credential")
    expect(picker.get_by_role("option", name="shop (bearer)")).to_be_attached()
    assert picker.get_by_role("option").all_text_contents() == ["none", "shop (bearer)"]
    picker.select_option("shop (bearer)")
    assert changed(text, text_of(watched.page)) == ([], ["credentials: shop"])
    picker.select_option("none")
    assert text_of(watched.page) == text
    watched.check()


def test_workflow_is_picked_among_the_published_ones(watched: WatchedPage, up: UpProcess) -> None:
    form, text = form_of(watched, up, "calling", "child")
    picker = form.get_by_role("combobox", name="workflow required", exact=True)
    expect(picker).to_have_value("helper")
    picker.select_option("other-helper")
    assert changed(text, text_of(watched.page)) == (
        ["parameters: { workflow: helper }"],
        ["parameters: { workflow: other-helper }"],
    )
    watched.check()


def test_map_keeps_every_entry_while_a_name_is_typed(watched: WatchedPage, up: UpProcess) -> None:
    form, text = form_of(watched, up, "mapped", "call")
    headers = form.get_by_role("group", name="headers")
    headers.get_by_role("button", name="Add to headers").click()
    name = headers.get_by_label("Name 2 of headers")
    name.fill("")
    name.press_sequentially("Accept")
    expect(headers.get_by_role("alert")).to_have_text(
        "Two entries are named Accept; give one of them another name."
    )
    name.press_sequentially("-Language")
    expect(headers.get_by_role("alert")).to_have_count(0)
    headers.get_by_role("textbox", name="Accept-Language required", exact=True).fill("de")
    assert changed(text, text_of(watched.page)) == (
        ["headers: { Accept: application/json }"],
        ['headers: { Accept: application/json, Accept-Language: "de" }'],
    )
    headers.get_by_label("Name 1 of headers").fill("X-Accept")
    expect(headers.get_by_label("Name 1 of headers")).to_have_value("X-Accept")
    headers.get_by_role("button", name="Remove X-Accept", exact=True).click()
    assert 'headers: { Accept-Language: "de" }\n' in text_of(watched.page)
    watched.check()


def test_list_of_records_grows_and_shrinks(watched: WatchedPage, up: UpProcess) -> None:
    form, text = form_of(watched, up, "recorded", "set")
    form.get_by_role("button", name="Add to assignments").click()
    second = form.get_by_role("group", name="assignments 2", exact=True)
    second.get_by_role("textbox", name="name required", exact=True).fill("currency")
    field(second, "value").fill("EUR")
    assert changed(text, text_of(watched.page)) == ([], ['- { name: "currency", value: EUR }'])
    field(second, "value").fill('{"code": "EUR"}')
    assert changed(text, text_of(watched.page)) == ([], ['- { name: "currency", value: { code: EUR } }'])
    form.get_by_role("button", name="Remove assignments 2").click()
    assert text_of(watched.page) == text
    watched.check()


def test_list_of_texts_keeps_texts_that_look_like_other_values(watched: WatchedPage, up: UpProcess) -> None:
    form, text = form_of(watched, up, "listed", "ask")
    choices = form.get_by_role("group", name="choices")
    for index, choice in enumerate(("yes", "later"), start=1):
        choices.get_by_role("button", name="Add to choices").click()
        choices.get_by_label(f"choices {index}").fill(choice)
    assert changed(text, text_of(watched.page)) == (
        ["parameters: { resume: signal, name: answer }"],
        ['parameters: { resume: signal, name: answer, choices: ["yes", "later"] }'],
    )
    choices.get_by_role("button", name="Remove entry 1").click()
    assert 'choices: ["later"]' in text_of(watched.page)
    watched.check()


def test_long_text_switch_and_time_zone_are_written_as_plain_values(
    watched: WatchedPage, up: UpProcess
) -> None:
    form, text = form_of(watched, up, "plain", "say")
    page = watched.page
    message = field(form, "message")
    assert message.evaluate("(each) => each.tagName") == "TEXTAREA"
    message.fill("first\nsecond")
    assert '"first\\nsecond"' in text_of(page)
    page.get_by_role("button", name="Undo: change message of say").click()
    expect(message).to_have_value("hello")

    row(page, "call").click()
    redirects = panel(page, "call").get_by_role("switch", name="follow_redirects")
    expect(redirects).to_be_checked()
    redirects.click()
    assert changed(text, text_of(page)) == ([], ["follow_redirects: false"])
    redirects.click()
    assert text_of(page) == text

    row(page, "when").click()
    zone = field(panel(page, "when"), "timezone")
    expect(zone).to_have_attribute("placeholder", "UTC")
    assert page.locator(f'datalist[id="{zone.get_attribute("list")}"] option[value="Europe/Berlin"]').count()
    zone.fill("Europe/Berlin")
    assert changed(text, text_of(page)) == ([], ["parameters: { timezone: Europe/Berlin }"])
    watched.check()


def test_field_that_the_catalogue_does_not_know_is_shown_and_changed(
    watched: WatchedPage, up: UpProcess
) -> None:
    form, _ = form_of(watched, up, "unknown", "say")
    page = watched.page
    write(page, "{ message: hello }", "{ message: hello, colour: red }")
    others = form.get_by_role("region", name="Other fields")
    expect(field(others, "colour")).to_have_value("red")
    field(others, "colour").fill("[1, 2]")
    assert "    parameters: { message: hello, colour: [1, 2] }\n" in text_of(page)
    field(others, "colour").fill("")
    expect(others).to_have_count(0)
    assert "    parameters: { message: hello }\n" in text_of(page)
    watched.check()


def test_note_stands_under_the_card_and_undo_and_redo_follow_it(watched: WatchedPage, up: UpProcess) -> None:
    form, text = form_of(watched, up, "noted", "call")
    page = watched.page
    page.get_by_role("group", name="View").get_by_role("button", name="Graph").click()
    open_settings(form)
    field(form, "Note").fill("Slow on Mondays.")
    expect(card(page, "call").locator(".card-note")).to_have_text("Slow on Mondays.")
    noted = text_of(page)
    assert changed(text, noted) == ([], ["notes: Slow on Mondays."])

    page.get_by_role("heading", level=1).click()
    for undo, redo in (("Control+z", "Control+y"), ("Control+z", "Control+Shift+z")):
        page.keyboard.press(undo)
        expect(card(page, "call").locator(".card-note")).to_have_count(0)
        assert text_of(page) == text
        page.keyboard.press(redo)
        expect(card(page, "call").locator(".card-note")).to_have_text("Slow on Mondays.")
        assert text_of(page) == noted
    page.keyboard.press("Control+z")
    page.get_by_role("button", name="Redo: change notes of call").click()
    assert text_of(page) == noted
    watched.check()


def test_input_schema_of_the_workflow_is_written_and_follows_undo(
    watched: WatchedPage, up: UpProcess
) -> None:
    _, text = form_of(watched, up, "schemed", "call")
    page: Page = watched.page
    page.get_by_role("button", name="Close the panel").click()
    form = page.get_by_role("complementary", name="Workflow")
    field(form, "Input schema").fill('{"type": "object"}')
    field(form, "Timeout").fill("60")
    assert changed(text, text_of(page)) == ([], ["inputs: { type: object }", "settings: { timeout: 60 }"])
    page.get_by_role("button", name="Undo: change settings.timeout").click()
    page.get_by_role("button", name="Undo: change inputs").click()
    expect(field(form, "Input schema")).to_have_value("{}")
    assert text_of(page) == text
    watched.check()
