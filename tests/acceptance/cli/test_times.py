"""One format of times: in the local time zone wherever a command prints text, ISO 8601 in UTC in JSON."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rune.cli.main import COMMANDS
from tests.support.cli_process import until
from tests.support.documents import node
from tests.support.in_process_cli import InProcessCli
from tests.support.up_process import UpProcess

WORKFLOW: dict[str, Any] = {
    "id": "timed",
    "nodes": [
        node("start", "input"),
        node("tick", "schedule", parameters={"amount": 7, "unit": "days"}),
        node("each", "split", parameters={"input_array": "{{ [1, 2] }}"}),
        node("say", "log", parameters={"message": "{{ $item }}"}),
        node("all", "aggregator"),
        node("ask", "wait", parameters={"resume": "signal", "name": "go", "amount": 3, "unit": "days"}),
    ],
    "edges": [
        {"src": "start", "dst": "each"},
        {"src": "tick", "dst": "each"},
        {"src": "each", "dst": "say"},
        {"src": "say", "dst": "all"},
        {"src": "all", "dst": "ask"},
    ],
}
ENDING: dict[str, Any] = {"id": "ending", "nodes": [node("start", "input")], "edges": []}

TIMED: dict[str, list[tuple[str, ...]]] = {
    "list": [()],
    "show": [("WAITS",), ("WAITS", "--node", "ask"), ("WAITS", "--graph"), ("ENDED",)],
    "watch": [("ENDED",)],
    "items": [("WAITS",), ("WAITS", "--counts")],
    "waiting": [()],
    "stats": [(), ("--workflow", "timed")],
    "explain": [("WAITS",), ("ENDED",)],
    "logs": [("WAITS",)],
    "dlq": [("list",)],
    "workflows": [(), ("show", "timed")],
    "triggers": [("list",), ("show", "timed")],
    "credentials": [("list",), ("show", "door")],
    "keys": [("list",)],
    "audit-log": [()],
    "bulk": [("list",)],
    "handlers": [(), ("--failed",)],
    "value": [("ENDED",)],
    "compare": [("ENDED", "ENDED")],
}
"""Calls of the commands that read what has a time."""

WITHOUT_TIMES = {
    "up", "run", "start", "serve", "verify", "signal", "cancel", "pause", "resume", "retry", "rerun", "deploy",
    "check", "test", "record", "import", "graph", "convert", "stubs", "nodes", "schema", "prune", "backup",
    "restore", "migrate", "topology", "settings", "doctor", "bench",
    "workers",  # it prints how long ago, not when
}  # fmt: skip
"""Commands whose text has no time of the store; what `run` prints is what `show` prints."""

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
LOCAL = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?![\d.,+Z])")
DATE = re.compile(r"(?<!\d)20\d\d-\d\d-\d\d")
EPOCH = re.compile(r"(?<![\w-])1[0-9]{12}(?!\w)")
EXACT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(scope="module")
def rune(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[InProcessCli, dict[str, str]]]:
    home = tmp_path_factory.mktemp("home")
    up = UpProcess(home)
    up.start("--no-examples")
    rune = InProcessCli(home)
    for document in (WORKFLOW, ENDING):
        path = home / f"{document['id']}.json"
        path.write_text(json.dumps(document))
        rune.json("deploy", str(path))
    made = rune("credentials", "add", "door", "--type", "bearer", "--host", "*", stdin="s3cret-value")
    assert made.exit_code == 0, made.output
    assert rune("keys", "create", "ci", "--role", "viewer", "--days", "7").exit_code == 0
    waits = rune.json("start", "timed")["execution_id"]
    ended = rune.json("start", "ending", "--wait")["execution_id"]
    rune.json("bulk", "start", "retry", "--workflow", "ending", code=1)
    until(lambda: "ask" in rune.output("waiting") or None, "it waits")
    yield rune, {"WAITS": waits, "ENDED": ended}
    up.stop()


def calls() -> list[tuple[str, ...]]:
    return [(command, *given) for command, given_calls in TIMED.items() for given in given_calls]


def test_every_command_is_checked_or_prints_no_time() -> None:
    assert set(COMMANDS) == TIMED.keys() | WITHOUT_TIMES
    assert not TIMED.keys() & WITHOUT_TIMES


@pytest.mark.parametrize("call", calls(), ids=" ".join)
def test_text_has_times_in_one_format(
    rune: tuple[InProcessCli, dict[str, str]], call: tuple[str, ...]
) -> None:
    command, ids = rune

    text = command.output(*(ids.get(each, each) for each in call))

    assert not ISO.search(text), text
    assert not EPOCH.search(text), text
    assert len(DATE.findall(text)) == len(LOCAL.findall(text)), text


SHOWING = (
    "list",
    "show WAITS --node ask",
    "watch ENDED",
    "waiting",
    "logs WAITS",
    "workflows",
    "workflows show timed",
    "triggers list",
    "triggers show timed",
    "credentials list",
    "credentials show door",
    "keys list",
    "audit-log",
    "bulk list",
)


@pytest.mark.parametrize("call", SHOWING)
def test_command_that_lists_events_prints_their_time(
    rune: tuple[InProcessCli, dict[str, str]], call: str
) -> None:
    command, ids = rune

    assert LOCAL.search(command.output(*(ids.get(each, each) for each in call.split())))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("call", calls(), ids=" ".join)
def test_json_has_times_in_utc_with_milliseconds(
    rune: tuple[InProcessCli, dict[str, str]], call: tuple[str, ...]
) -> None:
    command, ids = rune

    done = command(*(ids.get(each, each) for each in call), "--json")

    assert done.exit_code == 0, done.output
    for line in done.stdout.splitlines() if call[0] in {"watch", "logs"} else [done.stdout]:
        for text in strings(json.loads(line)):
            assert not ISO.match(text) or EXACT.fullmatch(text), text


def test_time_is_that_of_the_local_zone(
    rune: tuple[InProcessCli, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, _ = rune
    shown: list[str] = []
    for zone in ("UTC", "Pacific/Auckland"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        found = LOCAL.search(command.output("waiting"))
        assert found is not None
        shown.append(found[0])
    monkeypatch.undo()
    time.tzset()

    assert shown[0] != shown[1]
