"""Where the processes that tests start find the product and the tests."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"


def python_path(*folders: Path) -> str:
    """The PYTHONPATH of such a process. The inherited one comes first: `tests.faults` installs faults by it."""
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(dict.fromkeys([*inherited, *map(str, folders)]))
