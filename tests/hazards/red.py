"""Every hazard's test beside the change that must turn it red: each change is made to a copy, and the test must fail.

python -m tests.hazards.red [--only KEY…] [--jobs 2]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.hazards.reds import broker, cluster, delivery, expressions, master, merge, nodes, routing, split
from tests.hazards.reds.patch import Red

TOP = Path(__file__).resolve().parents[2]
TABLE: dict[str, Red] = {
    **routing.TABLE,
    **delivery.TABLE,
    **broker.TABLE,
    **split.TABLE,
    **merge.TABLE,
    **expressions.TABLE,
    **nodes.TABLE,
    **master.TABLE,
}
EVERYWHERE: dict[str, Red] = {**TABLE, **cluster.TABLE, **master.ELSEWHERE}
"""The same hazards on a cluster have their own tests, and their own changes; so have tests in other folders."""

PATIENCE = 180.0  # s; whatever takes longer hangs without saying so
SHORT = ("src/rune/testing/harness.py", "DEADLINE = 30.0", "DEADLINE = 10.0")
"""In a copy the harness waits less long for an end that may never come."""

_REASON = re.compile(r"^E\s+(.*)$", re.MULTILINE)
_SAYS = ("assert ", "AssertionError", "Failed: DID NOT RAISE")
_HUNG = re.compile(r"\bTimeoutError\b|waited \d+ s in vain|nothing will ever happen")


class Verdict(NamedTuple):
    """What became of one line of the table."""

    key: str
    word: str
    seconds: float
    detail: str

    @property
    def good(self) -> bool:
        return self.word in ("red", "hung")


def copied(where: Path) -> Path:
    """The project as far as a test needs it, compiled, so that no run of a test has to do it again."""
    for part in ("src", "tests", "docs"):
        shutil.copytree(TOP / part, where / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(TOP / "pyproject.toml", where)
    _replaced(where, *SHORT)
    compiling = [sys.executable, "-m", "compileall", "-q", "src", "tests"]
    subprocess.run(compiling, cwd=where, check=True, stdout=subprocess.DEVNULL)
    return where


def _replaced(copy: Path, file: str, old: str, new: str) -> bool:
    target = copy / file
    text = target.read_text() if target.exists() else ""
    if text.count(old) != 1 or old == new:
        return False
    target.unlink()  # its text may be shared with other copies
    target.write_text(text.replace(old, new))
    for stale in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
        stale.unlink()
    return True


def tried(copy: Path, tests: Iterable[str], *options: str) -> tuple[int | None, str]:
    """The exit status of pytest in a copy, and what it said; None if it had to be stopped."""
    paths = [each if each.startswith("tests/") else f"tests/hazards/{each}" for each in tests]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", *options, *paths]
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=PATIENCE * (10 if not options else 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the servers that it started
            return None, f"stopped after {PATIENCE:.0f} s"
    return process.returncode, said


def judged(key: str, base: Path) -> Verdict:
    """Make one change and see whether its test notices."""
    began = time.perf_counter()
    entry = EVERYWHERE[key]
    with tempfile.TemporaryDirectory(prefix="rune-red-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(base, copy, copy_function=os.link)
        for patch in entry.patches:
            if not _replaced(copy, f"src/rune/{patch.file}", patch.old, patch.new):
                detail = f"does not fit {patch.file}: {patch.old.strip().splitlines()[0][:60]}"
                return Verdict(key, "STALE", time.perf_counter() - began, detail)
        status, said = tried(copy, [entry.test], "-x")
    reasons = [each.strip() for each in _REASON.findall(said) if each.strip()]
    reason = reasons[0] if reasons else said.strip()[-200:]
    waited = next((each for each in reasons if _HUNG.search(each)), None)
    if status is None or waited is not None:
        reason = waited or said
        word = "hung" if entry.hangs and status is not None else "HANGS"
    else:
        word = {0: "GREEN", 1: "red"}.get(status or 0, "ERROR")
        if word == "red" and not reason.startswith(_SAYS):
            word = "ERROR"  # it broke down: a test must say what is wrong
        if word == "red" and entry.hangs:
            word, reason = "HANGS", "marked as hanging, but it fails at once"
    return Verdict(key, word, time.perf_counter() - began, reason)


def failing(base: Path, keys: Iterable[str]) -> dict[str, Verdict]:
    """The lines whose test fails already without any change."""
    tests = {key: EVERYWHERE[key].test for key in keys}
    status, said = tried(base, tests.values())
    if status == 0:
        return {}
    failed = set(re.findall(r"^(?:FAILED|ERROR) tests/hazards/([^[\s]+)", said, re.MULTILINE))
    found = {
        key: Verdict(key, "ILL", 0.0, "fails without any change")
        for key, test in tests.items()
        if test.partition("[")[0] in failed
    }
    return found or {key: Verdict(key, "ILL", 0.0, said.strip()[-200:]) for key in tests}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY", help="keys to try (all)")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    unknown = [each for each in options.only if each not in EVERYWHERE]
    if unknown:
        parser.error(f"no such key: {', '.join(unknown)}")
    keys = options.only or list(EVERYWHERE)
    with tempfile.TemporaryDirectory(prefix="rune-red-") as folder:
        base = copied(Path(folder))
        ill = failing(base, keys)
        bad = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for each in pool.map(lambda key: ill.get(key) or judged(key, base), keys):
                _say(
                    f"{each.word:5}  {each.key:14} {each.seconds:5.1f} s  {' '.join(each.detail.split())[:110]}"
                )
                bad += [] if each.good else [each.key]
    _say(f"red: {len(keys) - len(bad)} of {len(keys)} changes are noticed by their test")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
