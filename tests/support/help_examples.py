"""Examples of the help texts of `rune`, and folders in which they can be run.

The examples name the executions x019a and x019b. Each kind of folder has both, in a state that suits a command: ended,
waiting for signals, with failed items, with an item `users:5`. One has a dead letter.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import typer

from rune.cli.main import app
from tests.support.cli_process import Rune, until
from tests.support.forked_rune import KILLED
from tests.support.paths import EXAMPLES

RUNE: Any = typer.main.get_command(app)
IDS = ("x019a", "x019b")
EXAMPLE = re.compile(r"^\s*(?:Example: )?((?:[A-Z_]+=\S.* )?rune [a-z].*)")
OPERATOR = re.compile(r"[|&;<>()]+")

ORDER = """\
id: orders
nodes:
  - {id: in, type: webhook, parameters: {auth: hmac}}
  - {id: fetch, type: edit, parameters: {mode: keep_only, assignments: [{name: users, value: [ada@example.com]}]}}
  - {id: import, type: log, parameters: {message: "imported"}}
  - {id: price, type: edit, parameters: {mode: keep_only, assignments: [{name: amount, value: 5}]}}
  - {id: orders, type: split, parameters: {input_array: "{{ range(6) }}"}}
  - {id: charge, type: edit, parameters: {mode: keep_only, assignments: [{name: number, value: $item}]}}
  - {id: all, type: aggregator}
  - {id: mail, type: output, parameters: {value: "{{ $price.amount }}"}}
edges:
  - {src: in, dst: fetch}
  - {src: fetch, dst: import}
  - {src: import, dst: price}
  - {src: price, dst: orders}
  - {src: orders, dst: charge}
  - {src: charge, dst: all}
  - {src: all, dst: mail}
"""
WAITING = """\
id: orders
nodes:
  - {id: in, type: input}
  - {id: approval, type: wait, parameters: {resume: signal, name: approve}}
  - {id: orders, type: split, parameters: {input_array: "{{ range(6) }}"}}
  - {id: payment, type: wait, parameters: {resume: signal, name: paid}}
  - {id: all, type: aggregator}
edges:
  - {src: in, dst: approval}
  - {src: in, dst: orders}
  - {src: orders, dst: payment}
  - {src: payment, dst: all}
"""
FAILED = """\
id: orders
nodes:
  - {id: in, type: input}
  - {id: lines, type: split, parameters: {input_array: "{{ range(3) }}"}}
  - {id: odd, type: conditional, parameters: {expression: "$item % 2 == 1"}}
  - {id: late, type: fail, parameters: {message: late, code: HTTP_TIMEOUT}}
  - {id: fine, type: noop}
  - {id: all, type: aggregator, parameters: {tolerate: "100%"}}
  - {id: orders, type: split, parameters: {input_array: "{{ range(3) }}"}}
  - {id: lost, type: fail, parameters: {message: lost, code: HTTP_TIMEOUT}}
  - {id: rest, type: aggregator, parameters: {tolerate: "100%"}}
edges:
  - {src: in, dst: lines}
  - {src: lines, dst: odd}
  - {src: odd, dst: late, label: "true"}
  - {src: odd, dst: fine, label: "false"}
  - {src: late, dst: all}
  - {src: fine, dst: all}
  - {src: in, dst: orders}
  - {src: orders, dst: lost}
  - {src: lost, dst: rest}
"""
USERS = """\
id: orders
nodes:
  - {id: in, type: input}
  - {id: users, type: split, parameters: {input_array: "{{ range(6) }}"}}
  - {id: fetch, type: noop}
  - {id: all, type: aggregator}
edges:
  - {src: in, dst: users}
  - {src: users, dst: fetch}
  - {src: fetch, dst: all}
"""
DEAD = """\
id: orders
nodes:
  - {id: in, type: input}
  - {id: send, type: noop, parameters: {effectful: true}}
edges:
  - {src: in, dst: send}
"""
TESTS = """\
workflow: ../order.yaml
tests:
  - case: a refund is paid
    mocks: {import: {returns: null}}
    expect: {status: completed, output: 5}
"""
MACHINE = {
    "StartAt": "Greet",
    "States": {"Greet": {"Type": "Pass", "Result": {"text": "Hello!"}, "End": True}},
}
FILES = {
    "order.yaml": ORDER,
    "orders.yaml": USERS,
    "workflow.yaml": USERS,
    "workflow.json": json.dumps(MACHINE),
    "order.json": json.dumps({"order": 7}),
    "mail.json": json.dumps({"host": "mail.example", "username": "rune", "password": "secret"}),
    "tests/orders.yaml": TESTS,
}


def helps(command: Any) -> Iterator[str]:
    """Yield the help texts of a command and of its subcommands."""
    yield command.help or ""
    for each in getattr(command, "commands", {}).values():
        yield from helps(each)


def help_examples() -> list[str]:
    """Return the commands that the help texts show, each once."""
    lines = (line for text in helps(RUNE) for line in text.splitlines())
    return list(dict.fromkeys(found[1] for line in lines if (found := EXAMPLE.match(line))))


def words_of(call: str) -> list[str]:
    """Return the arguments of a command as a shell passes them, up to the next operator or comment."""
    found: list[str] = []
    lexer = shlex.shlex(call, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    for word in lexer:
        if OPERATOR.fullmatch(word):
            break
        found.append(word)
    return found[1:]


class Folders:
    """Makes each kind of folder once, and copies of it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._made: dict[str, Path] = {}

    def copy(self, kind: str, target: Path) -> None:
        """Copy a folder of a kind; its home is `.rune`."""
        if kind not in self._made:
            folder = self._place / kind
            write_files(folder)
            KINDS[kind](Rune(folder / ".rune"), folder)
            self._made[kind] = folder
        shutil.copytree(
            self._made[kind],
            target,
            dirs_exist_ok=True,
            symlinks=True,
            ignore=shutil.ignore_patterns("*.sock"),
        )


def write_files(folder: Path) -> None:
    """Write the files that examples name."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "examples").symlink_to(EXAMPLES)
    (folder / "acme_nodes").symlink_to(EXAMPLES / "custom-nodes" / "src" / "acme_nodes")
    (folder / "acme").mkdir()
    (folder / "acme" / "__init__.py").touch()
    (folder / "acme" / "rune_nodes.py").write_text("from acme_nodes import *\n", encoding="utf-8")


def _run_both(rune: Rune, folder: Path, document: str, *options: str) -> None:
    (folder / "both.yaml").write_text(document, encoding="utf-8")
    for id in IDS:
        rune("run", str(folder / "both.yaml"), "--id", id, *options)


def _ended(rune: Rune, folder: Path) -> None:
    for version in range(5):
        (folder / "version.yaml").write_text(ORDER.replace("value: 5}", f"value: {9 - version}}}"))
        rune.json("deploy", str(folder / "version.yaml"))
    rune.json("workflows", "alias", "orders", "stable", "3")
    (folder / "handler.yaml").write_text(ORDER.replace("id: orders", "id: tell-ops", 1))
    rune.json("deploy", str(folder / "handler.yaml"))
    rune.json("keys", "create", "nightly", "--role", "runner")
    secret = folder / "token.txt"
    secret.write_text("secret")
    rune.json(
        "credentials", "add", "shop", "--type", "bearer", "--host", "shop.example", "--from-file", str(secret)
    )
    _run_both(rune, folder, ORDER, "--input", json.dumps({"orders": list(range(200))}))
    rune.json("bulk", "start", "cancel", *IDS, code=1)  # refused: they have ended
    rune.json("backup", str(folder / "nightly.db"))


def _waiting(rune: Rune, folder: Path) -> None:
    """Leave two executions that wait for signals, by killing the processes that ran them."""
    (folder / "waiting.yaml").write_text(WAITING, encoding="utf-8")
    for id in IDS:
        with rune.begin("run", str(folder / "waiting.yaml"), "--id", id) as process:
            until(partial(_waits, rune, id), "the execution waits")
            process.send_signal(signal.SIGKILL)


def _waits(rune: Rune, id: str) -> bool | None:
    return "payment" in rune("explain", id).stdout or None


def _failed(rune: Rune, folder: Path) -> None:
    _run_both(rune, folder, FAILED)


def _users(rune: Rune, folder: Path) -> None:
    _run_both(rune, folder, USERS)
    rune("convert", str(folder / "orders.yaml"), str(folder / "orders.py"))


def _dead(rune: Rune, folder: Path) -> None:
    """Kill the process on every attempt until the engine gives up."""
    (folder / "dead.yaml").write_text(DEAD, encoding="utf-8")
    deadly = Rune(rune.home, RUNE_FAILPOINT="ran")
    command = ("run", str(folder / "dead.yaml"), "--idempotency-key", "k")
    until(lambda: None if deadly(*command).returncode == KILLED else True, "the execution is given up")


KINDS: dict[str, Callable[[Rune, Path], None]] = {
    "ended": _ended,
    "waiting": _waiting,
    "failed": _failed,
    "users": _users,
    "dead": _dead,
}
