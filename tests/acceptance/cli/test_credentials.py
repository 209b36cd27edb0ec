"""`rune credentials`: secret values are read without being visible and are never printed."""

from __future__ import annotations

import getpass
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import Result

from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document, node
from tests.support.in_process_cli import InProcessCli
from tests.support.paths import SOURCE, python_path

TOKEN = "kanari-9f3d0c7-e51b"
HOST = ("--host", "a.example")


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> InProcessCli:
    return InProcessCli(tmp_path / "home")


def add(rune: InProcessCli, name: str = "shop", *options: str, stdin: str | None = TOKEN) -> dict[str, Any]:
    hosts = () if "--host" in options else ("--host", "a.example")
    done = rune("credentials", "add", name, "--type", "bearer", "--json", *hosts, *options, stdin=stdin)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def problem_of(done: Result) -> tuple[int, str, str]:
    (problem,) = json.loads(done.stdout)["problems"]
    return done.exit_code, problem["code"], problem["message"]


def test_add_reads_line_or_object_from_stdin(rune: InProcessCli) -> None:
    assert add(rune, "line", stdin=f"{TOKEN}\n")["fields"] == ["token"]
    given = json.dumps({"type": "bearer", "token": TOKEN, "base_url": "https://x.example"})
    assert add(rune, "object", stdin=given)["fields"] == ["base_url", "token"]


def test_add_reads_values_from_file(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mail.json"
    file.write_text(
        json.dumps({"host": "mail.example", "port": 587, "security": "starttls", "password": TOKEN})
    )

    done = rune(
        "credentials", "add", "mail", "-t", "smtp", "--field", "username=me", "--from-file", str(file)
    )

    assert (done.exit_code, done.stdout) == (0, "added mail (smtp, version 1)\n")
    assert rune.json("credentials", "show", "mail")["fields"] == [
        "host",
        "password",
        "port",
        "security",
        "username",
    ]


def test_add_prompts_on_terminal_without_echo(rune: InProcessCli, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return TOKEN

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(getpass, "getpass", answer)
    monkeypatch.setattr("rune.cli.commands.credentials.sys.stdin", Terminal())
    from rune.cli.commands.credentials import values_of

    assert values_of("basic", ["username=me"], None) == {"username": "me", "password": TOKEN}
    assert prompts == ["password: "]


@pytest.mark.parametrize(
    ("type", "field"),
    [("bearer", "token"), ("basic", "password"), ("oauth2", "client_secret"), ("custom", "any")],
)
def test_secret_in_arguments_is_rejected(type: str, field: str, rune: InProcessCli) -> None:
    done = rune("credentials", "add", "x", "--type", type, "--field", f"{field}={TOKEN}", "--json", stdin="")

    code, reason, message = problem_of(done)
    assert (code, reason) == (2, "SECRET_IN_ARGUMENTS")
    assert TOKEN not in message
    assert rune.json("credentials", "list") == {"credentials": []}


def test_no_command_prints_secret_value(rune: InProcessCli) -> None:
    shown = [str(add(rune, "shop", "--host", "*.shop.example"))]
    for command in (
        ("list",),
        ("list", "--json"),
        ("show", "shop"),
        ("show", "shop", "--json"),
        ("rekey",),
        ("key", "new"),
        ("rotate", "shop", "--host", "api.shop.example"),
        ("remove", "shop", "--json"),
    ):
        done = rune("credentials", *command)
        assert done.exit_code == 0, done.output
        shown.append(done.output)

    assert TOKEN not in "".join(shown)
    assert "*.shop.example" in shown[1]


@pytest.mark.parametrize(
    ("arguments", "stdin", "code"),
    [
        (("add", "bad name", "-t", "bearer", *HOST), TOKEN, "BAD_CREDENTIAL"),
        (("add", "c" + "0" * 32, "-t", "bearer", *HOST), TOKEN, "BAD_CREDENTIAL"),
        (("add", "x", "-t", "bearer", "--host", "https://x.example"), TOKEN, "BAD_CREDENTIAL"),
        (("add", "x", "-t", "bearer", "--host", "x.example:8080"), TOKEN, "BAD_CREDENTIAL"),
        (("add", "x", "-t", "bearer"), "", "BAD_CREDENTIAL"),
        (("add", "x", "-t", "bearer"), '{"tokn": "kanari-9f3d0c7-e51b"}', "BAD_CREDENTIAL"),
        (("add", "x", "-t", "bearer"), '{"token": ["kanari-9f3d0c7-e51b"]}', "BAD_CREDENTIAL"),
        (("add", "x", "-t", "bearer"), '{"token": "kanari-9f3d0c7-e51b"', "NOT_JSON"),
        (("add", "x", "-t", "smtp"), '{"host": "h", "security": "kanari-9f3d0c7-e51b"}', "BAD_CREDENTIAL"),
        (("add", "x", "-t", "header"), '{"name": "kanari-9f3d0c7-e51b x", "value": "v"}', "BAD_CREDENTIAL"),
        (("add", "x", "-t", "header"), '{"name": "Host", "value": "kanari-9f3d0c7-e51b"}', "BAD_CREDENTIAL"),
        (("add", "x", "-t", "basic", "--field", "user=me"), "", "BAD_CREDENTIAL"),
        (("add", "x", "-t", "custom"), None, "BAD_CREDENTIAL"),
        (("add", "x", "-t", "bearer", "--from-file", "nowhere.json"), None, "UNREADABLE"),
        (("show", "x"), None, "CREDENTIAL_MISSING"),
        (("rotate", "x"), TOKEN, "CREDENTIAL_MISSING"),
        (("remove", "x"), None, "CREDENTIAL_MISSING"),
        (("add", "x", "-t", "bearer"), TOKEN, "CREDENTIAL_HOSTS"),
        (("add", "taken", "-t", "bearer", *HOST), TOKEN, "CREDENTIAL_EXISTS"),
    ],
)
def test_errors_name_problem_but_not_value(
    arguments: tuple[str, ...], stdin: str | None, code: str, rune: InProcessCli
) -> None:
    add(rune, "taken")

    exit_code, found, message = problem_of(rune("credentials", *arguments, "--json", stdin=stdin))

    assert (exit_code, found) == (2, code)
    assert TOKEN not in message


def test_smtp_credential_is_bound_to_its_own_host(rune: InProcessCli, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mail.json"
    file.write_text(json.dumps({"host": "mail.example", "password": TOKEN}))
    made = rune.json("credentials", "add", "mail", "-t", "smtp", "--from-file", str(file))
    moved = rune.json("credentials", "rotate", "mail", "--field", "host=other.example")

    assert (made["hosts"], moved["hosts"]) == (["mail.example"], ["other.example"])


def test_list_and_show_state_insecure_and_grants(rune: InProcessCli) -> None:
    add(rune, "tls")
    add(rune, "plain", "--host", "*", "--insecure", "--grant", "queue", "--grant", "workflow:orders")

    listed = {each["name"]: each["insecure"] for each in rune.json("credentials", "list")["credentials"]}
    shown = {name: rune.json("credentials", "show", name)["granted"] for name in listed}

    assert listed == {"plain": True, "tls": False}
    assert shown == {"plain": ["queue", "workflow:orders"], "tls": ["local"]}
    assert "insecure" in rune.output("credentials", "show", "plain")
    assert rune.json("credentials", "rotate", "plain", "--no-insecure")["insecure"] is False


def test_rotate_keeps_unspecified_fields(rune: InProcessCli) -> None:
    before = add(rune, "shop", "--host", "a.example")
    done = rune("credentials", "rotate", "shop", stdin="another-token")
    assert done.stdout == "rotated shop (bearer, version 2)\n"

    after = rune.json("credentials", "show", "shop")
    assert (after["id"], after["version"], after["hosts"]) == (before["id"], 2, ["a.example"])


def test_key_rotation_and_rekey(rune: InProcessCli) -> None:
    first = add(rune)["key"]
    made = rune.json("credentials", "key", "new")
    assert made["key"] != first
    assert rune.json("credentials", "rekey") == {"status": "ok", "rekeyed": 1}
    assert rune.json("credentials", "show", "shop")["key"] == made["key"]
    lines = (rune.home / "secret.key").read_text().splitlines()
    (rune.home / "secret.key").write_text("\n".join(lines[:2]) + "\n")  # remove the older key
    assert rune.json("credentials", "rekey") == {"status": "ok", "rekeyed": 0}


def test_secret_key_from_environment(tmp_path: pathlib.Path) -> None:
    plain = InProcessCli(tmp_path / "home")
    one, two = (plain.output("credentials", "key", "new", "--print").strip() for _ in range(2))
    assert not list(plain.home.iterdir())
    add(InProcessCli(plain.home, RUNE_SECRET_KEY=one))
    assert not (plain.home / "secret.key").exists()

    both = InProcessCli(plain.home, RUNE_SECRET_KEY=f"{two},{one}")
    assert both.json("credentials", "rekey")["rekeyed"] == 1
    old = InProcessCli(plain.home, RUNE_SECRET_KEY=one)
    assert problem_of(old("credentials", "rekey", "--json"))[1] == "CREDENTIAL_UNREADABLE"
    assert problem_of(old("credentials", "key", "new", "--json"))[1] == "SECRET_KEY_ENVIRONMENT"
    broken = InProcessCli(plain.home, RUNE_SECRET_KEY="kanari")
    code, reason, message = problem_of(broken("credentials", "rekey", "--json"))
    assert (code, reason, "kanari" in message) == (2, "SECRET_KEY_INVALID", False)


def test_missing_key_file_is_reported_and_not_replaced(rune: InProcessCli) -> None:
    add(rune)
    (rune.home / "secret.key").rename(rune.home / "elsewhere")

    found = problem_of(rune("credentials", "add", "two", "-t", "bearer", *HOST, "--json", stdin=TOKEN))
    assert found[1] == "SECRET_KEY_MISSING"
    assert not (rune.home / "secret.key").exists()
    assert len(rune.json("credentials", "list")["credentials"]) == 1


def test_every_subcommand_has_help(rune: InProcessCli) -> None:
    for command in ((), ("add",), ("rotate",), ("key",), ("key", "new")):
        assert rune("credentials", *command, "--help").exit_code == 0


WAITS = document(
    [node("start", "input"), node("nap", "wait", parameters={"resume": "signal", "name": "go"})],
    "start>nap",
    id="waits",
)


def test_commands_work_while_another_process_owns_file(tmp_path: pathlib.Path) -> None:
    """The owner encrypts and stores the values, which it receives through its socket."""
    rune = Rune(tmp_path / "home")
    (tmp_path / "waits.json").write_text(json.dumps(WAITS))
    (tmp_path / "shop.json").write_text(json.dumps({"token": TOKEN}))
    with rune.begin("run", str(tmp_path / "waits.json")) as owner:
        try:
            until(lambda: (rune.home / "rune.sock").exists() or None, "the owner listens")
            given = ("--from-file", str(tmp_path / "shop.json"))
            assert rune.json("credentials", "add", "shop", "-t", "bearer", *HOST, *given)["version"] == 1
            assert rune.json("credentials", "rotate", "shop", *given)["version"] == 2
            taken = rune.json("credentials", "add", "shop", "-t", "bearer", *HOST, *given, code=2)
            assert taken["problems"][0]["code"] == "CREDENTIAL_EXISTS"
            rune.json("credentials", "key", "new")
            assert rune.json("credentials", "rekey")["rekeyed"] == 1
            assert rune.json("credentials", "remove", "shop")["name"] == "shop"
            assert owner.poll() is None
        finally:
            owner.terminate()
            out, err = owner.communicate(timeout=TIMEOUT_S)
    assert TOKEN not in out + err


def test_add_reads_secret_from_pipe(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "PYTHONPATH": python_path(SOURCE), "RUNE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "rune.cli.main", "credentials", "add", "shop", "-t", "bearer", *HOST]
    done = subprocess.run(
        command, input=TOKEN, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "added shop (bearer, version 1)\n", "")
