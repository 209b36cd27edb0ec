"""Measures the web interface against its budgets, in Chromium against `rune up`: 2,000 nodes, 100,000 items.

python bench/ui.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path

# This folder contains a file with the name of a standard library module.
ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT / "src")
sys.path.append(str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402

from tests.acceptance.browser.measurements import BUDGETS, FLAGS, MEASURES, open_site  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    program = shutil.which("chromium")
    if program is None:
        print("chromium is not installed: `make stores` does it", file=sys.stderr)
        return 1
    before = os.getloadavg()[0]
    figures: dict[str, list[float]] = {name: [] for name in BUDGETS}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        up, site = open_site(Path(folder) / "home")
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        for _ in range(options.rounds):
            for measure in MEASURES:
                for name, value in measure(browser, site).items():
                    figures[name].append(value)
        browser.close()
        up.stop(signal.SIGKILL)
    over = 0
    after = os.getloadavg()[0]
    print(f"load of the machine: {before:.1f} at the start, {after:.1f} at the end, {os.cpu_count()} CPUs")
    for name, values in figures.items():
        median, budget = statistics.median(values), BUDGETS[name]
        over += median > budget
        print(f"{name:50} {median:8,.0f}   budget {budget:6,}{'   OVER' if median > budget else ''}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
