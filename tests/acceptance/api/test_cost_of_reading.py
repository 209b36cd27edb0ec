"""What it costs to read executions whose values double with each of 30 joins, in every way there is.

Each reader runs in a process of its own with limits on memory and CPU time. The rows follow from the OpenAPI document
and from the commands: one without a row is an error.
"""

from __future__ import annotations

import asyncio
import pathlib
import resource
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
import typer

from rune.cli.main import app
from rune.core.limits import LIMITS
from rune.server.app import document
from tests.support.documents import Raw
from tests.support.limited_reads import MAX_ADDRESS_MB, LimitedReads, Read
from tests.support.loop_meter import MeteredServer
from tests.support.shapes import diamonds, done
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

JOINS = 30
MAX_SHOWN_BYTES = 2_000_000
"""Of answers that do not have a whole value: values of up to 64 KiB are in them."""

WRITES = {"signal", "cancel", "pause", "resume", "retry", "rerun", "bulk start"}
"""Commands that change the execution they name."""

KINDS: dict[str, Raw] = {
    "append": {"type": "merge", "parameters": {"mode": "append"}},
    "edit": {"type": "edit", "parameters": {"assignments": [{"name": "k", "value": 1}]}},
    "noop": {"type": "noop"},
}


class Doubled(NamedTuple):
    """An execution of 30 diamonds, the last node that has an output, and another execution to compare it with."""

    id: str
    last: str
    other: str


def workflow(kind: str) -> Raw:
    """A chain of diamonds whose joins copy what arrives, or pass it on."""
    found = diamonds(JOINS, done())
    joins = [each for each in found["nodes"] if each["id"].startswith("n") and each["id"] != "n0"]
    for each in joins:
        each.update(KINDS[kind])
    return found | {"id": kind}


class Prepared(NamedTuple):
    home: pathlib.Path
    server: MeteredServer
    executions: dict[str, Doubled]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    home = tmp_path_factory.mktemp("doubled")
    with MeteredServer(home) as server:
        ended = {kind: asyncio.run(run(server, kind)) for kind in KINDS}
        # The server reads for the commands that name it.
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (MAX_ADDRESS_MB << 20,) * 2)
        others = {"append": "edit", "edit": "noop", "noop": "append"}
        yield Prepared(home, server, {kind: Doubled(*ended[kind], ended[others[kind]][0]) for kind in KINDS})


async def run(server: MeteredServer, kind: str) -> tuple[str, str]:
    """Run a workflow until the limit ends it; return its id, and the last node that has an output."""
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1", timeout=120, trust_env=False) as http:
        assert (await http.put(f"/workflows/{kind}", json=workflow(kind))).is_success
        started = await http.post(f"/workflows/{kind}/executions?wait=60", json={"input": {}})
        execution = started.json()["execution"]
        assert (execution["status"], execution["error"]["code"]) == ("halted", "LIMIT_EXCEEDED"), execution
        runs = (
            await http.get(f"/executions/{execution['execution_id']}/nodes?status=success&limit=1000")
        ).json()
        joins = [int(each["node_id"][1:]) for each in runs["nodes"] if each["node_id"].startswith("n")]
        return execution["execution_id"], f"n{max(joins)}"


def reading_routes() -> dict[str, list[dict[str, Any]]]:
    """The parameters of the routes that read one execution, by path."""
    return {
        path: operations["get"].get("parameters", [])
        for path, operations in document()["paths"].items()
        if "{execution}" in path and "get" in operations
    }


QUERIES = {
    "pointer": [""],
    "depth": ["3"],
    "find": ["nowhere"],
    "limit": ["1000"],
    "at": ["5"],
    "by": ["status"],
    "lineage": ["/"],
}


def requests(each: Doubled) -> dict[str, str]:
    """The paths to ask for, by the path of their route and query."""
    places = {
        "execution": each.id,
        "other": each.other,
        "attempt": "1",
        "key": f"{each.last}@/",
    }
    found: dict[str, str] = {}
    for route, parameters in reading_routes().items():
        passed = ("a5",) if route.endswith(("{node}/output", "{node}/input")) else ()
        for node in (each.last, *passed) if "{node}" in route else ("",):
            path = route.format_map({**places, "node": node})
            shown = f"{route} {node}".strip()
            found[shown] = path
            for name in (each["name"] for each in parameters if each["in"] == "query"):
                for value in QUERIES.get(name, ()):
                    found[f"{shown} {name}"] = f"{path}?{name}={value}"
    return found


def is_whole(name: str) -> bool:
    """Whether a reader is asked for a whole value."""
    route = name.partition(" ")[0]
    parts = {"pointer", "depth", "find", "limit"}
    return ("/blobs/" in route or route.endswith(("/output", "/input"))) and not parts & set(name.split(" "))


COMMANDS: dict[str, list[list[str]]] = {
    "show": [
        ["show", "{id}"],
        ["show", "{id}", "--json"],
        ["show", "{id}", "--node", "{last}"],
        ["show", "{id}", "--node", "{last}", "--json"],
        ["show", "{id}", "--graph"],
    ],
    "watch": [["watch", "{id}"], ["watch", "{id}", "--json"]],
    "items": [["items", "{id}", "{last}"]],
    "value": [
        ["value", "{id}"],
        ["value", "{id}", "--input"],
        ["value", "{id}", "--node", "{last}"],
        ["value", "{id}", "--node", "{last}", "--find", "nowhere"],
        ["value", "{id}", "--node", "{last}", "--depth", "3", "--json"],
    ],
    "compare": [["compare", "{id}", "{other}"], ["compare", "{id}", "{id}", "--runs"]],
    "explain": [["explain", "{id}"]],
    "logs": [["logs", "{id}"]],
    "verify": [["verify", "{id}"]],
    "record": [["record", "{id}"]],
}


def reading_commands() -> set[str]:
    """The commands that name an execution and do not change it."""
    found: set[str] = set()

    def collect(command: Any, name: str) -> None:
        for child, each in getattr(command, "commands", {}).items():
            collect(each, f"{name} {child}".strip())
        named = [each.name for each in command.params if each.param_type_name == "argument"]
        if (
            any(each in ("execution", "executions", "ids", "before") for each in named)
            and "workflow" not in named
        ):
            found.add(name)

    collect(typer.main.get_command(app), "")
    return found - WRITES


def problem(name: str, read: Read, *, whole: bool = False) -> str:
    """Return what is wrong with how a reader ended; empty if nothing is."""
    if read.status >= 500 or read.status == 70 or read.status < 0:
        return f"{name}: ended with {read.status}: {read.text[-400:]}"
    limit = LIMITS.output_bytes if whole else MAX_SHOWN_BYTES
    return f"{name}: {read.size:,} bytes" if read.size > limit else ""


@pytest.mark.parametrize("kind", KINDS if WHOLE else ["append"])
def test_every_route_reads_doubled_values_within_the_limits(
    prepared: Prepared, tmp_path: pathlib.Path, kind: str
) -> None:
    each = prepared.executions[kind]
    reads = LimitedReads(tmp_path, prepared.home)
    found = [
        problem(name, reads.request("GET", path), whole=is_whole(name))
        for name, path in requests(each).items()
    ]
    for text in (
        "{{ $json }}",
        "{{ len($json) }}",
        f"{{{{ json(${each.last}) }}}}",
        f"{{{{ ${each.last} }}}}",
    ):
        body = {"text": text, "execution": each.id, "node": each.last}
        found.append(problem(text, reads.request("POST", "/api/v1/expressions/preview", body)))

    assert [line for line in found if line] == []


@pytest.mark.parametrize(
    ("kind", "over"),
    [(kind, over) for kind in KINDS for over in ("file", "server")]
    if WHOLE
    else [("edit", "file"), ("noop", "server")],
)
def test_every_command_reads_doubled_values_within_the_limits(
    prepared: Prepared, tmp_path: pathlib.Path, kind: str, over: str
) -> None:
    each = prepared.executions[kind]
    url = {"RUNE_URL": prepared.server.url} if over == "server" else {}
    reads = LimitedReads(tmp_path, prepared.home, **url)
    rows = [arguments for name in COMMANDS for arguments in COMMANDS[name]]
    found = [
        problem(" ".join(row), reads.command(*(part.format_map(each._asdict()) for part in row)))
        for row in rows
    ]

    assert [line for line in found if line] == []
    assert prepared.server.process.poll() is None


def test_every_command_that_reads_an_execution_has_rows() -> None:
    assert reading_commands() == COMMANDS.keys()


def test_values_that_are_not_shown_name_the_limit_or_where_they_are(
    prepared: Prepared, tmp_path: pathlib.Path
) -> None:
    each = prepared.executions["append"]
    reads = LimitedReads(tmp_path, prepared.home)

    shown = reads.request("GET", f"/api/v1/executions/{each.id}/nodes/{each.last}/input").text
    assert '"payload":{"$ref":' in shown
    previewed = reads.request(
        "POST",
        "/api/v1/expressions/preview",
        {"text": "{{ $json }}", "execution": each.id, "node": each.last},
    ).text
    assert "bytes of the values that are read: at most 16,777,216 allowed" in previewed
