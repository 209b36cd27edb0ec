"""Run mypy, pyright and ruff on files of Python, and return what they find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import EXAMPLES, ROOT, SOURCE

CUSTOM_NODES = EXAMPLES / "custom-nodes" / "src"


def lines_found_by_mypy(*paths: Path) -> list[str]:
    """The errors of `mypy --strict`, as `file:line`."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--no-error-summary",
        "--python-version=3.11",
    ]
    command += [
        "--follow-imports=silent",
        f"--cache-dir={ROOT / '.cache' / 'mypy-examples'}",
        *map(str, paths),
    ]
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MYPYPATH": os.pathsep.join((str(SOURCE), str(CUSTOM_NODES)))},
    )
    assert found.returncode in (0, 1), found.stdout + found.stderr
    places = [line.split(": error:")[0] for line in found.stdout.splitlines() if ": error:" in line]
    return [f"{Path(file).name}:{line}" for file, line in (place.rsplit(":", 1) for place in places)]


def lines_found_by_pyright(folder: Path) -> list[str]:
    """The errors of pyright in strict mode in the files of a folder, as `file:line`."""
    configuration = {
        "include": ["."],
        "extraPaths": [str(SOURCE), str(CUSTOM_NODES)],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        # An expression statement is how edges are written: `a >> b`.
        "reportUnusedExpression": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(configuration))
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    assert found.returncode in (0, 1), found.stdout + found.stderr
    report = json.loads(found.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    errors = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    return [f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}" for each in errors]


def lines_found_by_ruff(folder: Path) -> str:
    """What the rules of this project find in the files of a folder."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--quiet",
        "--config",
        str(ROOT / "pyproject.toml"),
        "--no-cache",
        str(folder),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
