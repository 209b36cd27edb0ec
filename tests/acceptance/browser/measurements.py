"""Measures the web interface against its budgets: `make bench-ui`. The tests hold three times the budgets."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from playwright.sync_api import Browser, CDPSession, Locator, Page, expect

from rune.cli.bench.workloads import fill
from rune.client import Client
from tests.support.documents import document, node
from tests.support.large_executions import large_document, wide_graph, write_items
from tests.support.paths import SOURCE, python_path
from tests.support.up_process import UpProcess

FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
ITEMS = 100_000
NODES = 2_000
EXECUTIONS = 2_000
SLOW_CPU = 4
GUARD = 3
NOTE_LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.longTasks.push(each.duration);
}).observe({ type: "longtask", buffered: true });
"""
READ_MS = """
(path) => performance.getEntriesByType("resource").find((each) => each.name.includes(path)).duration
"""
NODE_CODE = """
from rune import node

@node("bench.large")
def large() -> dict:
    row = {"id": 1, "name": "a row of the table", "tags": ["first", "second"], "note": "x" * 440}
    return {"rows": [row] * 120_000, "text": "t" * 4_000_000, "count": 120_000}
"""
NOTE_CLICK = """
(isShown) => {
  window.noted = new Promise((resolve) => {
    const onClick = ({ timeStamp }) => {
      const look = () => (isShown() ? resolve(performance.now() - timeStamp) : requestAnimationFrame(look));
      requestAnimationFrame(look);
    };
    addEventListener("click", onClick, { capture: true, once: true });
  });
}
"""
COUNT_FRAMES = """
() => new Promise((resolve) => {
  const times = [];
  const step = (at) => {
    times.push(at);
    if (times.length < 90) requestAnimationFrame(step);
    else resolve(times.slice(1).map((each, index) => each - times[index]));
  };
  requestAnimationFrame(step);
})
"""
# A place of the graph with no card or edge near it, at which a drag moves the whole graph.
FIND_EMPTY_PLACE = """
() => {
  const pane = document.querySelector(".react-flow__pane");
  const box = pane.getBoundingClientRect();
  const isEmpty = (x, y) => document.elementFromPoint(x, y) === pane;
  for (let y = box.top + 60; y < box.bottom - 60; y += 8) {
    for (let x = box.left + 60; x < box.right - 60; x += 8) {
      if (isEmpty(x, y) && isEmpty(x - 6, y - 6) && isEmpty(x + 6, y + 6)) return [x, y];
    }
  }
  return null;
}
"""
# The id and the middle of a card that is not near the border of the graph.
FIND_CARD = """
() => {
  const { left, top, right, bottom } = document.querySelector(".react-flow__pane").getBoundingClientRect();
  for (const card of document.querySelectorAll(".react-flow__node-card")) {
    const box = card.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    if (x > left + 60 && x < right - 60 && y > top + 60 && y < bottom - 60) return [card.dataset.id, x, y];
  }
  return null;
}
"""

BUDGETS = {
    "first contentful paint, ms": 1_000,
    "list usable, ms": 1_500,
    "list usable, CPU, ms": 1_000,
    f"list usable with {SLOW_CPU}x slower CPU, ms": 3_000,
    "layout of 2,000 nodes, ms": 300,
    "graph of 2,000 nodes shown, ms": 1_500,
    "graph of 2,000 nodes shown, CPU, ms": 1_000,
    "graph of 2,000 nodes, p95 of a frame, ms": 20,
    "graph of 2,000 nodes, CPU per frame, ms": 16,
    "graph of 2,000 nodes, heap, MB": 60,
    "graph of 2,000 nodes run live, longest task, ms": 100,
    "editor of 2,000 nodes shown, ms": 1_500,
    "editor of 2,000 nodes shown, CPU, ms": 1_000,
    "editor of 2,000 nodes, p95 of a frame, ms": 20,
    "editor of 2,000 nodes, CPU per frame, ms": 16,
    "editor of 2,000 nodes, longest task, ms": 100,
    "editor of 2,000 nodes, heap, MB": 60,
    "grid of 100,000 items from click, ms": 1_000,
    "grid of 100,000 items from click, CPU, ms": 300,
    "filter of 100,000 items, ms": 100,
    "filter of 100,000 items, CPU, ms": 100,
    "list of 100,000 items, p95 of a frame while scrolling, ms": 20,
    "list of 100,000 items, CPU per frame while scrolling, ms": 16,
    "items, longest task, ms": 100,
    "value of 64 MB, first level, read from the store, ms": 300,
    "value of 64 MB, first level from click, ms": 300,
    "value of 64 MB, first level from click, CPU, ms": 100,
    "value of 64 MB, heap, MB": 50,
}


STEADY = ("CPU", "heap")
"""What the names of those measures have in common that do not depend on what else the machine does."""


class Site(msgspec.Struct, frozen=True):
    """A server with large executions."""

    url: str
    items: str  # the execution with many items


def open_site(home: Path) -> tuple[UpProcess, Site]:
    """Start a server over a database with many executions, one of which has many items."""
    home.mkdir(parents=True, exist_ok=True)
    fill(home / "rune.db", EXECUTIONS, ended_by=time.time_ns() // 1_000_000 - 900_000)
    items = write_items(home, ITEMS)
    (home / "bench_nodes.py").write_text(NODE_CODE)
    up = UpProcess(
        home, RUNE_DURABILITY="relaxed", RUNE_NODES="bench_nodes", PYTHONPATH=python_path(SOURCE, home)
    )
    url = up.start()
    with Client(url, timeout=120) as client:
        client.deploy(wide_graph(NODES))
        client.deploy(large_document(NODES))
        client.deploy(document([node("in", "input"), node("big", "bench.large")], "in>big", id="values"))
    return up, Site(url, items)


class Opened:
    """A page that notes its long tasks, and the protocol of its browser."""

    def __init__(self, browser: Browser) -> None:
        self.context = browser.new_context(viewport={"width": 1360, "height": 860}, reduced_motion="reduce")
        self.context.add_init_script(NOTE_LONG_TASKS)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.protocol: CDPSession = self.context.new_cdp_session(self.page)
        self.protocol.send("Performance.enable", {"timeDomain": "threadTicks"})

    def clock(self) -> float:
        """Milliseconds since the page was requested."""
        return float(self.page.evaluate("performance.now()"))

    def cpu(self) -> float:
        """CPU time of the tasks of the page's main thread, in milliseconds."""
        found = self.protocol.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration")) * 1_000

    def longest_task(self) -> float:
        return float(self.page.evaluate("Math.max(0, ...window.longTasks)"))

    def forget_long_tasks(self) -> None:
        self.page.evaluate("window.longTasks.length = 0")

    def heap_mb(self) -> float:
        self.protocol.send("HeapProfiler.collectGarbage")
        used = self.protocol.send("Runtime.getHeapUsage")["usedSize"]
        return float(used) / 1024 / 1024

    def frames(self, act: Callable[[], None]) -> tuple[float, float]:
        """The 95th percentile of the time between frames during an action, and the CPU time per frame, in ms."""
        before = self.cpu()
        self.page.evaluate(f"void (window.noted = ({COUNT_FRAMES})())")
        act()
        times = sorted(self.page.evaluate("window.noted"))
        return float(times[math.ceil(len(times) * 0.95) - 1]), (self.cpu() - before) / len(times)

    def drag(self, start: tuple[float, float]) -> None:
        """Press the mouse button at a place and move in 60 steps to the right and down."""
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        for step in range(60):
            mouse.move(start[0] + step * 6, start[1] + step * 3)
        mouse.up()

    def zoom_out(self) -> None:
        for _ in range(20):
            self.page.mouse.wheel(0, 120)

    def after_click(self, target: Locator, shown: str) -> tuple[float, float]:
        """Milliseconds from a click to the first frame in which an expression is true, and the CPU time of the page.
        The page measures, so that the time in which the driver looks for the target does not count."""
        assert not self.page.evaluate(f"Boolean({shown})")
        self.page.evaluate(f"void ({NOTE_CLICK})(() => {shown})")
        before = self.cpu()
        target.click()
        return float(self.page.evaluate("window.noted")), self.cpu() - before


def measure_list(browser: Browser, site: Site) -> dict[str, float]:
    opened = Opened(browser)
    page = opened.page
    page.goto(f"{site.url}/executions")
    page.locator(".list-row").first.wait_for()
    usable, cpu = opened.clock(), opened.cpu()
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    opened.protocol.send("Emulation.setCPUThrottlingRate", {"rate": SLOW_CPU})
    page.goto(f"{site.url}/executions?q=full")
    page.locator(".list-row").first.wait_for()
    slow = opened.clock()
    opened.context.close()
    return {
        "first contentful paint, ms": paint,
        "list usable, ms": usable,
        "list usable, CPU, ms": cpu,
        f"list usable with {SLOW_CPU}x slower CPU, ms": slow,
    }


def measure_graph(browser: Browser, site: Site) -> dict[str, float]:
    with Client(site.url) as client:
        detail = client.workflow(f"graph-{NODES}")
        opened = Opened(browser)
        page = opened.page
        # A width of which the server keeps no layout yet.
        layout = f"/api/v1/definitions/{detail.hash}/layout?width={random.randint(400, 999)}&height=90"
        page.goto(f"{site.url}/settings")
        took = page.evaluate(
            "async (path) => { const at = performance.now(); await (await fetch(path)).json();"
            " return performance.now() - at; }",
            layout,
        )
        execution = client.start(f"graph-{NODES}").execution_id
        before = opened.cpu()
        page.goto(f"{site.url}/executions/{execution}")
        page.locator(".flow-card").first.wait_for()
        shown, cpu = opened.clock(), opened.cpu() - before
        opened.forget_long_tasks()
        client.wait(execution)
        expect(page.locator(".head .pill")).to_have_text("completed")
        live = opened.longest_task()
        heap = opened.heap_mb()
        middle = middle_of(page.locator(".react-flow__pane"))
        # Over cards, then out to the picture of the whole graph, then over that picture.
        moved = [
            opened.frames(each)
            for each in (lambda: opened.drag(middle), opened.zoom_out, lambda: opened.drag(middle))
        ]
        page.locator(".flow-far").wait_for()
        opened.context.close()
    return {
        "layout of 2,000 nodes, ms": took,
        "graph of 2,000 nodes shown, ms": shown,
        "graph of 2,000 nodes shown, CPU, ms": cpu,
        "graph of 2,000 nodes, p95 of a frame, ms": max(each for each, _ in moved),
        "graph of 2,000 nodes, CPU per frame, ms": max(each for _, each in moved),
        "graph of 2,000 nodes, heap, MB": heap,
        "graph of 2,000 nodes run live, longest task, ms": live,
    }


def measure_editor(browser: Browser, site: Site) -> dict[str, float]:
    opened = Opened(browser)
    page = opened.page
    page.goto(f"{site.url}/workflows/large/edit")
    page.locator(".edit-card").first.wait_for()
    shown, cpu = opened.clock(), opened.cpu()
    # The server has checked the draft and laid it out.
    page.get_by_text("No problems.").wait_for()
    opened.forget_long_tasks()
    pane = page.locator(".react-flow__pane")
    empty = page.evaluate(FIND_EMPTY_PLACE)
    moved = [opened.frames(lambda: opened.drag((empty[0], empty[1])))]
    id, *card = page.evaluate(FIND_CARD)
    moved.append(opened.frames(lambda: opened.drag((card[0], card[1]))))
    page.get_by_role("button", name=f"Undo: move {id}").wait_for()
    page.get_by_text("draft, kept in this browser").wait_for()
    page.mouse.move(*middle_of(pane))
    moved.append(opened.frames(opened.zoom_out))
    page.locator(".flow-far").wait_for()
    moved.append(opened.frames(lambda: opened.drag(middle_of(pane))))
    longest = opened.longest_task()
    heap = opened.heap_mb()
    opened.context.close()
    return {
        "editor of 2,000 nodes shown, ms": shown,
        "editor of 2,000 nodes shown, CPU, ms": cpu,
        "editor of 2,000 nodes, p95 of a frame, ms": max(each for each, _ in moved),
        "editor of 2,000 nodes, CPU per frame, ms": max(each for _, each in moved),
        "editor of 2,000 nodes, longest task, ms": longest,
        "editor of 2,000 nodes, heap, MB": heap,
    }


def middle_of(element: Locator) -> tuple[float, float]:
    box = element.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def measure_items(browser: Browser, site: Site) -> dict[str, float]:
    opened = Opened(browser)
    page = opened.page
    page.goto(f"{site.url}/executions/{site.items}")
    page.locator(".flow-card").first.wait_for()
    opened.forget_long_tasks()
    grid = opened.after_click(
        page.get_by_role("tab", name="Items"), "document.querySelector('.heat-grid canvas')"
    )
    page.locator(".item-row").first.wait_for()
    chip = page.locator(".chip", has_text="HTTP_TIMEOUT")
    filtered = opened.after_click(
        chip, "[...document.querySelectorAll('.item-row')].some((row) => row.textContent.includes('s:1257'))"
    )
    chip.click()
    page.locator('.item-row:has-text("succeeded")').first.wait_for()
    page.locator(".item-list").hover()

    def scroll() -> None:
        for _ in range(40):
            page.mouse.wheel(0, 120)

    scrolled = opened.frames(scroll)
    longest = opened.longest_task()
    opened.context.close()
    return {
        "grid of 100,000 items from click, ms": grid[0],
        "grid of 100,000 items from click, CPU, ms": grid[1],
        "filter of 100,000 items, ms": filtered[0],
        "filter of 100,000 items, CPU, ms": filtered[1],
        "list of 100,000 items, p95 of a frame while scrolling, ms": scrolled[0],
        "list of 100,000 items, CPU per frame while scrolling, ms": scrolled[1],
        "items, longest task, ms": longest,
    }


def measure_value(browser: Browser, site: Site) -> dict[str, float]:
    with Client(site.url) as client:
        execution = client.start("values").execution_id  # a new one, of which the server keeps nothing yet
        client.wait(execution)
    opened = Opened(browser)
    page = opened.page
    page.goto(f"{site.url}/executions/{execution}?view=data")
    page.locator(".tree-key", has_text="big:").wait_for()  # the output of the execution is open at once
    read = page.evaluate(READ_MS, f"/executions/{execution}/output?")
    value = page.locator(".data-value").filter(has_text="$big")
    shown, cpu = opened.after_click(
        value.locator(".data-toggle"), "document.querySelector('.tree [aria-label=\"Expand rows\"]')"
    )
    value.get_by_role("button", name="Expand rows").click()
    value.get_by_role("button", name="100 more of 119,900").click()
    value.get_by_role("button", name="100 more of 119,800").wait_for()
    heap = opened.heap_mb()
    opened.context.close()
    return {
        "value of 64 MB, first level, read from the store, ms": read,
        "value of 64 MB, first level from click, ms": shown,
        "value of 64 MB, first level from click, CPU, ms": cpu,
        "value of 64 MB, heap, MB": heap,
    }


MEASURES = (measure_list, measure_graph, measure_editor, measure_items, measure_value)
