"""Paths of the product and the tests, for the processes that tests start."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
EXAMPLES = ROOT / "examples"
EXAMPLE_TESTS = sorted(EXAMPLES.rglob("tests.yaml"))
EXAMPLE_WORKFLOWS = sorted(set(EXAMPLES.rglob("*.yaml")) - set(EXAMPLE_TESTS))


def python_path(*folders: Path) -> str:
    """Return a PYTHONPATH. The inherited one comes first, because `tests.faults` installs faults with it."""
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(dict.fromkeys([*inherited, *map(str, folders)]))
