"""Runs the same jobs on Rune and on other engines, one after the other on this machine, and prints a table.

    python bench/peers/run.py [--only NAME ...] [--scale N] [--markdown FILE] [--page FILE]

All engines are installed first, each into a folder of its own under `.cache/peers`, then each runs against new servers.
An engine that cannot be installed or fails is listed with the reason. The whole takes at most `RUN_S` seconds.
`bench/peers/figures.py` describes the jobs, `bench/peers/install.py` the versions and sizes. `--page` replaces the
table of a page, if the jobs were not scaled and no engine was left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.cluster_load import new_folder
from bench.peers.install import PEERS, InstallError, Peer, install, version
from bench.peers.processes import Budget, run_limited
from rune.bootstrap.interpreter import OPTIMISED, PLAIN, is_this_optimised
from tests.support.services.postgres import new_server
from tests.support.services.redis_server import RedisServer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
JOBS = ("chain", "fan", "latency-1", "latency-3")
HEADINGS = ("chains of 10, steps/s", "fan-out, items/s", "1 step, ms", "3 steps, ms")
RUN_S = 780.0
INSTALL_S = 300.0
ENGINE_S = 150.0
BEGIN, END = "<!-- make bench-peers: begin -->\n", "<!-- make bench-peers: end -->\n"
RUNE = {"Rune embedded": "embedded", "Rune on Redis": "redis", "Rune on RabbitMQ": "rabbitmq"}
Figures = dict[str, float]
Rows = dict[str, Figures | str]


def measure_peer(name: str, program: Path, scale: float, seconds: float) -> Figures:
    """Run one engine with servers of its own."""
    peer = PEERS[name]
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
        return figures(words, environment, seconds)


def _sizes(peer: Peer, scale: float) -> list[str]:
    sizes = {"--chains": peer.chains, "--items": peer.items, "--samples": peer.samples}
    return [word for name, size in sizes.items() for word in (name, str(max(5, int(size * scale))))]


def measure_rune(backend: str, scale: float, seconds: float) -> Figures:
    """Run the jobs on one backend of Rune, and their limits."""
    peer = Peer((), "", 1_000, 10_000, 200, "")
    words = [sys.executable, "-m", "bench.peers.rune_peer", "--backend", backend, *_sizes(peer, scale)]
    return figures(words, {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}, seconds)


def figures(words: list[str], environment: Mapping[str, str], seconds: float) -> Figures:
    """Run a program and return the figures that it prints."""
    done = run_limited(words, seconds, environment, ROOT)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise RuntimeError(f"exit code {done.returncode}: {last}")
    lines = [json.loads(each) for each in done.stdout.splitlines() if each.startswith('{"job"')]
    return {each["job"]: each["value"] for each in lines}


def table(rows: Rows) -> str:
    """Return the figures as a Markdown table; below an engine its limit, if that was measured."""
    lines = ["| engine | " + " | ".join(HEADINGS) + " |", "|---|" + "---|" * len(HEADINGS)]
    for name, row in rows.items():
        if isinstance(row, str):
            reason = " ".join(row.replace("|", "\\|").split())
            lines.append(f"| {name} | {reason} |" + " |" * (len(HEADINGS) - 1))
            continue
        lines.append(f"| {name} | " + " | ".join(_cell(row.get(job)) for job in JOBS) + " |")
        limits = [row.get(f"{job}-limit") for job in JOBS]
        if any(limits):
            lines.append(f"| {name}: limit | " + " | ".join(map(_cell, limits)) + " |")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    if value is None:
        return "no figure"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def machine() -> str:
    """Describe the machine and the interpreter."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    built = OPTIMISED if is_this_optimised() else PLAIN
    return f"{os.cpu_count()} cores ({platform.machine()}), {python} ({built})"


def section(rows: Rows, versions: Mapping[str, str], scale: float, load: float) -> str:
    """Return the table of a run, with its date, machine, versions and what it is a part of."""
    day = datetime.now(UTC).date().isoformat()
    jobs = "" if scale == 1 else f", jobs scaled by {scale:g}"
    used = ", ".join(f"{name} {number}" for name, number in versions.items()) or "no other engine"
    about = (
        f"`make bench-peers` of {day}, one run{jobs}: {machine()}; the load average was {load:.1f} before it.\n"
        f"Versions: {used}."
    )
    return f"{about}\n\n{table(rows)}\n"


def replaced(page: str, text: str) -> str:
    """Return a page with this text between its two comments."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def attempt(name: str, work: Callable[[], Figures]) -> Figures | str:
    """Return the figures of an engine, or the reason why there are none, so that the run goes on."""
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        return work()
    except InstallError as error:
        return f"could not be installed here: {error}"
    except Exception as error:  # the figures of the others do not depend on this engine
        return f"failed here: {str(error) or type(error).__name__}"


def installed(names: list[str], budget: Budget) -> dict[str, Path | InstallError]:
    """Install these engines; the value of one that cannot be installed is the reason."""
    found: dict[str, Path | InstallError] = {}
    for name in names:
        print(f"installing {name} …", file=sys.stderr, flush=True)
        try:
            found[name] = install(name, budget.part(INSTALL_S))
        except Exception as error:  # the others are installed all the same
            found[name] = error if isinstance(error, InstallError) else InstallError(str(error))
    return found


def measure(name: str, program: Path | InstallError | None, scale: float, budget: Budget) -> Figures:
    """Run the jobs on one engine that is installed."""
    if isinstance(program, InstallError):
        raise program
    if program is None:
        return measure_rune(RUNE[name], scale, budget.part(ENGINE_S))
    return measure_peer(name, program, scale, budget.part(ENGINE_S))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[*RUNE, *PEERS], default=[*RUNE, *PEERS])
    parser.add_argument("--scale", type=float, default=1.0, help="run this part of each job")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--page", type=Path, help="also replace the table of this page")
    given = parser.parse_args()
    budget, load = Budget(RUN_S), os.getloadavg()[0]
    programs = installed([name for name in given.only if name in PEERS], budget)
    rows: Rows = {
        name: attempt(name, partial(measure, name, programs.get(name), given.scale, budget))
        for name in given.only
    }
    versions = {name: version(name) for name, program in programs.items() if isinstance(program, Path)}
    text = section(rows, versions, given.scale, load)
    print(text)
    if given.markdown is not None:
        given.markdown.parent.mkdir(parents=True, exist_ok=True)
        given.markdown.write_text(text, encoding="utf-8")
    if given.page is not None and given.scale == 1 and {*given.only} == {*RUNE, *PEERS}:
        page = given.page.read_text(encoding="utf-8")
        given.page.write_text(replaced(page, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
