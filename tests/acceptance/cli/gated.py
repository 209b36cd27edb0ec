"""Runs that wait for a signal, seen from outside."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rune import bootstrap
from rune.bootstrap import open_reader
from rune.core.execution.explain import explain
from rune.ports.journal import StoreUnavailableError
from rune.settings import Settings
from tests.acceptance.cli.process import PATIENCE, Rune, until
from tests.integration.cluster import commands

GATED = commands.named(commands.GATED, "gated")


@contextmanager
def begun(rune: Rune, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A `rune run` whose execution has begun to wait for its signal."""
    path = rune.home.parent / "gated.json"
    with rune.begin("run", str(path), "--id", name, "--input", '{"n": 7}', *options) as process:
        try:
            until(lambda: waits(rune, name), f"{name} waits")
            yield process
        finally:
            process.kill()


def looked(rune: Rune) -> Settings:
    """For looking at the file from here: a process a look would be most of the load."""
    return Settings(home=str(rune.home))


def waits(rune: Rune, name: str, number: int = 1) -> bool | None:
    """Whether so many tokens of an execution wait for a signal."""

    async def look() -> int:
        async with open_reader(looked(rune)) as opened:
            if await opened.execution(name) is None:
                return 0
            plan, state = await opened.state(name, 0)
            return sum("signal" in each.reason for each in explain(plan, state))

    try:
        return asyncio.run(look()) == number or None
    except StoreUnavailableError:  # the file is not there yet, or empty
        return None


def owner(rune: Rune) -> int | None:
    return bootstrap.owner_pid(looked(rune))


def go(rune: Rune, name: str) -> None:
    told = rune.json("signal", name, "go", "--value", '"went"')
    assert told["resumed"]


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The document that a run printed."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    told: dict[str, Any] = json.loads(out)
    assert told["status"] == "completed"
    return told
