"""The command line over the stores of a fleet."""

from __future__ import annotations

import pathlib
from typing import Any

from tests.acceptance.cli.here import Here
from tests.acceptance.cli.process import until
from tests.support.services.fleet import Fleet
from tests.unit.core.documents import document, keep, node

GATED = document(
    [
        node("start", "input"),
        keep("first", 1),
        node("gate", "wait", parameters={"resume": "signal", "name": "go"}),
        node("out", "output", parameters={"value": "{{ [$trigger.n, $gate] }}"}),
    ],
    "start>first",
    "first>gate",
    "gate>out",
)
HALTS = document(
    [node("start", "input"), keep("first", 1), node("bad", "fail", parameters={"message": "no luck"})],
    "start>first",
    "first>bad",
)


def named(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """The same document for one test alone."""
    return {**raw, "id": name}


def here(fleet: Fleet) -> Here:
    """Commands of this process."""
    given = {name: value for name, value in fleet.environment.items() if name.startswith("RUNE_")}
    return Here(pathlib.Path(given.pop("RUNE_HOME")), **given)


def waits(rune: Here, execution: str) -> None:
    """Until it waits for its signal."""
    until(
        lambda: (
            any("signal" in each["reason"] for each in rune.json("explain", execution)["waiting"]) or None
        ),
        f"{execution} waits",
    )


def ended(rune: Here, execution: str) -> dict[str, Any]:
    """What became of it, once it has ended."""

    def look() -> dict[str, Any] | None:
        told: dict[str, Any] = rune.json("show", execution)
        return told if told["completed_at"] is not None else None

    return until(look, f"{execution} has ended")
