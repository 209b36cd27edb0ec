"""A fresh environment with the built wheel and exactly the packages that it declares.

The packages are linked from the environment of the tests, so that no index is needed. One that the wheel does not
declare, even indirectly, cannot be imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from venv import EnvBuilder

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

TIMEOUT_S = 120


class Environment:
    """A virtual environment outside of the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        EnvBuilder(symlinks=True).create(folder / "venv")
        self._scripts = folder / "venv" / "bin"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "venv" / "lib" / version / "site-packages"

    def install(self, wheel: Path) -> None:
        """Install the wheel, and link the packages it requires."""
        pip = [sys.executable, "-m", "pip", "--python", str(self._scripts / "python")]
        command = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
        (metadata,) = self.packages.glob("rune_engine-*.dist-info")
        for each in required(Distribution.at(metadata)):
            for name in {path.parts[0] for path in each.files or ()} - {"..", "__pycache__"}:
                link = self.packages / name
                if not link.exists():
                    link.symlink_to(Path(str(each.locate_file(name))))

    def begin(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a script of the environment, in the folder around it."""
        inherited = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
        command, *rest = arguments
        return subprocess.Popen(
            [self._scripts / command, *rest],
            cwd=self.folder,
            env={
                **inherited,
                "PATH": f"{self._scripts}:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "RUNE_HOME": str(self.folder / "home"),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the environment to its end."""
        with self.begin(*arguments, **environment) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this repository."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    return wheel


def required(root: Distribution) -> list[Distribution]:
    """Return the distributions that one requires without extras, directly or indirectly."""
    found: dict[str, Distribution] = {}
    open_: list[tuple[Distribution, frozenset[str]]] = [(root, frozenset())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while open_:
        each, extras = open_.pop()
        for line in each.requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
                continue
            name, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                found[name] = distribution(name)
                open_.append((found[name], wanted))
    return list(found.values())
