"""Follows a page of the documentation: writes its files, runs its commands and compares what they print.

A fence `yaml file=NAME` (of any language) is a file. The lines of a `console` fence that begin with `$ ` are commands,
those below are their output, in which `…` stands for any text, and alone on a line for any lines. A command that must
fail ends with `# exits N`. A `sh` fence is run as it is. A comment `<!-- needs: A, B -->` names what the page needs:

- `up`: `rune up` runs in the same folder, on another port: the URL of the default port is replaced by
  that of this server. The page has to name the server itself, as no variable of Rune is set.
- `stores`: the settings of new stores of a cluster, from the comment on; above it the page uses the embedded backend
- `administrator`: servers without users of Rune, and a password for each role
- `clone`: the folders `deploy` and `examples`

What the commands leave running in the background is killed. A tutorial may take two minutes of machine time.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rune.client.transport import LOCAL_URL
from tests.lint.tree import ROOT
from tests.support.backends import stores
from tests.support.cli_process import TIMEOUT_S
from tests.support.paths import SOURCE, python_path
from tests.support.services.postgres import USER, free_port, server
from tests.support.services.redis_server import RedisServer
from tests.support.up_process import UpProcess
from tools.docs.markdown import front_matter

FENCE = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "<<<end of command>>>"
NEEDS = re.compile(r"<!-- needs: (.+?) -->")
EXITS = re.compile(r"  # exits (\d+)$")
TUTORIAL_S = 120.0
"""CPU time that the commands or the code of a tutorial may use, with what they leave running."""


class Command(NamedTuple):
    """A command of a page, the exit code it must have, and the lines it must print; None: any."""

    text: str
    code: int = 0
    output: list[str] | None = None


class Seen(NamedTuple):
    """The exit code of a command, and the lines of its standard output and standard error."""

    command: Command
    code: int
    output: list[str]
    errors: list[str]


def follow(page: str, folder: Path, inspect: Callable[[str, str], None] | None = None) -> list[Seen]:
    """Follow a page in an empty folder; fail where it does something else than the page shows. `inspect` is called with
    the URL of the server, while it runs, and with everything that was printed."""
    text = (ROOT / page).read_text(encoding="utf-8")
    needs = {each for found in NEEDS.findall(text) for each in found.split(", ")}
    up = UpProcess(folder / ".rune") if "up" in needs else None
    administered = _Administered(folder) if "administrator" in needs else None
    try:
        url = up.start("--no-examples") if up is not None else ""
        served = text.replace(LOCAL_URL, url) if url else text
        commands = [each for part in _parts(served) for each in _prepared(part, folder)]
        given = administered.environment if administered is not None else {}
        if "clone" in needs:
            for name in ("deploy", "examples"):
                (folder / name).symlink_to(ROOT / name)
        seen, used = _run(commands, folder, given)
        _compare(page, seen)
        check_limit(page, text, used)
        if inspect is not None:
            inspect(url, "\n".join(line for each in seen for line in each.output))
        return seen
    finally:
        if up is not None:
            up.stop(signal.SIGKILL)
        if administered is not None:
            administered.redis.stop()


def check_limit(page: str, text: str, used: float) -> None:
    """Fail if what a tutorial shows used more CPU time than a tutorial may."""
    if front_matter(text)[0].get("kind") == "tutorial":
        assert used <= TUTORIAL_S, f"{page}: what it shows used {used:.0f} s of a processor"


def _parts(text: str) -> list[str]:
    """Return the text above the comment that needs stores, and the text from there on."""
    place = next((found.start() for found in NEEDS.finditer(text) if "stores" in found[1].split(", ")), 0)
    return [text[:place], text[place:]] if place else [text]


def _prepared(text: str, folder: Path) -> Iterator[Command]:
    """Write the files of a part of a page and yield its commands."""
    needs = NEEDS.match(text)
    if needs and "stores" in needs[1].split(", "):
        settings = [f"{name}={shlex.quote(value)}" for name, value in _stores(folder).items() if value]
        yield Command(f"export {' '.join(settings)}")
    for language, name, body in FENCE.findall(text):
        if name:
            (folder / name).write_text(body, encoding="utf-8")
        elif language == "console":
            yield from _commands(body)
        elif language == "sh":
            yield Command(body)


class _Administered:
    """Servers as their administrator finds them: PostgreSQL, and a Redis that reads its users from `users.acl`."""

    def __init__(self, folder: Path) -> None:
        users = folder / "users.acl"
        users.touch()
        port = free_port()
        self.redis = RedisServer("--port", str(port), "--aclfile", str(users))
        self.environment = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server().port),
            "PGUSER": USER,
            "PGDATABASE": "postgres",
            "REDIS": f"127.0.0.1:{port}",
        }
        roles = ("OWNER", "WORKER", "SCHEDULER", "API", "WATCHER")
        self.environment |= {f"RUNE_PASSWORD_{role}": f"password{role.title()}" for role in roles}


def _compare(page: str, seen: list[Seen]) -> None:
    """Compare both streams, or one of them: a page does not tell to which of them a command prints."""
    for each in seen:
        shown = "\n".join([*each.output, *each.errors])
        assert each.code == each.command.code, f"{page}: `{each.command.text}` exits {each.code}:\n{shown}"
        streams = ([*each.output, *each.errors], each.output, each.errors)
        expected = each.command.output
        fits = expected is None or any(matches(expected, lines) for lines in streams)
        assert fits, f"{page}: `{each.command.text}` prints:\n{shown}"


def _commands(body: str) -> list[Command]:
    found: list[Command] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            failing = EXITS.search(line)
            found.append(Command(EXITS.sub("", line[2:]), int(failing[1]) if failing else 0, []))
        elif found[-1].output is not None:
            found[-1].output.append(line)
    return found


def _stores(folder: Path) -> dict[str, str]:
    """Return the settings of a cluster over an empty database and unused keys of Redis."""
    made = stores(folder)
    return {
        "RUNE_JOURNAL": made.journal,
        "RUNE_STATE": made.state,
        "RUNE_QUEUE": made.queue,
        "RUNE_PREFIX": made.prefix,
    }


def _run(commands: list[Command], folder: Path, given: dict[str, str]) -> tuple[list[Seen], float]:
    """Run all commands in one shell, so that variables are kept; return also the CPU time that they used."""
    before = cpu_time(resource.RUSAGE_CHILDREN)
    programs = folder / ".programs"
    programs.mkdir()
    for name, words in {"rune": "-m rune ", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    mark = f"code=$?; printf '%s %s\\n' '{MARK}' $code; printf '%s %s\\n' '{MARK}' $code >&2"
    shell = "".join(f"{each.text}\n{mark}\n" for each in commands)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RUNE_")},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": python_path(SOURCE),
        "NO_COLOR": "1",
        "COLUMNS": "160",
        "no_proxy": "127.0.0.1",
    }
    shell_process = subprocess.Popen(
        ["bash", "-uo", "pipefail", "-c", shell],
        cwd=folder,
        env={**environment, **given},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, complained = shell_process.communicate(timeout=TIMEOUT_S * 2)
        used = cpu_time(resource.RUSAGE_CHILDREN) - before + _cpu_of_session(shell_process.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell_process.pid, signal.SIGKILL)
    output, errors = _sections(printed), _sections(complained)
    assert len(output) == len(commands), printed + complained
    seen = [
        Seen(command, code, lines, others)
        for command, (code, lines), (_, others) in zip(commands, output, errors, strict=True)
    ]
    return seen, used


def cpu_time(of: int = resource.RUSAGE_SELF) -> float:
    """Return the CPU time that this process, or its children that ended, have used."""
    used = resource.getrusage(of)
    return used.ru_utime + used.ru_stime


def _cpu_of_session(session: int) -> float:
    """Return the CPU time of the processes of a session that still run."""
    ticks = 0
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = each.read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _sections(text: str) -> list[tuple[int, list[str]]]:
    """Return the exit code and the lines of each command."""
    found: list[tuple[int, list[str]]] = []
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(MARK):
            found.append((int(line.rsplit(" ", 1)[1]), lines))
            lines = []
        else:
            lines.append(line)
    return found


def matches(expected: list[str], found: list[str]) -> bool:
    """Whether lines match a pattern with `…`."""
    parts = [
        r"(?:.*\n)*" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))) + r" *\n"
        for line in expected
    ]
    return re.fullmatch("".join(parts), "".join(f"{line.rstrip()}\n" for line in found)) is not None
