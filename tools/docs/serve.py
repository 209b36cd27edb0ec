"""Serves the site while its pages are edited: `make docs-serve`.

    python -m tools.docs.serve [--port N] [--site FOLDER] [--watch PATH]... -- BUILD COMMAND

Looks for changed files once a second and runs the build command again after a change. Reload the page in the browser
afterwards. A build that fails prints why and leaves the pages as they are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools.docs.__main__ import SITE
from tools.docs.staging import ROOT

WATCHED = ("docs", "examples", "src/rune", "tools/docs", "CHANGELOG.md", "CONTRIBUTING.md")
PAUSE_S = 1.0


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Requests are not printed; what the build prints would be lost between them."""


def times(paths: Iterable[Path]) -> dict[Path, int]:
    """Return when each file was last changed."""
    found: dict[Path, int] = {}
    for path in paths:
        for file in [path] if path.is_file() else path.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                found[file] = file.stat().st_mtime_ns
    return found


def changed(before: Mapping[Path, int], after: Mapping[Path, int]) -> list[Path]:
    """Return the files that were added, changed or removed."""
    return sorted(each for each in before.keys() | after.keys() if before.get(each) != after.get(each))


def watch(paths: list[Path], before: Mapping[Path, int], build: list[str], stop: threading.Event) -> None:
    """Run the build command after each change since `before`, until stopped."""
    while not stop.wait(PAUSE_S):
        after = times(paths)
        found = changed(before, after)
        if found:
            print(f"{found[0].name} changed, building", flush=True)
            done = subprocess.run(build, cwd=ROOT, check=False)
            print("built" if done.returncode == 0 else "the build failed", flush=True)
        before = after


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8000, help="0 chooses a free one")
    parser.add_argument("--site", type=Path, default=SITE)
    parser.add_argument("--watch", type=Path, action="append")
    parser.add_argument("build", nargs="+")
    given = parser.parse_args()
    paths = given.watch or [ROOT / each for each in WATCHED]
    server = ThreadingHTTPServer(
        ("127.0.0.1", given.port), partial(_Handler, directory=str(given.site.resolve()))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    before = times(paths)  # a change after the address is printed must not be missed
    print(f"http://127.0.0.1:{server.server_port}/index.html", flush=True)
    try:
        watch(paths, before, given.build, threading.Event())
    except KeyboardInterrupt:
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
