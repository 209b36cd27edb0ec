"""Measures the first minute of a newcomer: a clone of the last commit, `make run`, a browser, one click on an example.

The clone has no environment, so `make run` installs the runtime packages, from the download cache of pip or uv if this
machine has one. Prints the seconds from the command to each step. Exits with 1 if the first node finishes too late.

python bench/newcomer.py [--rounds 1]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# This folder contains a file with the name of a standard library module.
ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT / "src")

from playwright.sync_api import Browser, sync_playwright  # noqa: E402

GOAL_S = 60
DEADLINE_S = 600
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
STEPS = ("server ready", "page shown", "example started", "first node finished", "execution completed")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        print("chromium is not installed: `make stores` does it", file=sys.stderr)
        return 1
    before = os.getloadavg()[0]
    figures: list[list[float]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                figures.append(measure(browser, Path(folder)))
        browser.close()
    print(
        f"load of the machine: {before:.1f} at the start, {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} CPUs"
    )
    medians = [statistics.median(each) for each in zip(*figures, strict=True)]
    for step, seconds in zip(STEPS, medians, strict=True):
        print(f"{step:24} {seconds:6.1f} s after the command")
    print(f"goal: the first node finished within {GOAL_S} s")
    return 1 if medians[STEPS.index("first node finished")] > GOAL_S else 0


def measure(browser: Browser, folder: Path) -> list[float]:
    """Return the seconds from `make run` to each step."""
    clone = folder / "rune"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    left_out = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"RUNE_HOME": str(folder / "home"), "PYTHONUNBUFFERED": "1"}
    context = browser.new_context(viewport={"width": 1360, "height": 860})
    page = context.new_page()
    page.set_default_timeout(DEADLINE_S * 1_000)
    times: list[float] = []
    began = time.monotonic()

    def note() -> None:
        times.append(time.monotonic() - began)

    running = subprocess.Popen(
        ["make", "run"],
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        page.goto(url_of(running))
        note()
        page.get_by_role("heading", name="Welcome to Rune").wait_for()
        note()
        page.get_by_role("button", name=re.compile("^Run ")).click()
        page.wait_for_url(re.compile("/executions/x"))
        note()
        page.locator(".flow-card[data-state='success']").first.wait_for()
        note()
        page.locator(".head .pill", has_text="completed").wait_for()
        note()
    finally:
        context.close()
        os.killpg(running.pid, signal.SIGTERM)
        running.communicate(timeout=DEADLINE_S)
    return times


def url_of(running: subprocess.Popen[str]) -> str:
    """Return the address that `make run` prints."""
    assert running.stdout is not None
    said: list[str] = []
    for line in running.stdout:
        said.append(line)
        if found := re.search(r"https?://[\w.:\[\]-]+", line):
            return found.group()
    raise RuntimeError("`make run` ended:\n" + "".join(said))


if __name__ == "__main__":
    sys.exit(main())
