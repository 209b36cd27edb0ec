"""Starts runs that wait for a signal, and inspects and resumes them."""

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
from tests.support import cluster_cli
from tests.support.cli_process import TIMEOUT_S, Rune, until

GATED = cluster_cli.with_id(cluster_cli.GATED, "gated")


@contextmanager
def gated_run(rune: Rune, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start `rune run` and wait until its execution waits for its signal."""
    path = rune.home.parent / "gated.json"
    with rune.begin("run", str(path), "--id", name, "--input", '{"n": 7}', *options) as process:
        try:
            until(lambda: waits_for_signal(rune, name), f"{name} waits")
            yield process
        finally:
            process.kill()


def settings_of(rune: Rune) -> Settings:
    """Settings for reading the file from this process, which is faster than a command."""
    return Settings(home=str(rune.home))


def waits_for_signal(rune: Rune, name: str, number: int = 1) -> bool | None:
    """True if this number of tokens of an execution wait for a signal, else None."""

    async def count() -> int:
        async with open_reader(settings_of(rune)) as opened:
            if await opened.execution(name) is None:
                return 0
            plan, state = await opened.state(name, 0)
            return sum("signal" in each.reason for each in explain(plan, state))

    try:
        return asyncio.run(count()) == number or None
    except StoreUnavailableError:  # the file does not exist yet, or is empty
        return None


def owner_pid(rune: Rune) -> int | None:
    return bootstrap.owner_pid(settings_of(rune))


def send_go(rune: Rune, name: str) -> None:
    result = rune.json("signal", name, "go", "--value", '"went"')
    assert result["resumed"]


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a run to complete and return the document that it prints."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + err
    result: dict[str, Any] = json.loads(out)
    assert result["status"] == "completed"
    return result
