"""Install each fault in turn and run its test: the test must fail.

python -m tests.faults [--only KEY…] [--jobs 2]
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.faults.change import StaleFaultError, check
from tests.faults.hook import ROOT, environment
from tests.faults.registry import ALL_FAULTS

TIMEOUT_S = 180.0  # s; a test that takes longer hangs
BACKENDS = ("embedded", "redis", "rabbitmq")

_REASON = re.compile(r"^E\s+(.*)$", re.MULTILINE)
_ASSERTIONS = ("assert ", "AssertionError", "Failed: DID NOT RAISE")
_HUNG = re.compile(r"\bTimeoutError\b|waited \d+ s in vain|nothing will ever happen")
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^[\s]+)", re.MULTILINE)


class Verdict(NamedTuple):
    """The result of one fault."""

    key: str
    word: str
    seconds: float
    detail: str

    @property
    def good(self) -> bool:
        return self.word in ("red", "hung")


def path_of(test: str) -> str:
    """Return the path of a test; tests without a folder are in `tests/hazards`."""
    return test if test.startswith("tests/") else f"tests/hazards/{test}"


def selection_of(test: str) -> list[str]:
    """Return the arguments of pytest that select a test; `name[redis]` selects all its cases on that backend."""
    name, _, case = test.partition("[")
    if case.rstrip("]") in BACKENDS:
        return [path_of(name), "-k", f"[{case.rstrip(']')}"]
    return [path_of(test)]


def run_tests(table: str, name: str, arguments: Iterable[str], *, patience: float) -> tuple[int | None, str]:
    """Run pytest with the fault `name` of `table`; return its exit status (None if it was stopped) and its output."""
    with tempfile.TemporaryDirectory(prefix="rune-fault-") as made:
        folder = Path(made)
        variables = {
            **environment(table, name, folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        }
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short"]
        command += ["-o", f"cache_dir={folder / 'pytest'}"]
        with subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the servers that it started
                return None, f"stopped after {patience:.0f} s"
        return process.returncode, output


def judge(key: str) -> Verdict:
    """Install one fault and see whether its test detects it."""
    began = time.perf_counter()
    entry = ALL_FAULTS[key]
    try:
        check(entry.changes)
    except (StaleFaultError, ImportError) as error:
        return Verdict(key, "STALE", time.perf_counter() - began, str(error))
    status, output = run_tests(
        "tests.faults.registry:ALL_FAULTS", key, ["-x", *selection_of(entry.test)], patience=TIMEOUT_S
    )
    reasons = [each.strip() for each in _REASON.findall(output) if each.strip()]
    reason = reasons[0] if reasons else output.strip()[-200:]
    waited = next((each for each in reasons if _HUNG.search(each)), None)
    if status is None or waited is not None:
        reason = waited or output
        word = "hung" if entry.hangs and status is not None else "HANGS"
    else:
        word = {0: "GREEN", 1: "red"}.get(status, "ERROR")
        if word == "red" and not reason.startswith(_ASSERTIONS):
            word = "ERROR"  # an assertion has to state the reason
        if word == "red" and entry.hangs:
            word, reason = "HANGS", "marked as hanging, but it fails at once"
    return Verdict(key, word, time.perf_counter() - began, reason)


def find_failing(keys: Iterable[str]) -> dict[str, Verdict]:
    """Return the faults whose test fails without any fault."""
    tests = {key: ALL_FAULTS[key].test for key in keys}
    paths = dict.fromkeys(selection_of(each)[0] for each in tests.values())
    status, output = run_tests("tests.faults.registry:NO_FAULT", "none", paths, patience=10 * TIMEOUT_S)
    if status == 0:
        return {}
    failed = set(_FAILED.findall(output))
    found = {
        key: Verdict(key, "ILL", 0.0, "fails without any fault")
        for key, test in tests.items()
        if path_of(test).partition("[")[0] in failed
    }
    return found or {key: Verdict(key, "ILL", 0.0, output.strip()[-200:]) for key in tests}


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY", help="keys to try (all)")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    unknown = [each for each in options.only if each not in ALL_FAULTS]
    if unknown:
        parser.error(f"no such key: {', '.join(unknown)}")
    keys = options.only or list(ALL_FAULTS)
    # The processes of the tests write no compiled files, so that none of them has to compile everything again.
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src", "tests"], cwd=ROOT, check=True)
    failing = find_failing(keys)
    bad = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for each in pool.map(lambda key: failing.get(key) or judge(key), keys):
            detail = " ".join(each.detail.split())[:110]
            _print(f"{each.word:5}  {each.key:14} {each.seconds:5.1f} s  {detail}")
            bad += [] if each.good else [each.key]
    _print(f"faults: {len(keys) - len(bad)} of {len(keys)} detected")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
