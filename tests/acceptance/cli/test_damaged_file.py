"""Commands on a damaged database file."""

from __future__ import annotations

import json
import pathlib
import random
import sqlite3
from contextlib import closing

import pytest

from tests.support.cli_process import Rune
from tests.support.documents import document, node

pytestmark = pytest.mark.long

FLOW = document(
    [node("in", "input"), node("send", "noop", parameters={"effectful": True})], "in>send", id="flow"
)
PAGE_BYTES = 4096
COMMANDS = (
    ("list",),
    ("show", "flow-1"),
    ("watch", "flow-1"),
    ("explain", "flow-1"),
    ("verify", "--all"),
    ("verify", "flow-1"),
    ("workflows",),
    ("workflows", "show", "flow"),
    ("triggers", "list"),
    ("keys", "list"),
    ("audit-log",),
    ("credentials", "list"),
    ("dlq", "list"),
    ("prune", "--older-than", "1d", "--dry-run"),
    ("backup", "copy.db"),
    ("start", "flow"),
    ("cancel", "flow-1"),
)
WRITING_COMMANDS = (
    ("run", "flow.json"),
    ("deploy", "flow.json"),
    ("stats",),
    ("items", "flow-1"),
    ("waiting",),
    ("doctor",),
    ("logs", "flow-1"),
    ("value", "flow-1"),
    ("show", "flow-1", "--graph"),
    ("retry", "flow-1"),
    ("bulk", "list"),
    ("handlers", "set", "--on-failure", "flow"),
    ("keys", "create", "ci", "--role", "runner"),
    ("prune", "--older-than", "1d", "--vacuum"),
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a file with a deployed workflow and an execution."""
    folder = tmp_path_factory.mktemp("intact")
    rune = Rune(folder / "home")
    (folder / "flow.json").write_text(json.dumps(FLOW))
    assert rune("deploy", str(folder / "flow.json")).returncode == 0
    assert rune("run", str(folder / "flow.json"), "--id", "flow-1").returncode == 0
    return (folder / "home" / "rune.db").read_bytes()


def _damage_pages(content: bytes) -> bytes:
    """Overwrite every page but the first, which has the header and the schema."""
    return content[:PAGE_BYTES] + b"\xa5" * (len(content) - PAGE_BYTES)


def _damage_header(content: bytes) -> bytes:
    return b"\xa5" * PAGE_BYTES + content[PAGE_BYTES:]


def _truncate(content: bytes) -> bytes:
    return content[: 2 * PAGE_BYTES]


def _empty(content: bytes) -> bytes:
    return content[:0]


@pytest.mark.parametrize("damage", [_damage_pages, _damage_header, _truncate, _empty])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_on_damaged_file_names_file_and_restore(
    command: tuple[str, ...], damage: object, intact: bytes, tmp_path: pathlib.Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "rune.db").write_bytes(damage(intact))  # type: ignore[operator]
    given = [str(tmp_path / each) if each == "copy.db" else each for each in command]

    done = Rune(home)(*given)

    assert done.returncode == 3, (done.stdout, done.stderr)
    (message,) = done.stderr.strip().splitlines()
    assert str(home / "rune.db") in message
    assert "rune restore" in message


def test_verify_names_every_damaged_execution_and_checks_the_others(
    intact: bytes, tmp_path: pathlib.Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "rune.db").write_bytes(intact)
    rune = Rune(home)
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    for number in (2, 3, 4):
        assert rune("run", str(tmp_path / "flow.json"), "--id", f"flow-{number}").returncode == 0
    with closing(sqlite3.connect(home / "rune.db")) as connection, connection:
        for name in ("flow-2", "flow-3"):
            connection.execute(
                "UPDATE fact SET body = X'00FF' WHERE execution = (SELECT n FROM execution WHERE id = ?)",
                (name,),
            )

    done = rune("verify", "--all")

    assert done.returncode == 1, (done.stdout, done.stderr)
    damaged = [line for line in done.stdout.splitlines() if "violation" in line and "[readable]" in line]
    assert sorted(line.split()[1] for line in damaged) == ["flow-2", "flow-3"]
    assert "4 executions" in done.stdout


@pytest.mark.parametrize(
    ("seed", "flips", "first"), [(1, 80, 2), (2, 80, 2), (3, 5, 2), (4, 20, 25), (5, 60, 45)]
)
def test_no_command_takes_flipped_bytes_for_a_defect(
    seed: int, flips: int, first: int, intact: bytes, tmp_path: pathlib.Path
) -> None:
    """Bytes behind the `first` pages are inverted, which SQLite may notice or not. The first pages have the schema."""
    drawn = random.Random(seed)
    content = bytearray(intact)
    for _ in range(flips):
        content[drawn.randrange(first * PAGE_BYTES, len(content))] ^= 0xFF
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    file = tmp_path / "home" / "rune.db"
    rune = Rune(file.parent)
    for command in (*COMMANDS, *WRITING_COMMANDS):
        file.write_bytes(content)
        for each in ("-wal", "-shm"):
            file.with_name(file.name + each).unlink(missing_ok=True)
        (tmp_path / "copy.db").unlink(missing_ok=True)
        names = {"copy.db", "flow.json"}

        done = rune(*(str(tmp_path / each) if each in names else each for each in command))

        assert done.returncode != 70, (command, done.stderr)
        if done.returncode == 3:
            assert "rune restore" in done.stderr, (command, done.stderr)


def test_doctor_reports_an_empty_file(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "rune.db").touch()

    done = Rune(home)("doctor")

    assert done.returncode == 1, done.stdout
    (line,) = (line for line in done.stdout.splitlines() if "rune.db" in line)
    assert "bad" in line
    assert "empty" in line
