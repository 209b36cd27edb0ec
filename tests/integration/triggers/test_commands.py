"""`rune triggers` on a local file and on a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import running_server
from tests.support.in_process_cli import InProcessCli
from tests.support.trigger_workflows import schedule_workflow, webhook_workflow


def _deploy(rune: InProcessCli, folder: Path, *documents: dict[str, object]) -> None:
    for each in documents:
        file = folder / f"{each['id']}.json"
        file.write_text(json.dumps(each))
        rune.output("deploy", str(file))


def _check_commands(rune: InProcessCli, folder: Path) -> None:
    """Check the same commands on any backend."""
    assert rune.json("triggers", "list") == {"triggers": []}
    _deploy(
        rune,
        folder,
        webhook_workflow(auth="hmac"),
        schedule_workflow(cron="30 9 * * 1", timezone="Europe/Berlin"),
    )
    listed = rune.output("triggers", "list")
    assert "orders/in" in listed
    assert "needs a secret" in listed
    assert "30 9 * * 1 (Europe/Berlin)" in listed
    found = rune.json("triggers", "show", "orders")
    assert found["webhook"]["secret"] == "missing"
    assert rune.json("triggers", "show", found["id"]) == found
    secret = rune.output("triggers", "rotate", "orders/in", "--secret").strip()
    assert len(secret) >= 40
    shown = rune.output("triggers", "show", "orders")
    assert "hmac, secret made" in shown
    assert secret not in shown
    moved = rune.json("triggers", "rotate", "orders")
    assert moved["new_secret"] is None
    assert moved["webhook"]["path"] != found["webhook"]["path"]
    clock = rune.json("triggers", "show", "report")
    assert len(clock["coming"]) == 5
    assert clock["coming"][0] == clock["schedule"]["next_at"]
    assert rune.output("triggers", "disable", "report").strip() == "report/clock is off"
    assert rune.json("triggers", "show", "report")["schedule"]["next_at"] is None
    assert rune.json("triggers", "enable", "report")["enabled"]
    assert "no trigger `unknown`" in rune("triggers", "show", "unknown").output
    assert rune("triggers", "rotate", "report").exit_code == 2
    rune.output("workflows", "remove", "orders")
    assert [each["workflow_id"] for each in rune.json("triggers", "list")["triggers"]] == ["report"]


def test_trigger_commands_on_local_file(tmp_path: Path) -> None:
    _check_commands(InProcessCli(tmp_path / "home"), tmp_path)


def test_trigger_commands_on_server(tmp_path: Path) -> None:
    async def go() -> None:
        async with running_server(tmp_path / "home") as server:
            rune = InProcessCli(tmp_path / "elsewhere", RUNE_URL=server.url)
            await asyncio.to_thread(_check_commands, rune, tmp_path)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"cron": "0 0 * *"}, "five fields"),
        ({"amount": 1, "overlap": "sometimes"}, "overlap"),
        ({"amount": 1, "catch_up": "some"}, "catch_up"),
        ({"amount": 1, "catch_up_limit": 1_000}, "catch_up_limit"),
    ],
)
def test_invalid_schedule_is_rejected(parameters: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(schedule_workflow(**parameters)))
    done = InProcessCli(tmp_path / "home")("deploy", str(file))
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"path": "a/b"}, "path"), ({"path": ""}, "path"), ({"delivery_header": "a b"}, "delivery_header")],
)
def test_invalid_webhook_is_rejected(parameters: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text(json.dumps(webhook_workflow(**parameters)))
    done = InProcessCli(tmp_path / "home")("deploy", str(file))
    assert done.exit_code == 2
    assert message in done.output
