"""Every example of the help texts of `rune` does its work when it is run."""

from __future__ import annotations

import re
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.deploy.role_stores import create_postgres_users
from tests.support.backends import stores
from tests.support.cli_process import TIMEOUT_S, Rune
from tests.support.help_examples import Folders, help_examples, words_of, write_files
from tests.support.in_process_cli import InProcessCli
from tests.support.services.postgres import database_of
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

KIND = {
    "rune cancel": "waiting",
    "rune pause": "waiting",
    "rune resume": "waiting",
    "rune signal": "waiting",
    "rune waiting": "waiting",
    "rune bulk start pause": "waiting",
    "rune items x019a --limit": "users",
    "rune items": "failed",
    "rune retry": "failed",
    "rune bulk start retry": "failed",
    "rune list --code": "failed",
    "rune rerun x019a --from fetch": "users",
    "rune convert orders.py": "users",
    "rune convert --check": "users",
    "rune backup": "users",
    "rune credentials add": "users",
    "rune dlq": "dead",
}
"""The folder that an example needs, by its beginning; all others: one with executions that have ended."""

SERVING = ("rune up", "rune serve")
CLUSTER = ("rune serve", "rune migrate", "rune workers")
EXAMPLES = help_examples()


def _of(example: str, beginnings: tuple[str, ...]) -> bool:
    return re.sub(r"^[A-Z_]+=\S.*? rune", "rune", example).startswith(beginnings)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("folders"))


@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if not _of(each, SERVING) and not _of(each, CLUSTER)]
)
def test_example_succeeds(
    example: str, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = next((kind for beginning, kind in KIND.items() if example.startswith(beginning)), "ended")
    folders.copy(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    rune = InProcessCli(tmp_path / ".rune")

    words = words_of(_with_ids(example, rune))
    with _owner_for(words, tmp_path / ".rune"):
        done = rune(*words, stdin="secret\n")

    assert done.exit_code == 0, done.output


@contextmanager
def _owner_for(words: list[str], home: Path) -> Iterator[None]:
    """Run a server for a command that waits for an end."""
    if "--wait" not in words:
        yield
        return
    up = UpProcess(home)
    assert up.start("--no-examples").startswith("http")
    try:
        yield
    finally:
        up.stop()


def _with_ids(example: str, rune: InProcessCli) -> str:
    """Put the ids of a key, a bulk job and a dead letter, which cannot be chosen, in place of those of an example."""
    if example.startswith("rune dlq") and "x019a" in example:
        example = example.replace("x019a", rune.json("dlq")["dead_letters"][0]["id"])
    if " k0123456789abcdef" in example:
        example = example.replace("k0123456789abcdef", rune.json("keys", "list")["keys"][0]["id"])
    if " b4f1" in example:
        example = example.replace("b4f1", rune.json("bulk", "list")["jobs"][0]["id"])
    return example.replace("rune bench", "rune bench chain-pure")  # one measure: all of them take minutes


def _serving(example: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a server as an example does, on a free port, and wait until it prints that it is ready."""
    assignment = re.match(r"(\w+)=\$\(openssl rand -hex 32\) ", example)
    if assignment:
        example = example.removeprefix(assignment[0])
        environment[assignment[1]] = secrets.token_hex(32)
    words = words_of(example)
    if words[0] == "up" or words[1] == "api":
        words += ["--port", "0"]
    process = Rune(folder / ".rune", RUNE_RUN_EXAMPLE="false", **environment).begin(*words)
    assert process.stdout is not None
    for line in process.stdout:
        if "is ready" in line or "http://" in line:
            return process
    _, errors = process.communicate(timeout=TIMEOUT_S)
    raise AssertionError(f"`{example}` ended before it was ready: {errors}")


def _stop(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_S)
    return process.returncode


@pytest.mark.parametrize("example", [each for each in EXAMPLES if _of(each, ("rune up",))])
def test_local_server_of_example_serves_until_it_is_stopped(example: str, tmp_path: Path) -> None:
    assert _stop(_serving(example, tmp_path)) == 0


def test_examples_about_a_cluster_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    create_postgres_users(database_of(tmp_path / "users"))
    settings = stores(tmp_path)
    environment = {
        "RUNE_JOURNAL": settings.journal,
        "RUNE_STATE": settings.state,
        "RUNE_QUEUE": settings.queue,
        "RUNE_PREFIX": settings.prefix,
    }
    rune = InProcessCli(tmp_path / ".rune", **environment)
    examples = [each for each in EXAMPLES if _of(each, CLUSTER)]
    rune.json("migrate")

    servers = [_serving(each, tmp_path, **environment) for each in examples if _of(each, SERVING)]
    workers = [each["name"] for each in rune.json("workers")["workers"] if "worker" in each["roles"]]
    done = {
        each: rune(*words_of(each.replace("node1-4711-19e2a", workers[0])))
        for each in examples
        if not _of(each, SERVING)
    }

    assert [_stop(each) for each in servers] == [0] * len(servers)
    assert {each: found.output for each, found in done.items() if found.exit_code} == {}
    assert len(servers) >= 4
    assert len(done) >= 5
