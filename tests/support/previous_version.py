"""The previous version of Rune, whose processes may run beside today's while a cluster is upgraded.

python -m tests.support.previous_version COMMIT     stores what that version writes, for the tests of today's readers
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

STORED = ROOT / "tests/support/previous_version.json"
"""What the previous version writes: its commit, and of each sample its bytes and what that version reads from them."""

PREVIOUS: str = json.loads(STORED.read_text())["commit"] if STORED.exists() else ""
"""The commit of the previous version."""


class MissingVersionError(Exception):
    """The repository does not contain the commit, for example in a shallow clone."""


@contextmanager
def checked_out(folder: Path, ref: str = PREVIOUS) -> Iterator[Path]:
    """Check a version out below a folder while the block runs; its modules need no installation of their own."""
    tree = folder / "previous"
    try:
        _git("worktree", "add", "--quiet", "--detach", "--force", str(tree), ref)
    except subprocess.CalledProcessError as error:
        raise MissingVersionError(
            f"`{ref}` cannot be checked out; a clone without history needs `git fetch --unshallow`:"
            f" {error.stderr.strip()}"
        ) from None
    try:
        yield tree
    finally:
        _git("worktree", "remove", "--force", str(tree))


def environment_of(tree: Path) -> dict[str, str]:
    """Return the variables with which a Python process uses the modules of a tree."""
    return {"PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree)))}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def run_samples(tree: Path, action: str, given: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Write the samples as the version in a tree does (`write`), or read given ones with it (`read`)."""
    done = subprocess.run(
        [sys.executable, "-P", str(ROOT / "tests/support/samples.py"), action],
        env={**os.environ, **environment_of(tree)},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def store(ref: str) -> None:
    """Store what a version writes."""
    commit = _git("rev-parse", ref).strip()
    with tempfile.TemporaryDirectory() as folder, checked_out(Path(folder), commit) as tree:
        written = run_samples(tree, "write")
        read = run_samples(tree, "read", written)
    samples = {name: {"bytes": written[name], "read": read[name]} for name in sorted(written)}
    STORED.write_text(json.dumps({"commit": commit, "samples": samples}, indent=1) + "\n")


if __name__ == "__main__":
    store(sys.argv[1])
