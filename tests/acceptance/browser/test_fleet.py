"""The pages of the fleet and of dead messages against a real cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, expect

from rune.adapters.redis.encoding import KeySpace
from rune.client import Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.support.backends import redis_command
from tests.support.clusters import Cluster, open_cluster
from tests.support.documents import document, edit, node

pytestmark = pytest.mark.long

MALFORMED = b'{"execution_id":"<img src=x onerror=window.ran=1>\xff"}'
ON_GPU = document([node("in", "input"), edit("train", 1, queue="gpu")], "in>train", id="training")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(tmp_path_factory.mktemp("cluster"), "redis", in_place=False) as made:
        yield made


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> str:
    return cluster.fleet.api().url


@pytest.fixture
def watched(url: str, browser: Browser) -> Iterator[WatchedPage]:
    """A page; the cluster is started first, because the browser runs an event loop in this thread."""
    opened = WatchedPage(browser, url)
    yield opened
    opened.close()


def test_fleet_shows_processes_and_a_queue_without_worker(
    watched: WatchedPage, cluster: Cluster, url: str
) -> None:
    with Client(url) as client:
        client.deploy(ON_GPU)
        execution = client.start("training").execution_id

    page = watched.open("/fleet")

    rows = page.locator("section[aria-labelledby=processes] tbody tr")
    expect(rows.filter(has_text="worker").filter(has=page.locator(".slots"))).to_have_count(2)
    expect(rows.filter(has_text="scheduler")).to_have_count(1)
    expect(page.get_by_text(re.compile(r"No worker serves the queue gpu"))).to_be_visible()

    cluster.start_worker("--queues", "gpu")
    expect(rows.filter(has=page.locator(".slots"))).to_have_count(3)
    expect(page.get_by_text(re.compile(r"No worker serves the queue gpu"))).to_have_count(0)
    page.goto(f"{url}/executions/{execution}")
    expect(page.locator(".head .pill")).to_have_text("completed")
    assert watched.accessibility_problems() == []
    watched.check()


def test_worker_is_drained_and_resumed(watched: WatchedPage, url: str) -> None:
    with Client(url) as client:
        worker = next(
            each for each in client.workers() if "worker" in each.roles and "gpu" not in each.queues
        )
    page = watched.open("/fleet")
    row = page.locator("section[aria-labelledby=processes] tbody tr").filter(has_text=worker.id)

    row.get_by_role("button", name="Drain").click()
    dialog = page.get_by_role("dialog", name=f"Drain {worker.id}?")
    assert watched.accessibility_problems() == []
    dialog.get_by_role("button", name="Drain").click()

    expect(row).to_contain_text("drained")
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Drain")).to_be_visible()
    expect(row).not_to_contain_text("drained")
    watched.check()


def test_dead_message_is_shown_with_its_body_and_discarded(watched: WatchedPage, cluster: Cluster) -> None:
    settings = cluster.settings
    stream = KeySpace(settings.prefix).stream(3, "default", "normal")
    with ThreadPoolExecutor(1) as pool:  # the browser runs an event loop in this thread
        sent = redis_command("XADD", stream, "*", "x", "any", "t", MALFORMED)  # type: ignore[arg-type]
        pool.submit(asyncio.run, sent).result()
    page = watched.open("/dead-letters?kind=messages")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("BAD_MESSAGE")

    row.get_by_role("button", name="Show").click()

    expect(page.get_by_label("Body of the message")).to_contain_text("<img src=x onerror=window.ran=1>")
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    row.get_by_role("button", name="Discard").click()
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(page.get_by_role("heading", name="No dead messages")).to_be_visible()
    assert page.evaluate("window.ran") is None
    watched.check()
