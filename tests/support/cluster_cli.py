"""Commands over the stores of a cluster, and workflows for them."""

from __future__ import annotations

import pathlib
from typing import Any

from rune.settings import Settings
from tests.support.cli_process import until
from tests.support.documents import document, edit, node
from tests.support.in_process_cli import InProcessCli
from tests.support.services.fleet import Fleet

GATED = document(
    [
        node("start", "input"),
        edit("first", 1),
        node("gate", "wait", parameters={"resume": "signal", "name": "go"}),
        node("out", "output", parameters={"value": "{{ [$trigger.n, $gate] }}"}),
    ],
    "start>first",
    "first>gate",
    "gate>out",
)
HALTS = document(
    [node("start", "input"), edit("first", 1), node("bad", "fail", parameters={"message": "no luck"})],
    "start>first",
    "first>bad",
)


def with_id(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """Copy a document under another id, so that tests do not share it."""
    return {**raw, "id": name}


def command_line(fleet: Fleet) -> InProcessCli:
    """Return the command line, run in this process, with the settings of a fleet."""
    given = {name: value for name, value in fleet.environment.items() if name.startswith("RUNE_")}
    return InProcessCli(pathlib.Path(given.pop("RUNE_HOME")), **given)


def store_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of processes over the stores of a cluster."""
    return {
        "RUNE_JOURNAL": settings.journal,
        "RUNE_STATE": settings.state,
        "RUNE_QUEUE": settings.queue,
        "RUNE_PREFIX": settings.prefix,
    }


def command_line_for(settings: Settings, **environment: str) -> InProcessCli:
    """Return the command line, run in this process, over stores that a test has opened itself."""
    return InProcessCli(pathlib.Path(settings.home), **store_environment(settings), **environment)


def until_waiting(rune: InProcessCli, execution: str) -> None:
    """Wait until an execution waits for its signal."""
    until(
        lambda: (
            any("signal" in each["reason"] for each in rune.json("explain", execution)["waiting"]) or None
        ),
        f"{execution} waits",
    )


def until_ended(rune: InProcessCli, execution: str) -> dict[str, Any]:
    """Wait until an execution has ended and return its document."""

    def ended() -> dict[str, Any] | None:
        shown: dict[str, Any] = rune.json("show", execution)
        return shown if shown["completed_at"] is not None else None

    return until(ended, f"{execution} has ended")
