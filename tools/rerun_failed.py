"""Run the tests that failed in the parallel run once more, one after the other.

Some tests measure times or start several servers, and a machine that is busy with other tests or other tenants can
make them late. A test that fails alone as well fails the run; so do more failures than such a machine explains.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".cache/pytest/v/cache/lastfailed")
LIMIT = 25


def main() -> int:
    """Return the exit code of the second run. The argument is that of the first, which is 1 if all tests ran."""
    if sys.argv[1] != "1":
        return int(sys.argv[1])
    names = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not names or len(names) > LIMIT:
        print(f"{len(names)} tests failed; up to {LIMIT} are run again", file=sys.stderr)
        return 1
    print(f"\nRunning {len(names)} failed tests again, one after the other:", *names, sep="\n  ", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *names], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
