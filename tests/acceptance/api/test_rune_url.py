"""Every command with RUNE_URL set: it uses the server, rejects RUNE_URL with a reason, or ignores it."""

from __future__ import annotations

import functools
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rune.cli.backend import LOCAL_ONLY
from rune.cli.main import app
from tests.acceptance.api.test_commands import KEY, Place
from tests.acceptance.api.test_up import Up
from tests.support.api_server import HELLO
from tests.support.cluster_cli import GATED
from tests.support.in_process_cli import Here
from tests.support.trigger_workflows import webhook_workflow

NOBODY = "http://127.0.0.1:9"
NAME = ("-i", '{"name": "Ada"}')


class Everything(Place):
    """A server with resources of every kind."""

    @functools.cached_property
    def stored(self) -> str:
        self.rune.json("deploy", self.file(HELLO, "e-stored"))
        return "e-stored"

    @functools.cached_property
    def ended(self) -> str:
        return str(self.rune.json("start", self.stored, *NAME, "--wait")["execution_id"])

    def key(self, name: str) -> str:
        return str(self.rune.json("keys", "create", name, "--role", "viewer")["id"])

    def credential(self, name: str) -> str:
        self.rune("credentials", "add", name, "--type", "bearer", stdin="s3cret-token\n")
        return name

    @functools.cached_property
    def trigger(self) -> str:
        self.rune.json("deploy", self.file(webhook_workflow(), "e-hooked"))
        return "e-hooked"

    def paused(self, name: str) -> str:
        id = self.started(name)
        self.rune.said("pause", id)
        return id


Arguments = Callable[[Everything], tuple[str, ...]]
ASKED: dict[str, Arguments] = {
    "run": lambda there: (there.file(HELLO, "e-run"), *NAME),
    "deploy": lambda there: (there.file(HELLO, "e-deploy"),),
    "workflows": lambda there: (),
    "workflows list": lambda there: (),
    "workflows show": lambda there: (there.stored,),
    "workflows diff": lambda there: (there.stored, "1", "latest"),
    "workflows restore": lambda there: (f"{there.stored}@1",),
    "workflows alias": lambda there: (there.stored, "stable", "1"),
    "workflows limit": lambda there: (there.stored, "--rate", "9/s"),
    "workflows remove": lambda there: (_stored(there, "e-remove"),),
    "list": lambda there: (),
    "show": lambda there: (there.ended,),
    "watch": lambda there: (there.ended,),
    "explain": lambda there: (there.ended,),
    "start": lambda there: (there.stored, *NAME),
    "signal": lambda there: (there.started("e-signal"), "go"),
    "cancel": lambda there: (there.started("e-cancel"),),
    "pause": lambda there: (there.started("e-pause"),),
    "resume": lambda there: (there.paused("e-resume"),),
    "retry": lambda there: (_cancelled(there, "e-retry"),),
    "rerun": lambda there: (there.ended, "--from", "out"),
    "dlq": lambda there: (),
    "dlq list": lambda there: (),
    "dlq show": lambda there: (there.ended,),
    "dlq requeue": lambda there: (there.ended,),
    "dlq drop": lambda there: (there.ended,),
    "credentials add": lambda there: ("e-add", "--type", "bearer", "--from-file", _token(there)),
    "credentials list": lambda there: (),
    "credentials show": lambda there: (there.credential("e-one"),),
    "credentials rotate": lambda there: (there.credential("e-rotate"), "--from-file", _token(there)),
    "credentials remove": lambda there: (there.credential("e-gone"), "--yes"),
    "credentials grant": lambda there: (there.credential("e-granted"), "queue"),
    "credentials withdraw": lambda there: (there.credential("e-withdrawn"), "everyone"),
    "keys create": lambda there: ("e-key", "--role", "viewer"),
    "keys list": lambda there: (),
    "keys limit": lambda there: (there.key("e-limited"), "--rate", "100/m"),
    "keys revoke": lambda there: (there.key("e-revoked"),),
    "log": lambda there: (),
    "nodes": lambda there: (),
    "workers": lambda there: (),
    "triggers list": lambda there: (),
    "triggers show": lambda there: (there.trigger,),
    "triggers enable": lambda there: (there.trigger,),
    "triggers disable": lambda there: (there.trigger,),
    "triggers rotate": lambda there: (there.trigger,),
}
"""Commands that use the server, and their arguments."""

NO_LETTER = {"dlq show", "dlq requeue", "dlq drop"}
"""Commands that fail because no execution is a dead letter."""

REFUSED: dict[str, tuple[str, ...]] = {
    "audit": ("--all",),
    "gc": ("--older-than", "1d"),
    "backup": ("copy.db",),
    "restore": ("copy.db",),
    "migrate": (),
    "credentials rekey": (),
    "credentials key new": (),
}
"""Commands that work only on the machine of the server, and their arguments."""

HERE = {
    "check", "graph", "topology", "doctor", "bench", "up", "serve worker", "serve scheduler", "serve api",
}  # fmt: skip
"""Commands that ignore RUNE_URL."""


def _stored(there: Everything, name: str) -> str:
    there.rune.json("deploy", there.file(HELLO, name))
    return name


def _token(there: Everything) -> str:
    path = there.home / "token.json"
    path.write_text(json.dumps({"token": "s3cret-token"}))
    return str(path)


def _cancelled(there: Everything, name: str) -> str:
    id = there.started(name)
    there.rune.said("cancel", id)
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
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    up = Up(tmp_path_factory.mktemp("server"), RUNE_API_KEY=KEY)
    url = up.start("--no-examples")
    yield Everything(url, tmp_path_factory.mktemp("nothing"))
    up.stop(signal.SIGKILL)


def test_every_command_is_classified() -> None:
    assert sorted(_names(typer.main.get_command(app))) == sorted([*ASKED, *REFUSED, *HERE])


@pytest.mark.parametrize("command", ASKED)
def test_remote_command_opens_no_local_store(command: str, there: Everything) -> None:
    given = ASKED[command](there)
    done = there.rune(*command.split(), *given)
    if command in NO_LETTER:
        assert (done.exit_code, "is not a dead letter" in done.stderr) == (2, True), done.output
    else:
        assert done.exit_code == 0, done.output
    assert {each.suffix for each in there.home.iterdir()} <= {".json"}


@pytest.mark.parametrize("command", REFUSED)
def test_local_only_command_explains_rejection(command: str, tmp_path: Path) -> None:
    rune = Here(tmp_path / "home", RUNE_URL=NOBODY)
    refused = rune(*command.split(), *REFUSED[command])
    assert refused.exit_code == 2, refused.output
    assert f"`rune {command}` {LOCAL_ONLY[command]}" in refused.stderr
    assert "RUNE_URL" in refused.stderr
    told = rune.json(*command.split(), *REFUSED[command], code=2)
    assert told["problems"][0]["code"] == "NOT_OVER_URL"
    assert not (tmp_path / "home").exists()


def test_nodes_option_is_rejected_with_rune_url(tmp_path: Path) -> None:
    refused = Here(tmp_path, RUNE_URL=NOBODY)("nodes", "--nodes", "json")
    assert (refused.exit_code, LOCAL_ONLY["nodes --nodes"] in refused.stderr) == (2, True)


def test_printing_new_key_needs_no_server(tmp_path: Path) -> None:
    assert Here(tmp_path, RUNE_URL=NOBODY).json("credentials", "key", "new", "--print")["key"]


def test_local_commands_ignore_rune_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rune.cli.commands.serve.keep_log", lambda settings: None
    )  # keep the logging setup of pytest
    rune = Here(tmp_path / "home", RUNE_URL=NOBODY)
    file = tmp_path / "hello.json"
    file.write_text(json.dumps(HELLO))
    assert rune.json("check", str(file))["status"] == "valid"
    assert "flowchart" in rune.said("graph", str(file), "--mermaid")
    assert rune.json("topology")
    assert "known: " in rune("bench", "nothing").stderr
    assert "about this machine" in rune("doctor").stdout
    for role in ("worker", "scheduler", "api"):
        refused = rune("serve", role)
        assert (refused.exit_code, "needs a cluster" in refused.stderr) == (2, True)
    up = Up(tmp_path / "home", RUNE_URL=NOBODY)
    assert up.start("--no-examples").startswith("http://127.0.0.1:")
    assert up.stop() == 0


def test_credential_output_is_same_for_server_and_file(there: Everything, tmp_path: Path) -> None:
    """The output is the same and contains no secret value."""
    told = []
    for rune in (there.rune, Here(tmp_path / "own")):
        said = [
            rune(
                "credentials", "add", "shop", "--type", "bearer", "--host", "a.example", stdin="t0p-s\n"
            ).stdout
        ]
        document = rune.json("credentials", "show", "shop")
        said.append(rune.said("credentials", "grant", "shop", "queue", "key:k*"))
        said.append(rune.said("credentials", "withdraw", "shop", "everyone"))
        said.append(rune("credentials", "rotate", "shop", stdin="t0p-t\n").stdout)
        said.append(str(rune("credentials", "add", "shop", "--type", "bearer", stdin="x\n").exit_code))
        said.append(rune.said("credentials", "remove", "shop", "--yes"))
        said.append(str(rune("credentials", "show", "shop").exit_code))
        assert "t0p" not in f"{said}{document}"
        varies = {"id", "key", "created_at", "changed_at"}
        assert varies < set(document)
        told.append((said, {name: value for name, value in document.items() if name not in varies}))
    assert told[0] == told[1]


def test_editor_cannot_see_or_change_grants(there: Everything) -> None:
    there.credential("guarded")
    made = there.rune.json("keys", "create", "ed", "--role", "editor")
    editor = Here(there.home, RUNE_URL=there.url, RUNE_API_KEY=made["key"])
    assert "granted" in there.rune.json("credentials", "show", "guarded")
    assert "granted" not in editor.json("credentials", "show", "guarded")
    assert editor("credentials", "grant", "guarded", "queue").exit_code == 2


def test_nodes_and_workers_come_from_server(there: Everything, tmp_path: Path) -> None:
    own = Here(tmp_path)
    assert there.rune.json("nodes") == own.json("nodes")
    assert there.rune.said("nodes", "merge") == own.said("nodes", "merge")
    assert there.rune("nodes", "merg").exit_code == 2
    (process,) = there.rune.json("workers")["workers"]
    assert (process["roles"], process["queues"]) == (["api", "scheduler", "worker"], ["default"])
    assert "http" in process["types"]
    assert str(process["pid"]) in there.rune.said("workers")


def test_grant_change_is_logged_once(there: Everything) -> None:
    there.credential("noted")
    there.rune.said("credentials", "withdraw", "noted", "everyone")
    done = [each["action"] for each in there.rune.json("log", "--of", "noted")["entries"]]
    assert done == ["credential.withdraw", "credential.add"]


def test_rune_url_leaves_local_file_untouched(there: Everything, tmp_path: Path) -> None:
    own = Here(tmp_path / "home")
    file = tmp_path / "gated.json"
    file.write_text(json.dumps({**GATED, "id": "mine"}))
    own.said("deploy", str(file))
    away = Here(tmp_path / "home", RUNE_URL=there.url, RUNE_API_KEY=KEY)
    assert "mine" not in away.said("workflows")
    assert "mine" in own.said("workflows")
