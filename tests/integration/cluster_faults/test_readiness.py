"""`/readyz` of the processes of a cluster while a store rejects writes."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.backends import stores
from tests.support.cli_process import until
from tests.support.ledger_nodes import fill_disk
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.postgres import database_of, free_port, server

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of two megabytes for the blobs."""
    mount = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


@pytest.fixture(scope="module")
def processes(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, dict[str, str]]]:
    """A process of each role, and the URL of each `/readyz`."""
    folder = tmp_path_factory.mktemp("cluster")
    with fleet(
        folder, stores(folder), workers=0, schedulers=0, environment={"RUNE_BLOB": f"file://{disk}"}
    ) as made:
        urls = {}
        for role in ("worker", "scheduler"):
            port = free_port()
            made.start(role, "--health-port", str(port)).wait_ready()
            urls[role] = f"http://127.0.0.1:{port}/readyz"
        urls["api"] = f"{made.api().url}/readyz"
        yield made, urls


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def wait_for(urls: dict[str, str], status: int, text: str) -> None:
    """Wait until every process answers with a status and a text."""

    def all_answer() -> bool | None:
        answers = [read(each) for each in urls.values()]
        return all(code == status and text in body for code, body in answers) or None

    until(all_answer, f"every process answers {status} with `{text}`")


def make_read_only(folder: Path) -> Callable[[], None]:
    """Make the database of a cluster refuse writes; return what ends it."""
    name = database_of(folder)
    server().sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    disconnect = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    server().sql(disconnect)

    def end() -> None:
        server().sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        server().sql(disconnect)

    return end


def test_full_disk_of_blobs_is_reported_until_space_is_free(
    processes: tuple[Fleet, dict[str, str]], disk: Path
) -> None:
    _, urls = processes
    wait_for(urls, 200, "ready")
    fill_disk(disk / "filler")
    wait_for(urls, 503, "No space left on device")
    (disk / "filler").unlink()
    wait_for(urls, 200, "ready")
    assert list(disk.iterdir()) == [], "the check leaves no files"


def test_database_that_rejects_writes_is_reported_until_it_accepts_them(
    processes: tuple[Fleet, dict[str, str]],
) -> None:
    made, urls = processes
    wait_for(urls, 200, "ready")
    end = make_read_only(made.folder)
    try:
        wait_for(urls, 503, "read-only transaction")
    finally:
        end()
    wait_for(urls, 200, "ready")
    assert all(each.alive for each in made.processes)
