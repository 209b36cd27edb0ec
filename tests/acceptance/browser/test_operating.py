"""What operators do: act on all executions that match a filter, run a node again with changes, read large values."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from rune.cli.bench.workloads import fill
from rune.client import ApiError, Client
from tests.acceptance.browser.conftest import WatchedPage
from tests.acceptance.browser.test_people import BROKEN
from tests.support.documents import document, node
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

FILLED = 6_000
NIGHTLY: dict[str, Any] = document(
    [
        node("clock", "schedule", {"cron": "30 2 * * *", "timezone": "UTC"}),
        node("often", "schedule", {"amount": 90, "unit": "minutes"}),
        node("run", "noop"),
    ],
    "clock>run",
    "often>run",
    id="nightly",
)
LARGE: dict[str, Any] = document(
    [
        node("in", "input"),
        node("pass", "noop"),
        node("out", "output", {"value": "{{ $pass.rows[0] }}"}),
    ],
    "in>pass",
    "pass>out",
    id="large",
)


ORDERS: dict[str, Any] = document(
    [
        node("in", "input"),
        node("check", "conditional", {"expression": "$in.rows > 0"}),
        node("store", "output", {"value": "{{ $in.rows }}"}),
        node("empty", "fail", {"message": "no rows"}),
    ],
    "in>check",
    "check>store:true",
    "check>empty:false",
    id="orders",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = Path(tmp_path_factory.mktemp("operating"))
    fill(home / "rune.db", FILLED, ended_by=time.time_ns() // 1_000_000 - 60_000, status="failed")
    up = UpProcess(home, RUNE_LOG_LEVEL="error")
    yield up.start()
    up.stop(signal.SIGKILL)


def test_bulk_retry_of_all_that_match_shows_counts_and_each_outcome(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(BROKEN)
        started = [client.start("prices", {"rows": int(n < 2)}).execution_id for n in range(8)]
        for each in started:
            client.wait(each)
    page = watched.open("/executions?workflow=prices")
    expect(page.locator(".list-row")).to_have_count(8)
    page.get_by_role("checkbox", name="Select all rows").click()
    bar = page.get_by_role("toolbar")
    expect(bar).to_contain_text("8 executions selected")
    bar.get_by_role("button", name="Select all that match").click()
    expect(bar).to_contain_text("All that match the filter")

    bar.get_by_role("button", name="Retry", exact=True).click()

    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("8 executions selected. 2 cannot be retried in their current status.")
    expect(dialog).to_contain_text("2 completed · 6 failed")
    assert watched.accessibility_problems() == []
    dialog.get_by_role("button", name="Retry 6").dblclick()
    expect(dialog).to_contain_text("6 retried · 0 unchanged · 2 refused")
    expect(dialog.locator(".outcomes li")).to_have_count(8)
    dialog.get_by_label("Outcomes").select_option("refused")
    expect(dialog.locator(".outcomes li")).to_have_count(2)
    dialog.get_by_role("link", name="Open the job").click()
    expect(page).to_have_url(re.compile("/bulk/b"))
    expect(page.get_by_role("heading", name="Retry 8 executions")).to_be_visible()
    expect(page.locator(".outcomes li")).to_have_count(8)
    assert watched.accessibility_problems() == []
    with Client(watched.url) as client:
        assert len(list(client.executions(workflow="prices"))) == 14
    watched.check()


def test_bulk_job_of_thousands_is_aborted_and_leaves_the_rest_alone(watched: WatchedPage) -> None:
    page = watched.open("/executions?workflow=full&status=failed")
    page.get_by_role("checkbox", name="Select all rows").click()
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("toolbar").get_by_role("button", name="Retry", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=f"Retry {FILLED:,}").click()

    dialog.get_by_role("button", name="Abort").click()

    expect(dialog).to_contain_text("left alone")
    expect(dialog.locator(".pill")).to_have_text("aborted")
    dialog.get_by_role("button", name="Done").click()
    page.get_by_role("link", name="Bulk jobs").click()
    row = page.locator("tbody tr").filter(has_text=f"Retry {FILLED:,} executions")
    expect(row).to_contain_text("aborted")
    assert watched.accessibility_problems() == []
    watched.check()


def test_bulk_action_without_filter_is_offered_for_the_selection_only(watched: WatchedPage) -> None:
    page = watched.open("/executions")
    page.locator(".list-row").first.get_by_role("checkbox").click()

    matching = page.get_by_role("button", name="Select all that match")
    expect(matching).to_be_disabled()
    expect(matching).to_have_attribute("title", re.compile("Choose a filter first"))


def test_rerun_with_edited_input_and_parameters_uses_them(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(ORDERS)
        failed = client.start("orders", {"rows": 0}).execution_id
        client.wait(failed)
    page = watched.open(f"/executions/{failed}?node=check")
    page.get_by_role("button", name="Rerun from here").click()
    dialog = page.get_by_role("dialog", name="Rerun from check")
    dialog.get_by_label("Change the parameters").check()
    expect(dialog.get_by_role("textbox", name="Parameters")).to_have_value(re.compile("rows > 0"))
    dialog.get_by_role("textbox", name="Parameters").fill('{"expression": "$in.rows == ')
    expect(dialog.get_by_role("button", name="Rerun")).to_be_disabled()
    dialog.get_by_role("textbox", name="Parameters").fill('{"expression": "$in.rows > 40"}')
    dialog.get_by_label("Change the input").check()
    expect(dialog.get_by_role("textbox", name="Input")).to_have_value(re.compile('"rows": 0'))
    dialog.get_by_role("textbox", name="Input").fill('{"rows": 41}')
    assert watched.accessibility_problems() == []

    dialog.get_by_role("button", name="Rerun").click()

    expect(page).not_to_have_url(re.compile(failed))
    expect(page.locator(".head .pill")).to_have_text("completed")
    with Client(watched.url) as client:
        assert client.output(page.url.rpartition("/")[2].partition("?")[0]) == 41
    watched.check()


def test_rerun_with_another_version_runs_it(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(BROKEN)
        failed = client.start("prices", {"rows": 0}).execution_id
        client.wait(failed)
        mended = {**BROKEN["nodes"][-1], "type": "noop", "parameters": {}}
        version = client.deploy({**BROKEN, "nodes": [*BROKEN["nodes"][:-1], mended]}).version
    page = watched.open(f"/executions/{failed}?node=empty")
    page.get_by_role("button", name="Rerun from here").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Use another version").check()
    expect(dialog.get_by_role("button", name="Rerun")).to_be_disabled()
    dialog.get_by_role("combobox", name="Version").select_option(str(version))

    dialog.get_by_role("button", name="Rerun").click()

    expect(page.locator(".head .pill")).to_have_text("completed")
    expect(page.get_by_role("link", name=f"version {version}")).to_be_visible()
    watched.check()


def test_data_view_reads_long_lists_and_texts_in_pieces(watched: WatchedPage) -> None:
    text = "x" * 9_000 + "the end"
    with Client(watched.url) as client:
        client.deploy(LARGE)
        rows = [{"id": n, "tags": ["a", "b"]} for n in range(5_000)]
        execution = client.start("large", {"rows": rows, "text": text, "odd key": 1}).execution_id
        client.wait(execution)
    sizes: list[int] = []
    watched.page.on("requestfinished", lambda each: sizes.append(each.sizes()["responseBodySize"]))
    page = watched.open(f"/executions/{execution}?view=data")
    tree = page.locator(".data-value").filter(has_text="$trigger").locator(".tree")
    expect(tree).to_contain_text("[5,000 items] · ")
    expect(tree).not_to_contain_text("the end")
    tree.get_by_role("button", name="more of 6,959 characters").click()
    expect(tree).to_contain_text("the end")

    tree.get_by_role("button", name="Expand rows").click()
    tree.get_by_role("button", name="100 more of 4,900").click()

    expect(tree.get_by_role("button", name="100 more of 4,800")).to_be_visible()
    tree.get_by_role("button", name="Expand 150").click()
    expect(tree.get_by_role("button", name="Expand tags")).to_be_visible()
    expect(tree.get_by_title('Copy $trigger["odd key"]')).to_be_visible()
    expect(tree.get_by_title("Copy $trigger.rows[150].id")).to_be_visible()
    assert max(sizes) < 120_000  # the value itself has more, and so has none of its parts
    assert watched.accessibility_problems() == []
    watched.check()


def test_search_in_a_value_finds_keys_and_texts_in_parts_that_are_not_loaded(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(LARGE)
        rows = [
            {"id": n, "owner": {"name": f"Ada {n}" if n % 2_000 == 1_999 else "nobody"}} for n in range(5_000)
        ]
        execution = client.start("large", {"rows": rows}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}?view=data")
    value = page.locator(".data-value").filter(has_text="$trigger")
    position = value.get_by_role("status").filter(has_text=" of ")
    value.get_by_role("searchbox").fill("ADA")
    expect(position).to_have_text("1 of 2")
    expect(value.locator(".value-match")).to_contain_text("$trigger.rows[1999].owner.name")
    expect(value.locator("mark")).to_have_text("Ada")
    expect(value.locator("[data-found]")).to_contain_text('"Ada 1999"')

    value.get_by_role("button", name="Next match").click()
    expect(value.locator(".value-match")).to_contain_text("$trigger.rows[3999].owner.name")
    expect(value.locator("[data-found]")).to_contain_text('"Ada 3999"')
    value.get_by_role("searchbox").press("Enter")
    expect(position).to_have_text("1 of 2")
    value.get_by_role("button", name="Previous match").click()
    expect(position).to_have_text("2 of 2")
    assert watched.accessibility_problems() == []

    value.get_by_role("searchbox").fill("owner")
    expect(position).to_have_text("1 of 5,000")
    value.get_by_role("button", name="Previous match").click()
    expect(value.locator(".value-match")).to_contain_text("$trigger.rows[4999].owner")
    value.get_by_role("searchbox").fill("nothing like it")
    expect(value.get_by_role("status")).to_have_text("No match")
    watched.check()


def test_panel_of_a_node_shows_the_parts_of_its_large_input_and_output(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(LARGE)
        execution = client.start("large", {"rows": [{"id": n} for n in range(20_000)]}).execution_id
        client.wait(execution)
    page = watched.open(f"/executions/{execution}?node=pass")
    panel = page.get_by_role("complementary", name="Node pass")

    expect(panel.get_by_role("button", name="Expand rows")).to_have_count(2)
    expect(panel.get_by_role("link", name="Download the output")).to_be_visible()
    expect(panel.get_by_role("link", name="Download the input")).to_be_visible()
    watched.check()


def test_schedule_shows_its_next_five_starts(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(NIGHTLY)
    page = watched.open("/triggers")

    for name in ("clock", "often"):
        card = page.get_by_role("region", name=f"Trigger {name} of nightly")
        expect(card.get_by_role("list", name="Next starts").get_by_role("listitem")).to_have_count(5)
    nightly = page.get_by_role("region", name="Trigger clock of nightly").locator("time")
    times = nightly.evaluate_all("all => all.map((each) => each.dateTime)")
    assert [each[10:16] for each in times] == ["T02:30"] * 5
    assert times == sorted(set(times))
    watched.check()


def test_settings_show_values_in_effect_and_their_source(watched: WatchedPage) -> None:
    page = watched.open("/settings")
    table = page.get_by_role("group", name="Table of settings")
    expect(table.locator("tbody tr").first).to_contain_text("environment")

    page.get_by_label("Find a setting").fill("log_level")

    expect(table.locator("tbody tr")).to_have_count(1)
    expect(table.locator("tbody tr")).to_contain_text("error")
    watched.check()


PARCELS: dict[str, Any] = document(
    [
        node("in", "input"),
        node("parcels", "split", {"input_array": "{{ $in.parcels }}"}),
        node("late", "conditional", {"expression": "$item == 2"}),
        node("lost", "fail", {"message": "lost", "code": "LOST"}),
        node("weigh", "conditional", {"expression": "$item > 2"}),
        node("heavy", "fail", {"message": "heavy", "code": "HEAVY"}),
        node("all", "aggregator"),
    ],
    "in>parcels",
    "parcels>late",
    "late>lost:true",
    "late>weigh:false",
    "weigh>heavy:true",
    "weigh>all:false",
    "lost>all",
    "heavy>all",
    id="parcels",
)


def test_items_with_an_error_code_are_retried_without_the_other_failed_ones(watched: WatchedPage) -> None:
    with Client(watched.url) as client:
        client.deploy(PARCELS)
        started = client.start("parcels", {"parcels": [1, 2, 3, 4]}).execution_id
        assert client.wait(started).failed_items == 3
    page = watched.open(f"/executions/{started}?view=items")

    expect(page.get_by_role("button", name="Retry 3 failed")).to_be_visible()
    page.get_by_role("group", name="Filter").get_by_role("button", name="HEAVY").click()
    page.get_by_role("button", name="Retry these 2").click()
    dialog = page.get_by_role("dialog", name="Retry 2 failed items with HEAVY")
    assert watched.accessibility_problems() == []
    with page.expect_request(re.compile("/retry$")) as sent:
        dialog.get_by_role("button", name="Retry", exact=True).click()

    assert sent.value.post_data_json == {"failed_items": True, "split": "parcels", "code": "HEAVY"}
    expect(dialog).to_have_count(0)
    expect(page).not_to_have_url(re.compile(started))
    with Client(watched.url) as client:
        with pytest.raises(ApiError, match="nothing of this kind"):
            client.retry(started, code="LATE")
        with pytest.raises(ApiError, match="nothing of this kind"):
            client.retry(started, split="parcels", item="parcels:0")
        with pytest.raises(ApiError, match="no node `letters`"):
            client.retry(started, split="letters")
    watched.check()


def test_panel_of_a_node_with_effects_shows_its_idempotency_key(watched: WatchedPage) -> None:
    calls = document(
        [node("in", "input"), node("call", "http", {"url": "http://127.0.0.1:1/"}), node("done", "noop")],
        "in>call",
        "call>done",
        id="calls",
    )
    with Client(watched.url) as client:
        client.deploy(calls)
        started = client.start("calls").execution_id
        client.wait(started)
        (attempt, *_) = client.attempts(started, "call")
    page = watched.open(f"/executions/{started}?node=call")

    key = page.get_by_role("complementary", name="Node call").locator(".idempotency-key")
    expect(key).to_contain_text(f"{started}:call@/")
    assert attempt.idempotency_key == f"{started}:call@/"
    page.goto(f"{watched.url}/executions/{started}?node=done")
    expect(page.get_by_role("complementary", name="Node done")).to_be_visible()
    expect(page.locator(".idempotency-key")).to_have_count(0)
