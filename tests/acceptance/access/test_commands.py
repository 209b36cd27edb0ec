"""`rune keys`, `rune log` and `rune credentials grant`, on a local file and against a server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.api_clients import BOOTSTRAP
from tests.support.api_server import HELLO, Served, run
from tests.support.in_process_cli import Here


def test_keys_commands_on_local_file(tmp_path: Path) -> None:
    rune = Here(tmp_path)
    assert rune.said("keys", "list") == "no keys\n"
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
    assert made["key"].rpartition("_")[2] not in rune.said("keys", "list")
    assert rune.said("keys", "revoke", made["id"]) == f"revoked {made['id']}\n"
    assert "revoked" in rune.said("keys", "list")
    assert rune("keys", "revoke", "k0000000000000000").exit_code == 2
    assert rune("keys", "create", "cyd", "--role", "admin", "--workflow", "x").exit_code == 2
    log = rune.json("log", "--action", "key")["entries"]
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
    rune = Here(tmp_path)
    rune("credentials", "add", "shop", "--type", "bearer", stdin="secret-token\n")
    assert rune.said("credentials", "grant", "shop", "queue") == "shop is granted to everyone, queue\n"
    assert rune.json("credentials", "withdraw", "shop", "everyone")["granted"] == ["queue"]
    assert rune.json("credentials", "show", "shop")["granted"] == ["queue"]
    assert "granted to no one" in rune.said("credentials", "withdraw", "shop", "queue")
    assert rune("credentials", "grant", "shop", "somebody").exit_code == 2
    assert rune("credentials", "grant", "other", "queue").exit_code == 2
    assert "secret-token" not in rune.said("log")
    assert rune.said("log", "--of", "nothing") == "no entries\n"


def test_keys_and_log_commands_against_server(tmp_path: Path) -> None:
    async def work(server: Served) -> None:
        await server.deploy(HELLO)
        await asyncio.to_thread(asked, server.url)

    def asked(url: str) -> None:
        rune = Here(tmp_path / "elsewhere", RUNE_URL=url, RUNE_API_KEY=BOOTSTRAP)
        made = rune.json("keys", "create", "ada", "--role", "viewer")
        assert [each["id"] for each in rune.json("keys", "list")["keys"]] == [made["id"]]
        looks = Here(tmp_path / "elsewhere", RUNE_URL=url, RUNE_API_KEY=made["key"])
        assert "hello" in looks.said("workflows", "list")
        assert looks("keys", "list").exit_code == 2
        rune.said("keys", "revoke", made["id"])
        assert looks("workflows", "list").exit_code == 2
        done = [each["action"] for each in rune.json("log", "--limit", "3")["entries"]]
        assert done == ["key.revoke", "key.create", "workflow.deploy"]

    run(tmp_path, work, key=BOOTSTRAP)


def test_keys_limit_command_is_forwarded_to_owner(tmp_path: Path) -> None:
    async def work(server: Served) -> None:
        made = await server.client.create_key("ada", "runner")
        rune = Here(tmp_path)
        said = await asyncio.to_thread(rune.said, "keys", "limit", made.id, "--running", "3")
        assert said == f"{made.id}: running 3\n"
        assert [each.limits.running for each in await server.client.keys()] == [3]
        (entry,) = [each async for each in server.client.log(action="key.limit")]
        assert (entry.actor, entry.target, entry.details) == ("local", made.id, {"limits": "running 3"})

    run(tmp_path, work, key=BOOTSTRAP)
