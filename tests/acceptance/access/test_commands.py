"""`rune keys`, `rune audit-log` and `rune credentials grant`, on a local file and against a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.support.api_clients import BOOTSTRAP
from tests.support.api_server import HELLO, RunningServer, run
from tests.support.in_process_cli import InProcessCli


def test_keys_commands_on_local_file(tmp_path: Path) -> None:
    rune = InProcessCli(tmp_path)
    assert rune.output("keys", "list") == "no keys\n"
    made = rune.json("keys", "create", "ada", "--role", "runner", "--workflow", "imp-*", "--days", "2")
    assert made["key"].startswith(f"rune_{made['id']}_")
    shown = rune("keys", "create", "bob", "--role", "viewer")
    assert len(shown.stdout.split()) == 1
    assert "not shown again" in shown.stderr
    listed = rune.json("keys", "list")["keys"]
    assert [(each["name"], each["role"], each["workflows"]) for each in listed] == [
        ("ada", "runner", ["imp-*"]),
        ("bob", "viewer", []),
    ]
    assert made["key"].rpartition("_")[2] not in rune.output("keys", "list")
    assert rune.output("keys", "revoke", made["id"]) == f"revoked {made['id']}\n"
    assert "revoked" in rune.output("keys", "list")
    assert rune("keys", "revoke", "k0000000000000000").exit_code == 2
    assert rune("keys", "create", "cyd", "--role", "admin", "--workflow", "x").exit_code == 2
    log = rune.json("audit-log", "--action", "key")["entries"]
    assert {each["actor"] for each in log} == {"local"}
    assert [(each["action"], each["outcome"]) for each in log][::-1] == [
        ("key.create", "asked"),
        ("key.create", "asked"),
        ("key.revoke", "asked"),
        ("key.revoke", "asked"),
        ("key.revoke", "UNKNOWN_KEY"),
        ("key.create", "asked"),
        ("key.create", "BAD_KEY"),
    ]


def test_credential_grant_commands_on_local_file(tmp_path: Path) -> None:
    rune = InProcessCli(tmp_path)
    rune("credentials", "add", "shop", "--type", "bearer", "--host", "a.example", stdin="secret-token\n")
    assert rune.output("credentials", "grant", "shop", "queue") == "shop is granted to local, queue\n"
    assert rune.json("credentials", "withdraw", "shop", "local")["granted"] == ["queue"]
    assert rune.json("credentials", "show", "shop")["granted"] == ["queue"]
    assert "granted to no one" in rune.output("credentials", "withdraw", "shop", "queue")
    assert rune("credentials", "grant", "shop", "somebody").exit_code == 2
    assert rune("credentials", "grant", "other", "queue").exit_code == 2
    assert "secret-token" not in rune.output("audit-log")
    assert rune.output("audit-log", "--of", "nothing") == "no entries\n"


def test_keys_and_log_commands_against_server(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        await asyncio.to_thread(run_commands, server.url)

    def run_commands(url: str) -> None:
        rune = InProcessCli(tmp_path / "elsewhere", RUNE_URL=url, RUNE_API_KEY=BOOTSTRAP)
        made = rune.json("keys", "create", "ada", "--role", "viewer")
        assert [each["id"] for each in rune.json("keys", "list")["keys"]] == [made["id"]]
        looks = InProcessCli(tmp_path / "elsewhere", RUNE_URL=url, RUNE_API_KEY=made["key"])
        assert "hello" in looks.output("workflows", "list")
        assert looks("keys", "list").exit_code == 2
        rune.output("keys", "revoke", made["id"])
        assert looks("workflows", "list").exit_code == 2
        done = [(each["action"], each["outcome"]) for each in rune.json("audit-log")["entries"]]
        changes = [
            ("key.revoke", "asked"),
            ("key.create", "asked"),
            ("workflow.deploy", "done"),
            ("workflow.deploy", "asked"),
        ]
        assert [each for each in done if each[0] != "access.refused"] == changes
        assert {outcome for action, outcome in done if action == "access.refused"} == {
            "FORBIDDEN",
            "UNAUTHORIZED",
        }
        lines = rune.output("audit-log", "--after", "0", "--lines").splitlines()
        exported = [json.loads(each) for each in lines]
        assert [each["number"] for each in exported] == list(range(1, len(done) + 1))
        assert {each["address"] for each in exported} == {"127.0.0.1"}

    run(tmp_path, work, key=BOOTSTRAP)


def test_keys_limit_command_is_forwarded_to_owner(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        made = await server.client.create_key("ada", "runner")
        rune = InProcessCli(tmp_path)
        output = await asyncio.to_thread(rune.output, "keys", "limit", made.id, "--running", "3")
        assert output == f"{made.id}: running 3\n"
        assert [each.limits.running for each in await server.client.keys()] == [3]
        (entry,) = [each async for each in server.client.log(action="key.limit")]
        assert (entry.actor, entry.target, entry.details) == ("local", made.id, {"limits": "running 3"})

    run(tmp_path, work, key=BOOTSTRAP)
