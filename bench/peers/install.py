"""Installs the other engines, each into a folder of its own under `.cache/peers`, in versions that work together."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench.peers.processes import TimeUsedUpError, run_limited

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "peers"
QUERY = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


class Peer(NamedTuple):
    """An engine: what to install, its program, how many of each it runs, and its place in words."""

    requirements: tuple[str, ...]
    program: str
    chains: int
    items: int
    samples: int
    stores: str


PEERS: Mapping[str, Peer] = {
    "Celery": Peer(("celery[redis]==5.7.0",), "celery_peer.py", 200, 2_000, 100, "Redis"),
    "DBOS": Peer(("dbos==3.3.0",), "dbos_peer.py", 100, 500, 100, "PostgreSQL"),
    # The server of Prefect does not start with newer versions of FastAPI.
    "Prefect": Peer(
        ("prefect==3.7.2", "fastapi<0.120"), "prefect_peer.py", 10, 100, 10, "Prefect server, SQLite"
    ),
    "n8n": Peer(("n8n@1.123.81",), "n8n_peer.py", 200, 2_000, 100, "SQLite"),
}


class InstallError(Exception):
    """An engine could not be installed."""


def install(name: str, seconds: float) -> Path:
    """Install an engine within this time and return the interpreter or program that runs it."""
    folder = CACHE / name.lower()
    program = folder / "node_modules" / ".bin" / "n8n" if name == "n8n" else folder / "bin" / "python"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            (_install_node if name == "n8n" else _install_python)(folder, PEERS[name], seconds)
        except TimeUsedUpError as error:
            raise InstallError(str(error)) from None
        (folder / "installed").touch()
    return program


def version(name: str) -> str:
    """Return the version of an engine that is installed."""
    folder = CACHE / name.lower()
    if name == "n8n":
        return str(json.loads((folder / "node_modules" / "n8n" / "package.json").read_text())["version"])
    return run_limited([str(folder / "bin" / "python"), "-c", QUERY, name.lower()], 60).stdout.strip()


def _install_python(folder: Path, peer: Peer, seconds: float) -> None:
    _command([sys.executable, "-m", "venv", str(folder)], seconds)
    python = str(folder / "bin" / "python")
    uv = Path(sys.executable).with_name("uv")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *peer.requirements]
    if not uv.exists():
        _command(pip, seconds)
        return
    try:
        _command([str(uv), "pip", "install", "--quiet", "--python", python, *peer.requirements], seconds)
    except InstallError:
        _command(pip, seconds)  # an index may be configured for pip only


def _install_node(folder: Path, peer: Peer, seconds: float) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("npm is not installed")
    folder.mkdir(parents=True)
    options = ("--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
    _command([npm, "install", *options, "--prefix", str(folder), *peer.requirements], seconds)


def _command(words: list[str], seconds: float) -> None:
    done = run_limited(words, seconds)
    if done.returncode:
        raise InstallError(reason(done.stderr or done.stdout) or f"exit code {done.returncode}")


def reason(printed: str) -> str:
    """Return the line that explains why an installation failed: of npm the first sentence, of others the last line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    of_npm = [line.removeprefix("npm error ") for line in lines if line.startswith("npm error ")]
    sentences = [line for line in of_npm if len(line.split()) > 3]
    return next(iter(sentences or of_npm or lines[-1:]), "")
