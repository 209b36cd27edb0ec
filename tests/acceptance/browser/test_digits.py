"""A number is its digits: what a person reads, sends and copies in the web interface has the digits it had."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import deploy, panel, source, text_of
from tests.support.cli_process import until
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

DIGITS = [
    "9007199254740993", "-9223372036854775808", "18446744073709551615", "-0.0", "-0", "1.0", "1.10", "1E3", "1e22",
    "0.1000000000000000055511151231257827", "1e-07", "5e-324",
]  # fmt: skip
VALUE = (
    "{" + ",".join(f'"n{at}":{each}' for at, each in enumerate(DIGITS)) + ',"list":[1.0,9007199254740993]}'
)
# What a program computes with has 64 bits: digits that a node or an expression evaluates come out as the same number.
EVALUATED = '{"n":[9007199254740993,-9223372036854775808,18446744073709551615,-0.0,1.0,1.5,1e22,5e-324]}'
FREE = """\
id: free
nodes:
  - id: in
    type: input
  - id: same
    type: noop
  - id: out
    type: output
    parameters: { value: "{{ $in }}" }
edges:
  - { src: in, dst: same }
  - { src: same, dst: out }
"""
FORM = """\
id: form
inputs:
  type: object
  required: [id, price]
  properties:
    id: { type: integer, minimum: 9007199254740993 }
    price: { type: number }
    more: { type: object }
    level: { enum: [1.0, 9007199254740993, 9007199254740995] }
nodes:
  - id: in
    type: input
"""
ASKS = """\
id: asks
nodes:
  - id: in
    type: input
  - id: ask
    type: wait
    parameters: { resume: signal, name: go }
  - id: out
    type: output
    parameters: { value: "{{ $ask }}" }
edges:
  - { src: in, dst: ask }
  - { src: ask, dst: out }
"""
SET = f"""\
id: set
nodes:
  - id: in
    type: input
  - id: a
    type: output
    parameters: {{ value: {EVALUATED} }}
edges:
  - {{ src: in, dst: a }}
"""
FIELDS = """\
id: fields
nodes:
  - id: a
    type: output
    timeout: 30.0
    parameters: { value: [1.10, 9007199254740993, 1.0] }
"""


class Digits(str):
    """The digits of a number, which are equal only to the same digits."""


def exact(document: str) -> Any:
    return json.loads(document, parse_int=Digits, parse_float=Digits)


def computed(document: str) -> Any:
    """The document as a program computes with it: integers exactly, other numbers with 64 bits."""
    return json.loads(
        document, parse_int=lambda each: ("integer", int(each)), parse_float=lambda each: repr(float(each))
    )


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("digits"))
    process.start("--no-examples")
    for text in (FREE, FORM, ASKS):
        deploy(process, text)
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture
def watched(browser: Browser, up: UpProcess) -> Iterator[WatchedPage]:
    opened = WatchedPage(browser, up.said["url"], permissions=["clipboard-read", "clipboard-write"])
    yield opened
    opened.check()
    opened.close()


def get(up: UpProcess, path: str) -> str:
    with urllib.request.urlopen(f"{up.said['url']}/api/v1{path}") as response:
        return str(response.read().decode())


def start(up: UpProcess, workflow: str, value: str) -> str:
    """Start a workflow as `curl` would."""
    request = urllib.request.Request(
        f"{up.said['url']}/api/v1/workflows/{workflow}/executions?wait=30",
        f'{{"input":{value}}}'.encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return str(json.load(response)["execution_id"])


def started(page: Page, former: str) -> str:
    expect(page).to_have_url(re.compile(rf"/executions/(?!{former})x\w+"))
    return page.url.rsplit("/", 1)[1].partition("?")[0]


def finished(up: UpProcess, execution: str) -> str:
    with Client(up.said["url"]) as client:
        assert client.wait(execution).status == "completed"
    return execution


def copied(page: Page, button: Locator) -> Any:
    page.evaluate("navigator.clipboard.writeText('')")
    button.click()
    page.wait_for_function("navigator.clipboard.readText().then((text) => text !== '')")
    return exact(page.evaluate("navigator.clipboard.readText()"))


def shows_all(place: Locator) -> None:
    for each in DIGITS:
        expect(place.get_by_text(each, exact=True).first).to_be_visible()


def test_api_takes_and_gives_digits_unchanged(up: UpProcess) -> None:
    execution = start(up, "free", VALUE)

    for path in ("input", "nodes/same/output"):
        assert exact(get(up, f"/executions/{execution}/{path}")) == exact(VALUE), path
    assert computed(get(up, f"/executions/{execution}/nodes/same/input"))["payload"] == computed(VALUE)
    assert computed(get(up, f"/executions/{execution}/nodes?node=same"))["nodes"][0]["output"] == computed(
        VALUE
    )
    for at, each in enumerate(DIGITS):
        part = exact(get(up, f"/executions/{execution}/nodes/same/output?pointer=/n{at}"))
        assert part["value"] == Digits(each)
    evaluated = start(up, "free", EVALUATED)
    assert exact(get(up, f"/executions/{evaluated}/output")) == exact(EVALUATED)


@pytest.mark.parametrize("toggles", [0, 1, 2], ids=["as a form", "as JSON", "as JSON and back"])
def test_former_input_is_run_again_with_its_digits(watched: WatchedPage, up: UpProcess, toggles: int) -> None:
    value = f'{{"id":9007199254740993,"price":1.10,"level":9007199254740995,"more":{VALUE}}}'
    former = start(up, "form", value)
    page = watched.open(f"/workflows/form/run?from={former}")
    expect(page.get_by_label("price")).to_have_value("1.10")
    for at in range(toggles):
        page.get_by_role("button", name=("As JSON", "As a form")[at]).click()

    page.get_by_role("button", name="Start").click()

    assert exact(get(up, f"/executions/{started(page, former)}/input")) == exact(value)


def test_run_again_and_input_without_a_schema_keep_digits(watched: WatchedPage, up: UpProcess) -> None:
    former = start(up, "free", VALUE)
    page = watched.open(f"/executions/{former}")

    page.get_by_role("link", name="Run again").click()
    page.get_by_role("button", name="Start").click()

    assert exact(get(up, f"/executions/{started(page, former)}/input")) == exact(VALUE)


def test_typed_numbers_are_sent_and_checked_by_their_digits(watched: WatchedPage, up: UpProcess) -> None:
    page = watched.open("/workflows/form/run")
    page.get_by_role("textbox", name=re.compile("^id")).fill("9007199254740992")
    page.get_by_label("price").fill("1.50")
    page.get_by_label("level").select_option("9007199254740993")
    page.get_by_label("more").fill('{"a": -0.0}')
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("must be at least 9007199254740993")).to_be_visible()
    page.get_by_role("textbox", name=re.compile("^id")).fill("9007199254740993")

    page.get_by_role("button", name="Start").click()

    sent = get(up, f"/executions/{started(page, 'none')}/input")
    assert exact(sent) == exact(
        '{"id":9007199254740993,"price":1.50,"level":9007199254740993,"more":{"a":-0.0}}'
    )


def test_number_that_cannot_be_stored_is_refused_by_its_digits(watched: WatchedPage) -> None:
    page = watched.open("/workflows/free/run")
    page.get_by_label("Input as JSON").fill('{"n": 1e400}')

    page.get_by_role("button", name="Start").click()

    expect(page.get_by_text("1e400` is not a number that can be stored")).to_be_visible()


def test_views_and_copies_show_the_digits(watched: WatchedPage, up: UpProcess) -> None:
    execution = start(up, "free", EVALUATED)
    page = watched.open(f"/executions/{execution}?node=same")
    expect(panel(page, "same")).to_contain_text("18446744073709551615")
    assert copied(page, page.get_by_role("button", name="Copy the output")) == exact(EVALUATED)
    watched.open(f"/executions/{start(up, 'free', VALUE)}")
    page.get_by_role("tab", name="Data").click()
    shows_all(page.locator(".data"))


def test_rerun_from_a_node_sends_its_former_input_and_parameters(watched: WatchedPage, up: UpProcess) -> None:
    deploy(up, SET)
    former = start(up, "set", EVALUATED)
    page = watched.open(f"/executions/{former}?node=a")
    parameters = copied(page, page.get_by_role("button", name="Copy the parameters"))
    page.get_by_role("button", name="Rerun from here").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Change the input").check()
    expect(dialog.get_by_label("Input", exact=True)).to_have_value(re.compile("9007199254740993"))
    dialog.get_by_label("Change the parameters").check()

    dialog.get_by_role("button", name="Rerun").click()

    execution = finished(up, started(page, former))
    called = exact(get(up, f"/executions/{execution}/nodes/a/input"))
    assert called["payload"] == exact(EVALUATED)
    assert called["parameters"] == parameters == {"value": exact(EVALUATED)}


@pytest.mark.parametrize("place", ["inbox", "execution"])
def test_signal_has_the_digits_that_were_written(watched: WatchedPage, up: UpProcess, place: str) -> None:
    with Client(up.said["url"]) as client:
        execution = client.start("asks").execution_id
    if place == "inbox":
        page = watched.open(f"/waiting/{execution}/ask")
        page.get_by_role("button", name="Send another value").click()
        page.get_by_label("Answer").fill(VALUE)
        send = page.get_by_role("button", name="Send", exact=True)
    else:
        page = watched.open(f"/executions/{execution}?node=ask")
        panel(page, "ask").get_by_role("button", name="Send go").click()
        page.get_by_role("dialog").get_by_label("Value").fill(VALUE)
        send = page.get_by_role("dialog").get_by_role("button", name="Send")

    with page.expect_request("**/signals") as sent:
        send.click()

    assert exact(sent.value.post_data or "")["value"] == exact(VALUE)
    output = get(up, f"/executions/{finished(up, execution)}/nodes/ask/output")
    assert computed(output) == computed(VALUE)


def test_comparisons_tell_numbers_apart_by_their_digits(watched: WatchedPage, up: UpProcess) -> None:
    one, other = (start(up, "free", f'{{"n":{each}}}') for each in ("9007199254740992", "9007199254740993"))
    page = watched.open(f"/executions/{one}/diff/{other}")
    sides = page.get_by_role("region", name="Differences of the input").locator(".side-by-side > *")
    expect(sides.first).to_contain_text("9007199254740992")
    expect(sides.last).to_contain_text("9007199254740993")
    with Client(up.said["url"]) as client:
        for digits in ("9007199254740992", "9007199254740993"):
            nodes = f'[{{"id":"a","type":"output","parameters":{{"value":{digits}}}}}]'
            client.deploy(f'{{"id":"versions","nodes":{nodes}}}', workflow="versions")

    watched.open("/workflows/versions/versions/1..2")

    changes = page.get_by_role("region", name="Changes")
    expect(changes).to_contain_text("9007199254740992")
    expect(changes).to_contain_text("9007199254740993")
    expect(page.get_by_label("Text of version 2")).to_contain_text("9007199254740993")


@pytest.mark.parametrize("format", ["yaml", "json"])
def test_draft_with_a_pinned_output_runs_with_its_digits(
    watched: WatchedPage, up: UpProcess, format: str
) -> None:
    text = FREE.replace("id: free", "id: pinned")
    if format == "json":
        nodes = (
            '{"id":"in","type":"input"},{"id":"same","type":"noop"},{"id":"out","type":"output","parameters":'
        )
        edges = '[{"src":"in","dst":"same"},{"src":"same","dst":"out"}]'
        text = f'{{"id":"pinned-json","nodes":[{nodes}{{"value":"{{{{ $in }}}}"}}}}],"edges":{edges}}}'
    deploy(up, text)
    id = "pinned-json" if format == "json" else "pinned"
    page = watched.open(f"/workflows/{id}/edit?node=same")
    panel(page, "same").get_by_role("button", name="Try").click()
    page.get_by_role("button", name="Pin the output of same").click()
    page.get_by_role("textbox", name="Output").fill(VALUE)
    page.reload()
    page.locator(".edit-head").get_by_role("button", name="Try").click()
    dialog = page.get_by_role("dialog", name="Try the draft")
    dialog.get_by_label("Input as JSON").fill(VALUE)
    with page.expect_request("**/api/v1/executions") as sent:
        dialog.get_by_role("button", name="Start").click()

    assert exact(sent.value.post_data or "")["pins"] == {"same": exact(VALUE)}
    status = page.get_by_role("status", name="Run of the draft")
    expect(status.get_by_text("completed")).to_be_visible()
    link = status.get_by_role("link", name="Show the run").get_attribute("href") or ""
    execution = link.rpartition("/")[2]
    assert exact(get(up, f"/executions/{execution}/input")) == exact(VALUE)
    assert computed(get(up, f"/executions/{execution}/nodes/same/output")) == computed(VALUE)


def test_field_of_a_node_keeps_the_digits_of_numbers_in_the_document(
    watched: WatchedPage, up: UpProcess
) -> None:
    text = FIELDS
    deploy(up, text)
    page = watched.open("/workflows/fields/edit?node=a&text=1")
    field = panel(page, "a").get_by_role("textbox", name="value", exact=True)
    expect(field).to_have_value(re.compile(r"1\.10.*9007199254740993.*1\.0", re.DOTALL))
    field.fill("[1.10, 9007199254740995, 1.0]")
    wanted = text.replace("9007199254740993", "9007199254740995")
    until(lambda: text_of(page) == wanted or None, "the text has the value of the field")
    assert source(up, "fields") == text


def test_fields_of_a_node_wait_for_the_catalogue_so_that_no_typed_text_is_lost(
    watched: WatchedPage, up: UpProcess
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    deploy(up, FIELDS.replace("fields", "waits"))
    watched.page.route(re.compile("/api/v1/nodes$"), hold)
    page = watched.open("/workflows/waits/edit?node=a&text=1")
    expect(panel(page, "a").get_by_role("status", name="Loading")).to_be_visible()
    expect(panel(page, "a").get_by_role("textbox")).to_have_count(0)
    expect(panel(page, "a")).not_to_contain_text("knows no type")

    for each in held:
        each.continue_()
    field = panel(page, "a").get_by_role("textbox", name="value", exact=True)
    expect(field).to_be_editable()


def test_panel_of_a_node_names_the_failure_of_the_catalogue(watched: WatchedPage, up: UpProcess) -> None:
    deploy(up, FIELDS.replace("fields", "fails"))
    watched.page.route(re.compile("/api/v1/nodes$"), lambda route: route.fulfill(status=400, body=""))
    page = watched.open("/workflows/fails/edit?node=a")
    again = panel(page, "a").get_by_role("button", name="Try again")
    expect(again).to_be_visible()

    page.unroute(re.compile("/api/v1/nodes$"))
    again.click()
    expect(panel(page, "a").get_by_role("textbox", name="value", exact=True)).to_be_editable()
