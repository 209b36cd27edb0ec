"""Commands that show documents of the API, in three places: over a server, while another process owns the file, and on
a file that no process owns."""

from __future__ import annotations

import json
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cli_process import until
from tests.support.cluster_cli import until_ended
from tests.support.in_process_cli import InProcessCli
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

PLACES = ("url", "owner", "file")

APPROVAL: dict[str, Any] = {
    "id": "approval",
    "nodes": [
        {"id": "in", "type": "input"},
        {
            "id": "gate",
            "type": "wait",
            "parameters": {"resume": "signal", "name": "decision", "title": "Pay {{ $trigger.n }} euros?"},
        },
    ],
    "edges": [{"src": "in", "dst": "gate"}],
}
NESTED: dict[str, Any] = {
    "id": "nested",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "users", "type": "split", "parameters": {"input_array": "{{ $trigger.users }}"}},
        {"id": "orders", "type": "split", "parameters": {"input_array": "{{ $item }}"}},
        {"id": "price", "type": "log", "parameters": {"message": "{{ 1 / $item }}"}},
        {"id": "sum", "type": "aggregator"},
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [
        {"src": "in", "dst": "users"},
        {"src": "users", "dst": "orders"},
        {"src": "orders", "dst": "price"},
        {"src": "price", "dst": "sum"},
        {"src": "sum", "dst": "all"},
    ],
}
FLAT: dict[str, Any] = {
    "id": "flat",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "each", "type": "split", "parameters": {"input_array": "{{ [1, 2] }}"}},
        {"id": "say", "type": "log", "parameters": {"message": "{{ $item }}"}},
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [{"src": "in", "dst": "each"}, {"src": "each", "dst": "say"}, {"src": "say", "dst": "all"}],
}
FAILING: dict[str, Any] = {
    "id": "failing",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "bad", "type": "fail", "parameters": {"message": "no luck", "code": "NO_LUCK"}},
    ],
    "edges": [{"src": "in", "dst": "bad"}],
}


class Place:
    """A command line, and the executions that it finds."""

    def __init__(self, rune: InProcessCli, ids: dict[str, str]) -> None:
        self.rune = rune
        self.ids = ids


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("home")
    up = UpProcess(home)
    url = up.start("--no-examples")
    local = InProcessCli(home)
    ids = started(local, home)
    if request.param == "file":
        up.stop()
    rune = InProcessCli(tmp_path_factory.mktemp("empty"), RUNE_URL=url) if request.param == "url" else local
    yield Place(rune, ids)
    up.stop(signal.SIGKILL)


def started(rune: InProcessCli, home: pathlib.Path) -> dict[str, str]:
    """Start executions and wait until they have ended or wait for a signal."""
    inputs = {
        "approval": '{"n": 7}',
        "nested": '{"users": [[1, 0, 2], [4]]}',
        "other": '{"users": [[1, 2, 2], [4]]}',
        "failing": "{}",
        "flat": "{}",
    }
    ids: dict[str, str] = {}
    for name, raw in (
        ("approval", APPROVAL),
        ("nested", NESTED),
        ("other", NESTED),
        ("failing", FAILING),
        ("flat", FLAT),
    ):
        path = home / f"{name}.json"
        path.write_text(json.dumps(raw))
        rune.json("deploy", str(path))
        ids[name] = rune.json("start", raw["id"], "-i", inputs[name])["execution_id"]
    until(lambda: "signal" in rune.output("explain", ids["approval"]) or None, "the gate waits")
    for name in ("nested", "other", "failing", "flat"):
        until_ended(rune, ids[name])
    return ids


def test_show_graph_prints_states_of_nodes_and_edges(place: Place) -> None:
    id = place.ids["failing"]

    graph = place.rune.json("show", id[:-1], "--graph")
    before = place.rune.json("show", id, "--graph", "--at", "1")
    text = place.rune.output("show", id, "--graph")

    assert graph["execution_id"] == id
    assert {name: each["state"] for name, each in graph["nodes"].items()} == {
        "in": "success",
        "bad": "failed",
    }
    assert list(graph["edges"].values()) == ["alive"]
    assert before["number"] == 1
    assert before["nodes"]["bad"]["state"] != "failed"
    assert "NO_LUCK" in text


def test_show_graph_counts_items_and_shows_one(place: Place) -> None:
    id = place.ids["nested"]

    text = place.rune.output("show", id, "--graph")
    item = place.rune.json("show", id, "--graph", "--item", "users:0/orders:1")

    assert "3 success" in text
    assert item["nodes"]["price"]["state"] == "failed"


def test_show_node_prints_input_and_attempts(place: Place) -> None:
    id = place.ids["nested"]

    shown = place.rune.json("show", id, "--node", "price", "--item", "users:1/orders:0")
    failed = place.rune.output("show", id, "--node", "price", "--item", "users:0/orders:1")

    assert shown["input"]["parameters"]["message"] == 0.25
    assert [each["status"] for each in shown["attempts"]] == ["success"]
    assert "failed" in failed
    assert place.rune("show", id, "--node", "nowhere").exit_code == 2
    assert place.rune("show", id, "--item", "users:1").exit_code == 2


def test_show_node_of_a_split_asks_for_an_item(place: Place) -> None:
    refused = place.rune("show", place.ids["nested"], "--node", "price")

    assert refused.exit_code == 2
    assert "--item" in refused.stderr
    assert "`users:0/orders:0`" in refused.stderr


def test_items_are_listed_filtered_and_counted(place: Place) -> None:
    id = place.ids["nested"]

    items = place.rune.json("items", id, "orders", "--item", "users:0")["items"]
    failed = place.rune.json("items", id, "orders", "--item", "users:0", "--state", "failed")["items"]
    first = place.rune.json("items", id, "orders", "--item", "users:0", "--limit", "1")["items"]
    counts = place.rune.json("items", id, "orders", "--item", "users:0", "--counts")
    text = place.rune.output("items", id, "orders", "--item", "users:0")

    assert [each["state"] for each in items] == ["success", "failed", "success"]
    assert [each["item"] for each in failed] == ["users:0/orders:1"]
    assert len(first) == 1
    assert (counts["items"], counts["states"]) == (3, {"success": 2, "failed": 1})
    assert list(counts["codes"].values()) == [1]
    assert "users:0/orders:2" in text
    assert place.rune("items", id, "in").exit_code == 2


def test_items_need_no_split_if_there_is_one_and_list_the_splits_otherwise(place: Place) -> None:
    flat, nested, none = (place.ids[name] for name in ("flat", "nested", "failing"))

    items = place.rune.json("items", flat)["items"]
    assert [each["item"] for each in items] == ["each:0", "each:1"]
    assert place.rune.json("items", flat, "--split", "each")["items"] == items
    assert place.rune.json("items", flat, "--counts")["items"] == 2
    several = place.rune("items", nested)
    assert several.exit_code == 2
    assert "2 splits: users, orders" in several.stderr
    assert f"rune items {nested} users" in several.stderr
    assert place.rune.json("items", none, code=2)["problems"][0]["code"] == "WHICH_SPLIT"
    assert place.rune("items", flat, "each", "--split", "other").exit_code == 2


def test_value_prints_parts_and_finds_text(place: Place) -> None:
    id = place.ids["approval"]

    whole = place.rune.json("value", id, "--input")
    part = place.rune.output("value", place.ids["nested"], "--input", "--pointer", "/users/0/2")
    listed = place.rune.output("value", place.ids["nested"], "--input", "--pointer", "/users", "--limit", "1")
    output = place.rune.json("value", place.ids["nested"], "--node", "sum", "--item", "users:1")
    found = place.rune.json("value", id, "--input", "--find", "7")

    assert [(each["key"], each["value"]) for each in whole["entries"]] == [("n", 7)]
    assert part == "2\n"
    assert "--offset 1" in listed
    assert (output["type"], len(output["entries"])) == ("array", 1)
    assert [each["pointer"] for each in found["matches"]] == ["/n"]
    assert place.rune("value", id, "--input", "--pointer", "/absent").exit_code == 2


def test_waiting_lists_signals_with_their_titles(place: Place) -> None:
    waiting = place.rune.json("waiting", "--workflow", "approval")["waiting"]

    assert [(each["execution_id"], each["node_id"], each["signal"]) for each in waiting] == [
        (place.ids["approval"], "gate", "decision")
    ]
    assert waiting[0]["title"] == "Pay 7 euros?"
    assert "Pay 7 euros?" in place.rune.output("waiting")
    assert place.rune.output("waiting", "--workflow", "nested") == "nothing waits for a signal\n"


def test_stats_count_by_status_and_workflow(place: Place) -> None:
    groups = place.rune.json("stats", "--by", "workflow", "--since", "2h")["groups"]
    text = place.rune.output("stats", "--workflow", "nested")

    assert {each["workflow"]: (each["total"], each["open"]) for each in groups} == {
        "approval": (0, 1),
        "failing": (1, 0),
        "flat": (1, 0),
        "nested": (2, 0),
    }
    assert "newest" in text
    assert "took    median " in text


def test_settings_name_their_source(place: Place) -> None:
    found = {each["name"]: each for each in place.rune.json("settings")["settings"]}

    assert found["home"]["source"] == "environment"
    assert found["slots"]["source"] == "default"
    assert "RUNE_SLOTS" in place.rune.output("settings")
    assert "RUNE_SLOTS" not in place.rune.output("settings", "--changed")


def test_schedule_preview_prints_times_or_what_is_wrong(place: Place) -> None:
    times = place.rune.json("triggers", "preview", "30 9 * * 1", "--timezone", "Europe/Berlin")["ticks"]

    assert len(times) == 5
    assert len({each[11:] for each in times}) <= 2, "the time of day changes only with summer time"
    assert len(place.rune.output("triggers", "preview", "--every", "90m", "--count", "3").splitlines()) == 3
    wrong = place.rune("triggers", "preview", "61 * * * *")
    assert wrong.exit_code == 2
    assert "61 * * * *" in wrong.stderr


def test_compare_names_what_differs(place: Place) -> None:
    before, after = place.ids["nested"], place.ids["other"]

    found = place.rune.json("compare", before, after, "--runs", code=1)
    text = place.rune.output("compare", before, after, code=1)
    same = place.rune.json("compare", before, before)

    assert (found["same_input"], found["same_definition"]) == (False, True)
    assert found["differing"] == len(found["runs"]) > 0
    assert "price" in {each["node_id"] for each in found["groups"]}
    assert "input       differs" in text
    assert same["differing"] == 0
    assert place.rune("compare", before, "nothing").exit_code == 2


def test_bulk_acts_on_a_filter_and_reports_refusals(place: Place) -> None:
    rune, waiting = place.rune, place.ids["approval"]

    preview = rune.json("bulk", "start", "pause", "--workflow", "approval", "--dry-run")
    paused = rune.json("bulk", "start", "pause", "--workflow", "approval")
    status = rune.json("explain", waiting)["status"]
    refused = rune.json("bulk", "start", "resume", waiting, place.ids["nested"], code=1)

    assert (preview["total"], preview["eligible"], preview["by_status"]) == (1, 1, {"running": 1})
    assert (paused["status"], paused["done"]) == ("completed", 1)
    assert status == "paused"
    assert (refused["done"], refused["refused"]) == (1, 1)
    assert [each["execution_id"] for each in refused["outcomes"]] == [place.ids["nested"]]
    assert rune.json("explain", waiting)["status"] == "running"
    assert [each["id"] for each in rune.json("bulk", "list")["jobs"]][:2] == [refused["id"], paused["id"]]
    assert place.ids["nested"] in rune.output("bulk", "show", refused["id"], "--outcome", "refused")
    assert rune.json("bulk", "abort", paused["id"])["status"] == "completed"


def test_bulk_retry_starts_new_executions(place: Place) -> None:
    job = place.rune.json("bulk", "start", "retry", "--code", "NO_LUCK", "--since", "1h", "--limit", "1")
    shown = place.rune.json("bulk", "show", job["id"])

    started = shown["outcomes"][0]["started"]
    assert (
        place.rune.json("list", "--retry-of", shown["outcomes"][0]["execution_id"])["executions"][0][
            "execution_id"
        ]
        == started
    )


def test_bulk_without_filter_is_rejected(place: Place) -> None:
    refused = place.rune("bulk", "start", "cancel")

    assert refused.exit_code == 2
    assert "would select every execution" in refused.stderr
    assert place.rune("bulk", "show", "nothing").exit_code == 2


def test_views_of_an_empty_home(tmp_path: pathlib.Path) -> None:
    rune = InProcessCli(tmp_path)

    assert rune.json("waiting") == {"waiting": []}
    assert rune.json("bulk", "list") == {"jobs": []}
    assert rune.output("stats") == "no executions\n"
    assert rune("show", "x1", "--graph").exit_code == 2
    assert not (tmp_path / "rune.db").exists()
