"""Run the tests that a change concerns, the nearest first, for about two minutes: `make test-changed [REF=main]`.

A change concerns a test whose imports reach a changed file. Most tests reach most of the package through the engine, so
those that reach a changed file in the fewest imports come first, as many as fit into the time. How long the tests of a
file take is known from earlier runs (`.cache/test_seconds.json`).
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = ROOT / ".cache" / "test_seconds.json"
ASSUMED_S = 2.0
WORKERS = 2
DOCUMENTS = (
    "docs/",
    "examples/",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Makefile",
    "pyproject.toml",
)


def changed_files(ref: str) -> list[str]:
    """Return the files that differ from the common ancestor with a ref, committed or not."""

    def git(*words: str) -> list[str]:
        return subprocess.run(
            ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.split()

    (base,) = git("merge-base", ref, "HEAD")
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Map the names of the modules of the package, the tests and the tools to their files."""
    found = {}
    for base, folder in (("src", "src/rune"), ("", "tests"), ("", "tools"), ("", "bench")):
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / base).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(path: Path, known: Iterable[str]) -> Iterator[str]:
    """Yield the modules that a file imports, anywhere. Strings count too: processes load modules by name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            names = [node.value.partition(":")[0]]
        yield from (each for each in names if each in known)


def importers(files: dict[str, Path]) -> dict[str, set[str]]:
    """Map each module to those that import it. A test module imports the conftest of each folder above it."""
    found: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for each in imports(path, found):
            found[each].add(name)
        if path.name.startswith("test_"):
            for depth in range(1, len(name.split("."))):
                conftest = ".".join([*name.split(".")[:depth], "conftest"])
                found.get(conftest, set()).add(name)
    return found


def begins(changed: Iterable[str], files: dict[str, Path], root: Path = ROOT) -> set[str]:
    """Return the modules that a change begins with. Another file counts as the modules of its folder."""
    places = {path: name for name, path in files.items()}
    found = set()
    for each in changed:
        path = root / each
        if path in places:
            found.add(places[path])
        elif each.startswith(("src/", "tests/")):
            while path != root and not any(place.parent == path.parent for place in places):
                path = path.parent
            found |= {name for place, name in places.items() if place.parent == path.parent}
    return found


def nearest_tests(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the test files that reach a changed file, nearest first."""
    files = modules(root)
    users = importers(files)
    reached = list(begins(changed, files, root))
    seen = set(reached)
    for name in reached:  # grows
        new = sorted(users[name] - seen)
        seen.update(new)
        reached += new
    tests = [str(files[each].relative_to(root)) for each in reached if files[each].name.startswith("test_")]
    rules = [each for each in tests if each.startswith("tests/lint/")]
    return [*(each for each in tests if each not in rules), *rules]


def within(tests: list[str], seconds: dict[str, float], limit: float) -> list[str]:
    """Return the first tests that take no longer than the limit together, at least one."""
    chosen: list[str] = []
    for each in tests:
        limit -= seconds.get(each, ASSUMED_S)
        if limit < 0 and chosen:
            break
        chosen.append(each)
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ref", nargs="?", default="main")
    parser.add_argument("--seconds", type=float, default=100.0, help="time that the tests may take")
    options = parser.parse_args()
    changed = changed_files(options.ref)
    tests = nearest_tests(changed)
    if any(each.startswith(DOCUMENTS) for each in changed):
        tests = ["tests/lint", *tests]
    known = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    chosen = within(tests, known, options.seconds * WORKERS)
    if not chosen:
        print(f"no test concerns the {len(changed)} changed files")
        return 0
    print(
        f"{len(changed)} changed files concern {len(tests)} test files; the nearest {len(chosen)} run",
        flush=True,
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(WORKERS), *chosen]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
