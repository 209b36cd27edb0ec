"""Runs the same jobs on Rune and on other engines, one after the other on this machine, and prints a table.

    python bench/peers/run.py [--only NAME ...] [--quick] [--markdown FILE]

Each engine is installed into a virtual environment of its own under `.cache/peers` and runs against new servers. An
engine that cannot be installed or fails is listed with the reason. `bench/peers/figures.py` describes the jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.cluster_load import new_folder
from tests.support.services.postgres import new_server
from tests.support.services.redis_server import RedisServer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache" / "peers"
JOBS = ("chain", "fan", "latency-1", "latency-3")
HEADINGS = ("chains of 10, steps/s", "fan-out, items/s", "1 step, ms", "3 steps, ms")
TIMEOUT_S = 1_200.0
Rows = dict[str, dict[str, float] | str]


class Peer(NamedTuple):
    """An engine: what to install, its program, how many of each it runs, and its place in words."""

    requirement: str
    program: str
    chains: int
    items: int
    samples: int
    stores: str


PEERS: Mapping[str, Peer] = {
    "Celery": Peer("celery[redis]==5.7.0", "celery_peer.py", 200, 2_000, 100, "Redis"),
    "DBOS": Peer("dbos==3.3.0", "dbos_peer.py", 100, 500, 100, "PostgreSQL"),
    "Prefect": Peer("prefect<4 fastapi<0.120", "prefect_peer.py", 10, 100, 10, "Prefect server, SQLite"),
    "n8n": Peer("n8n@1", "n8n_peer.py", 200, 2_000, 100, "SQLite"),
}
RUNE = {"Rune embedded": "embedded", "Rune on Redis": "redis", "Rune on RabbitMQ": "rabbitmq"}


class InstallError(Exception):
    """An engine could not be installed."""


def install(name: str, peer: Peer) -> Path:
    """Install an engine and return the interpreter or program that runs it."""
    folder = CACHE / name.lower()
    if name == "n8n":
        return _install_n8n(folder, peer.requirement)
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _command([sys.executable, "-m", "venv", str(folder)])
        uv = Path(sys.executable).with_name("uv")
        pip = [str(uv), "pip", "install", "--python", str(python)] if uv.exists() else _pip(python)
        _command([*pip, "--quiet", *peer.requirement.split()])
        (folder / "installed").touch()
    return python


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check"]


def _install_n8n(folder: Path, requirement: str) -> Path:
    program = folder / "node_modules" / ".bin" / "n8n"
    if not (folder / "installed").exists():
        npm = shutil.which("npm")
        if npm is None:
            raise InstallError("npm is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        _command([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), requirement])
        (folder / "installed").touch()
    return program


def _command(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise InstallError(lines[-1])


def measure_peer(name: str, scale: float) -> dict[str, float]:
    """Install and run one engine with servers of its own."""
    peer = PEERS[name]
    program = install(name, peer)
    with new_folder("rune-peers-") as folder, ExitStack() as servers:
        files = folder / "files"
        files.mkdir()
        redis = RedisServer("--appendonly", "yes", "--appendfsync", "everysec")
        servers.callback(redis.stop)
        postgres = new_server(folder, shared_buffers="256MB", max_wal_size="1GB")
        servers.callback(postgres.stop)
        environment = {"PEER_REDIS": f"redis+socket://{redis.socket}", "PEER_N8N": str(program)}
        python = sys.executable if name == "n8n" else str(program)
        words = [python, str(HERE / peer.program), *_sizes(peer, scale)]
        words += ["--postgres", postgres.create("peer"), "--folder", str(files)]
        return figures(words, environment)


def _sizes(peer: Peer, scale: float) -> list[str]:
    sizes = {"--chains": peer.chains, "--items": peer.items, "--samples": peer.samples}
    return [word for name, size in sizes.items() for word in (name, str(max(5, int(size * scale))))]


def measure_rune(backend: str, scale: float) -> dict[str, float]:
    """Run the jobs on one backend of Rune."""
    peer = Peer("", "", 1_000, 10_000, 200, "")
    words = [sys.executable, "-m", "bench.peers.rune_peer", "--backend", backend, *_sizes(peer, scale)]
    return figures(words, {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))})


def figures(words: list[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Run a program and return the figures that it prints."""
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = [json.loads(each) for each in done.stdout.splitlines() if each.startswith('{"job"')]
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}")
    return {each["job"]: each["value"] for each in lines}


def table(rows: Rows) -> str:
    """Return the figures as a Markdown table; a job without a figure is empty."""
    lines = ["| engine | " + " | ".join(HEADINGS) + " |", "|---|" + "---|" * len(HEADINGS)]
    for name, row in rows.items():
        if isinstance(row, str):
            reason = " ".join(row.replace("|", "\\|").split())
            lines.append(f"| {name} | {reason} |" + " |" * (len(HEADINGS) - 1))
        else:
            lines.append(f"| {name} | " + " | ".join(_cell(row.get(job)) for job in JOBS) + " |")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    if value is None:
        return "no figure"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def machine() -> str:
    """Describe the machine and the interpreter."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.machine()}, {python}"


def attempt(name: str, work: Callable[[], dict[str, float]]) -> dict[str, float] | str:
    """Return the figures of an engine, or the reason why there are none, so that the run goes on."""
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        return work()
    except InstallError as error:
        return f"could not be installed here: {error}"
    except Exception as error:  # the figures of the others do not depend on this engine
        return f"failed here: {str(error) or type(error).__name__}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[*RUNE, *PEERS], default=[*RUNE, *PEERS])
    parser.add_argument("--quick", action="store_true", help="run a tenth of each job")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    scale = 0.1 if given.quick else 1.0
    rows: Rows = {}
    for name in given.only:
        if name in RUNE:
            rows[name] = attempt(name, partial(measure_rune, RUNE[name], scale))
        else:
            rows[name] = attempt(name, partial(measure_peer, name, scale))
    text = f"{table(rows)}\n\n{machine()}\n"
    print(text)
    if given.markdown is not None:
        given.markdown.parent.mkdir(parents=True, exist_ok=True)
        given.markdown.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
