"""Every command with RUNE_URL set: it uses the server, rejects RUNE_URL with a reason, or ignores it."""

from __future__ import annotations

import functools
import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rune.cli.backend import LOCAL_ONLY
from rune.cli.main import app
from tests.acceptance.api.test_commands import KEY, RemoteCli
from tests.lint.tree import ROOT
from tests.support.api_server import HELLO, ITEMS
from tests.support.cluster_cli import GATED
from tests.support.in_process_cli import InProcessCli
from tests.support.trigger_workflows import webhook_workflow
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

UNREACHABLE = "http://127.0.0.1:9"
NAME = ("-i", '{"name": "Ada"}')


class PopulatedServer(RemoteCli):
    """A server with resources of every kind."""

    @functools.cached_property
    def stored(self) -> str:
        self.rune.json("deploy", self.file(HELLO, "e-stored"))
        return "e-stored"

    @functools.cached_property
    def ended(self) -> str:
        return str(self.rune.json("start", self.stored, *NAME, "--wait")["execution_id"])

    @functools.cached_property
    def split(self) -> str:
        """An execution with a split."""
        self.rune.json("deploy", self.file(ITEMS, "e-items"))
        given = ("-i", '{"items": [2, 4]}')
        return str(self.rune.json("start", "e-items", *given, "--wait")["execution_id"])

    @functools.cached_property
    def job(self) -> str:
        """A bulk job that has ended."""
        return str(self.rune.json("bulk", "start", "pause", self.started("e-job"))["id"])

    def key(self, name: str) -> str:
        return str(self.rune.json("keys", "create", name, "--role", "viewer")["id"])

    def credential(self, name: str) -> str:
        self.rune(
            "credentials", "add", name, "--type", "bearer", "--host", "a.example", stdin="s3cret-token\n"
        )
        return name

    @functools.cached_property
    def trigger(self) -> str:
        self.rune.json("deploy", self.file(webhook_workflow(), "e-hooked"))
        return "e-hooked"

    def paused(self, name: str) -> str:
        id = self.started(name)
        self.rune.output("pause", id)
        return id


Arguments = Callable[[PopulatedServer], tuple[str, ...]]
REMOTE: dict[str, Arguments] = {
    "run": lambda remote: (remote.file(HELLO, "e-run"), *NAME),
    "deploy": lambda remote: (remote.file(HELLO, "e-deploy"),),
    "workflows": lambda remote: (),
    "workflows list": lambda remote: (),
    "workflows show": lambda remote: (remote.stored,),
    "handlers": lambda remote: (),
    "handlers show": lambda remote: ("--failed",),
    "handlers set": lambda remote: ("--on-late", remote.stored),
    "workflows diff": lambda remote: (remote.stored, "1", "latest"),
    "workflows restore": lambda remote: (f"{remote.stored}@1",),
    "workflows alias": lambda remote: (remote.stored, "stable", "1"),
    "workflows limit": lambda remote: (remote.stored, "--rate", "9/s"),
    "workflows remove": lambda remote: (_stored(remote, "e-remove"),),
    "list": lambda remote: (),
    "show": lambda remote: (remote.ended,),
    "watch": lambda remote: (remote.ended,),
    "explain": lambda remote: (remote.ended,),
    "items": lambda remote: (remote.split, "s"),
    "value": lambda remote: (remote.ended,),
    "compare": lambda remote: (remote.ended, remote.ended),
    "waiting": lambda remote: (),
    "stats": lambda remote: (),
    "settings": lambda remote: (),
    "bulk start": lambda remote: ("cancel", remote.started("e-bulk")),
    "bulk list": lambda remote: (),
    "bulk show": lambda remote: (remote.job,),
    "bulk abort": lambda remote: (remote.job,),
    "record": lambda remote: (remote.ended,),
    "logs": lambda remote: (remote.ended,),
    "start": lambda remote: (remote.stored, *NAME),
    "signal": lambda remote: (remote.started("e-signal"), "go"),
    "cancel": lambda remote: (remote.started("e-cancel"),),
    "pause": lambda remote: (remote.started("e-pause"),),
    "resume": lambda remote: (remote.paused("e-resume"),),
    "retry": lambda remote: (_cancelled(remote, "e-retry"),),
    "rerun": lambda remote: (remote.ended, "--from", "out"),
    "dlq": lambda remote: (),
    "dlq list": lambda remote: (),
    "dlq show": lambda remote: (remote.ended,),
    "dlq requeue": lambda remote: (remote.ended,),
    "dlq drop": lambda remote: (remote.ended,),
    "credentials add": lambda remote: (
        "e-add",
        "--type",
        "bearer",
        "--host",
        "*",
        "--from-file",
        _token(remote),
    ),
    "credentials list": lambda remote: (),
    "credentials show": lambda remote: (remote.credential("e-one"),),
    "credentials uses": lambda remote: (remote.credential("e-used"),),
    "credentials rotate": lambda remote: (remote.credential("e-rotate"), "--from-file", _token(remote)),
    "credentials remove": lambda remote: (remote.credential("e-gone"), "--yes"),
    "credentials grant": lambda remote: (remote.credential("e-granted"), "queue"),
    "credentials withdraw": lambda remote: (remote.credential("e-withdrawn"), "everyone"),
    "keys create": lambda remote: ("e-key", "--role", "viewer"),
    "keys list": lambda remote: (),
    "keys limit": lambda remote: (remote.key("e-limited"), "--rate", "100/m"),
    "keys revoke": lambda remote: (remote.key("e-revoked"),),
    "audit-log": lambda remote: (),
    "nodes": lambda remote: (),
    "schema": lambda remote: (),
    "credentials": lambda remote: (),
    "keys": lambda remote: (),
    "triggers": lambda remote: (),
    "workers": lambda remote: (),
    "workers list": lambda remote: (),
    "workers drain": lambda remote: ("unknown",),
    "workers resume": lambda remote: (remote.rune.json("workers")["workers"][0]["name"],),
    "triggers list": lambda remote: (),
    "triggers show": lambda remote: (remote.trigger,),
    "triggers enable": lambda remote: (remote.trigger,),
    "triggers disable": lambda remote: (remote.trigger,),
    "triggers rotate": lambda remote: (remote.trigger,),
    "triggers preview": lambda remote: ("0 9 * * *",),
}
"""Commands that use the server, and their arguments."""

NO_DEAD_LETTER = {"dlq show", "dlq requeue", "dlq drop"}
"""Commands that fail because no execution is a dead letter."""

UNKNOWN_WORKER = {"workers drain"}
"""Commands that fail because no process has the id: the worker of the server runs what other tests start."""

LOCAL_ONLY_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "verify": ("--all",),
    "prune": ("--older-than", "1d"),
    "backup": ("copy.db",),
    "restore": ("copy.db",),
    "migrate": (),
    "credentials rekey": (),
    "credentials key new": (),
}
"""Commands that work only on the machine of the server, and their arguments."""

IGNORING_URL = {
    "check", "convert", "graph", "import", "stubs", "test", "topology", "doctor", "bench", "up",
    "serve worker", "serve scheduler", "serve api",
}  # fmt: skip
"""Commands that ignore RUNE_URL."""


def _stored(remote: PopulatedServer, name: str) -> str:
    remote.rune.json("deploy", remote.file(HELLO, name))
    return name


def _token(remote: PopulatedServer) -> str:
    path = remote.home / "token.json"
    path.write_text(json.dumps({"token": "s3cret-token"}))
    return str(path)


def _cancelled(remote: PopulatedServer, name: str) -> str:
    id = remote.started(name)
    remote.rune.output("cancel", id)
    return id


def _names(group: Any, before: str = "") -> Iterator[str]:
    for name, each in group.commands.items():
        whole = f"{before} {name}".strip()
        if not hasattr(each, "commands"):
            yield whole
            continue
        if each.invoke_without_command:
            yield whole
        yield from _names(each, whole)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PopulatedServer]:
    up = UpProcess(tmp_path_factory.mktemp("server"), RUNE_API_KEY=KEY)
    url = up.start("--no-examples")
    yield PopulatedServer(url, tmp_path_factory.mktemp("nothing"))
    up.stop(signal.SIGKILL)


def test_every_command_is_classified() -> None:
    assert sorted(_names(typer.main.get_command(app))) == sorted(
        [*REMOTE, *LOCAL_ONLY_ARGUMENTS, *IGNORING_URL]
    )


def test_page_lists_every_command_as_it_is_classified() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = page.split("### A server elsewhere")[1].split("\n### ")[0]
    rows = [
        set(re.findall(r"`([a-z -]+)`", row)) for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    ]

    listed_whole = {"credentials rekey", "credentials key new"}
    assert rows == [
        {command if command in listed_whole else command.split()[0] for command in classified}
        for classified in (REMOTE, LOCAL_ONLY_ARGUMENTS, IGNORING_URL)
    ]


@pytest.mark.parametrize("command", REMOTE)
def test_remote_command_opens_no_local_store(command: str, remote: PopulatedServer) -> None:
    given = REMOTE[command](remote)
    done = remote.rune(*command.split(), *given)
    if command in NO_DEAD_LETTER:
        assert (done.exit_code, "is not a dead letter" in done.stderr) == (2, True), done.output
    elif command in UNKNOWN_WORKER:
        assert (done.exit_code, "no process has the id" in done.stderr) == (2, True), done.output
    else:
        assert done.exit_code == 0, done.output
    assert {each.suffix for each in remote.home.iterdir()} <= {".json"}


@pytest.mark.parametrize("command", LOCAL_ONLY_ARGUMENTS)
def test_local_only_command_explains_rejection(command: str, tmp_path: Path) -> None:
    rune = InProcessCli(tmp_path / "home", RUNE_URL=UNREACHABLE)
    refused = rune(*command.split(), *LOCAL_ONLY_ARGUMENTS[command])
    assert refused.exit_code == 2, refused.output
    assert f"`rune {command}` {LOCAL_ONLY[command]}" in refused.stderr
    assert "RUNE_URL" in refused.stderr
    result = rune.json(*command.split(), *LOCAL_ONLY_ARGUMENTS[command], code=2)
    assert result["problems"][0]["code"] == "NOT_OVER_URL"
    assert not list((tmp_path / "home").iterdir())


def test_nodes_option_is_rejected_with_rune_url(tmp_path: Path) -> None:
    refused = InProcessCli(tmp_path, RUNE_URL=UNREACHABLE)("nodes", "--nodes", "json")
    assert (refused.exit_code, LOCAL_ONLY["nodes --nodes"] in refused.stderr) == (2, True)


def test_printing_new_key_needs_no_server(tmp_path: Path) -> None:
    assert InProcessCli(tmp_path, RUNE_URL=UNREACHABLE).json("credentials", "key", "new", "--print")["key"]


def test_local_commands_ignore_rune_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rune.cli.commands.serve.configure_log", lambda settings: None
    )  # keep the logging setup of pytest
    rune = InProcessCli(tmp_path / "home", RUNE_URL=UNREACHABLE)
    file = tmp_path / "hello.json"
    file.write_text(json.dumps(HELLO))
    assert rune.json("check", str(file))["status"] == "valid"
    assert "flowchart" in rune.output("graph", str(file), "--mermaid")
    assert rune.json("topology")
    assert "known: " in rune("bench", "nothing").stderr
    assert "about this machine" in rune("doctor").stdout
    for role in ("worker", "scheduler", "api"):
        refused = rune("serve", role)
        assert (refused.exit_code, "needs a cluster" in refused.stderr) == (2, True)
    up = UpProcess(tmp_path / "home", RUNE_URL=UNREACHABLE)
    assert up.start("--no-examples").startswith("http://127.0.0.1:")
    assert up.stop() == 0


def test_credential_output_is_same_for_server_and_file(remote: PopulatedServer, tmp_path: Path) -> None:
    """The output is the same and contains no secret value."""
    result = []
    for rune in (remote.rune, InProcessCli(tmp_path / "own")):
        output = [
            rune(
                *("credentials", "add", "shop", "--type", "bearer", "--host", "a.example"),
                *("--grant", "everyone"),
                stdin="t0p-s\n",
            ).stdout
        ]
        document = rune.json("credentials", "show", "shop")
        output.append(rune.output("credentials", "grant", "shop", "queue", "key:k*"))
        output.append(rune.output("credentials", "withdraw", "shop", "everyone"))
        output.append(rune("credentials", "rotate", "shop", stdin="t0p-t\n").stdout)
        again = ("credentials", "add", "shop", "--type", "bearer", "--host", "a.example")
        output.append(str(rune(*again, stdin="x\n").exit_code))
        output.append(rune.output("credentials", "remove", "shop", "--yes"))
        output.append(str(rune("credentials", "show", "shop").exit_code))
        assert "t0p" not in f"{output}{document}"
        varies = {"id", "key", "created_at", "changed_at"}
        assert varies < set(document)
        result.append((output, {name: value for name, value in document.items() if name not in varies}))
    assert result[0] == result[1]


def test_editor_cannot_see_or_change_grants(remote: PopulatedServer) -> None:
    remote.credential("guarded")
    made = remote.rune.json("keys", "create", "ed", "--role", "editor")
    editor = InProcessCli(remote.home, RUNE_URL=remote.url, RUNE_API_KEY=made["key"])
    assert "granted" in remote.rune.json("credentials", "show", "guarded")
    assert "granted" not in editor.json("credentials", "show", "guarded")
    assert editor("credentials", "grant", "guarded", "queue").exit_code == 2


def test_nodes_and_workers_come_from_server(remote: PopulatedServer, tmp_path: Path) -> None:
    own = InProcessCli(tmp_path)
    assert remote.rune.json("nodes") == own.json("nodes")
    assert remote.rune.output("nodes", "merge") == own.output("nodes", "merge")
    assert remote.rune("nodes", "merg").exit_code == 2
    (process,) = remote.rune.json("workers")["workers"]
    assert (process["roles"], process["queues"]) == (["api", "scheduler", "worker"], ["default"])
    assert "http" in process["types"]
    assert str(process["pid"]) in remote.rune.output("workers")


def test_grant_change_is_logged_once(remote: PopulatedServer) -> None:
    remote.credential("noted")
    remote.rune.output("credentials", "withdraw", "noted", "everyone")
    done = [each["action"] for each in remote.rune.json("audit-log", "--of", "noted")["entries"]]
    assert done == ["credential.withdraw", "credential.add"]


def test_rune_url_leaves_local_file_untouched(remote: PopulatedServer, tmp_path: Path) -> None:
    own = InProcessCli(tmp_path / "home")
    file = tmp_path / "gated.json"
    file.write_text(json.dumps({**GATED, "id": "mine"}))
    own.output("deploy", str(file))
    away = InProcessCli(tmp_path / "home", RUNE_URL=remote.url, RUNE_API_KEY=KEY)
    assert "mine" not in away.output("workflows")
    assert "mine" in own.output("workflows")


def test_missing_key_is_reported_with_the_command_that_creates_one(
    remote: PopulatedServer, tmp_path: Path
) -> None:
    done = InProcessCli(tmp_path / "home", RUNE_URL=remote.url, RUNE_API_KEY="")("list")

    assert done.exit_code == 2
    assert "creates one with `rune keys create`" in done.stderr
