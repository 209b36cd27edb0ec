"""Prints what a job does per unit, and the functions that it calls most.

python -m tests.integration.counts fan-effect-10k [--most 60]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.integration.counts.runs import COUNTED, count_embedded
from tests.support.work_counts import LOAD, PACKAGE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=COUNTED)
    parser.add_argument("--most", type=int, default=60, help="number of functions")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rune-counts-") as folder:
        counts, units = count_embedded(given.job, Path(folder))
    lines = [f"{number / units:10.2f}  {name}" for name, number in counts.totals().items()]
    lines += [f"{number / units:10.2f}  {text}" for text, number in counts.statements.most_common()]
    called = [
        (code, number) for code, number in counts.codes.most_common() if not code.co_filename.startswith(LOAD)
    ]
    for code, number in called[: given.most]:
        path = code.co_filename.removeprefix(PACKAGE)
        lines.append(f"{number / units:10.2f}  {path}:{getattr(code, 'co_qualname', code.co_name)}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
