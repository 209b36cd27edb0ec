"""The editor as the browser tests use it, by accessible names."""

from __future__ import annotations

import difflib
import re

from playwright.sync_api import Locator, Page, expect

from rune.client import Client
from tests.support.up_process import UpProcess

MAX_TABS = 200
COUNT_POINTERS = """
window.pointerEvents = 0;
for (const kind of ["pointerdown", "mousedown", "touchstart"]) {
  addEventListener(kind, () => window.pointerEvents++, true);
}
"""
COUNT_STEPS = """
(target) => {
  const stops = [];
  const visit = (root) => {
    for (const each of root.querySelectorAll("*")) {
      if (each.tabIndex >= 0 && !each.disabled && each.checkVisibility()) stops.push(each);
      if (each.shadowRoot) visit(each.shadowRoot);
    }
  };
  visit(target.closest("dialog") ?? document);
  let focused = document.activeElement;
  while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement;
  return stops.indexOf(target) - stops.indexOf(focused);
}
"""


def card(page: Page, node: str) -> Locator:
    return page.locator(f'.react-flow__node[data-id="{node}"]')


def code(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Text of the workflow")


def text_of(page: Page) -> str:
    """Return the text of the draft as the text pane holds it."""
    text: str = page.evaluate(
        """() => {
          const content = document.querySelector(".edit-code").shadowRoot.querySelector(".cm-content");
          return content.cmTile?.view?.state.doc.toString() ?? content.cmView.view.state.doc.toString();
        }"""
    )
    return text


def write(page: Page, before: str, after: str) -> None:
    """Replace the first occurrence of a text in the text pane, as typing over it does."""
    page.evaluate(
        """([before, after]) => {
          const content = document.querySelector(".edit-code").shadowRoot.querySelector(".cm-content");
          const view = content.cmTile?.view ?? content.cmView.view;
          const from = view.state.doc.toString().indexOf(before);
          view.dispatch({ changes: { from, to: from + before.length, insert: after } });
        }""",
        [before, after],
    )


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines that were removed and those that were added, without their indentation."""
    found = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    removed = [each[2:].strip() for each in found if each.startswith("- ")]
    return removed, [each[2:].strip() for each in found if each.startswith("+ ")]


def row(page: Page, node: str) -> Locator:
    """Return the button of a node in the list."""
    nodes = page.get_by_role("list", name="Nodes in order")
    return nodes.get_by_role("button", name=re.compile(f"^{node} "))


def panel(page: Page, node: str) -> Locator:
    return page.get_by_role("complementary", name=f"Node {node}")


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab, or Shift and Tab, until an element has the focus, as somebody without a mouse does. Most of the way is
    counted in the page and pressed without a look in between."""
    steps = target.evaluate(COUNT_STEPS)
    for _ in range(min(abs(steps) - 1, MAX_TABS)):
        page.keyboard.press("Tab" if steps > 0 else "Shift+Tab")
    for _ in range(MAX_TABS):
        if target.evaluate("(each) => each.getRootNode().activeElement === each"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{target} cannot be reached with the Tab key")


def press_on(page: Page, target: Locator, key: str = "Enter") -> None:
    tab_to(page, target)
    page.keyboard.press(key)


def type_into(page: Page, target: Locator, text: str) -> None:
    """Replace the content of a field by typing over it."""
    tab_to(page, target)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def choose(page: Page, node: str) -> None:
    press_on(page, row(page, node))
    expect(panel(page, node)).to_be_visible()


def add(page: Page, type: str) -> None:
    """Add a node behind the chosen one with the key A."""
    page.keyboard.press("a")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("combobox", name="Node type")).to_be_focused()
    page.keyboard.insert_text(type)
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)


def rename(page: Page, to: str) -> None:
    """Rename the chosen node with the key R."""
    page.keyboard.press("r")
    expect(page.get_by_role("dialog").get_by_label("New id")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(to)
    page.keyboard.press("Enter")
    expect(panel(page, to)).to_be_visible()


def deploy(up: UpProcess, text: str) -> None:
    with Client(up.said["url"], timeout=120) as client:
        client.deploy(text)


def source(up: UpProcess, workflow: str) -> str:
    with Client(up.said["url"]) as client:
        return client.source(workflow).decode()
