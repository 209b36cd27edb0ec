"""Runs one measure in this process: `python -m rune.cli.bench NAME [SCALE]` prints its report as JSON."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

from rune.cli.bench.measures import MEASURES


def main() -> None:
    """Run the measure given on the command line."""
    name, scale = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    with tempfile.TemporaryDirectory(prefix="rune-bench-") as folder:
        report = asyncio.run(MEASURES[name](Path(folder), scale))
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


if __name__ == "__main__":
    main()
