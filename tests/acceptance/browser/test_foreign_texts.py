"""Texts that other programs wrote, with `\\r\\n` and directives, are edited like others."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.editor_page import card, code, source, text_of
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

TEXT = """\
%YAML 1.2
---
id: foreign
nodes:
  - id: start
    type: input
  - id: note
    type: log
    parameters: { message: hello }
edges:
  - { src: start, dst: note }
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    process = UpProcess(tmp_path_factory.mktemp("foreign"))
    process.start("--no-examples")
    yield process
    process.stop(signal.SIGKILL)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["\\n", "\\r\\n"])
@pytest.mark.parametrize("directive", [True, False], ids=["directive", "plain"])
def test_text_is_typed_into_drawn_published_and_undone(
    browser: Browser, up: UpProcess, newline: str, directive: bool
) -> None:
    id = f"foreign{int(directive)}{len(newline)}"
    text = (
        (TEXT if directive else TEXT.partition("---\n")[2])
        .replace("id: foreign", f"id: {id}")
        .replace("\n", newline)
    )
    with Client(up.said["url"]) as client:
        client.deploy(text)
    watched = WatchedPage(browser, up.said["url"], viewport={"width": 1500, "height": 900})
    page = watched.open(f"/workflows/{id}/edit?text=1")
    expect(card(page, "start")).to_be_visible()
    expect(card(page, "note")).to_be_visible()
    line = code(page).locator(".cm-line").filter(has_text="id: note")
    line.click()
    page.keyboard.press("End")

    page.keyboard.type("  # said")
    page.keyboard.press("Enter")
    page.keyboard.type("name: Say it")

    changed = text.replace("id: note", f"id: note  # said{newline}    name: Say it")
    expect(card(page, "note")).to_contain_text("Say it")
    assert text_of(page) == changed.replace("\r\n", "\n")
    expect(page.get_by_text("not YAML")).to_have_count(0)
    undo = page.get_by_role("button", name="Undo")
    while undo.is_enabled():
        undo.click()
    expect(card(page, "note")).not_to_contain_text("Say it")
    assert text_of(page) == text.replace("\r\n", "\n")
    redo = page.get_by_role("button", name="Redo")
    while redo.is_enabled():
        redo.click()
    card(page, "note").click()
    page.get_by_role("textbox", name="message", exact=True).fill("good day")
    page.get_by_role("button", name="Publish").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog).to_have_count(0)
    assert source(up, id) == changed.replace("hello", "good day")
    watched.check()
    watched.close()
