"""Makes a release: `make release VERSION=0.2.0`, or only the files of one: `make dist`.

    python -m tools.release prepare VERSION   set the version, date the changelog, commit, tag
    python -m tools.release build             dist/: wheel, sdist, SBOM, checksums

Nothing is uploaded, and nothing is pushed.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "pyproject.toml"
PACKAGE = ROOT / "src" / "rune" / "__init__.py"
CHANGELOG = ROOT / "CHANGELOG.md"
LOCK = ROOT / "requirements.lock"
DIST = ROOT / "dist"
NAME = "rune-engine"

_PROJECT_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_PACKAGE_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_UNRELEASED = re.compile(r"^## \[Unreleased\]\n(.*?)(?=^## \[)", re.MULTILINE | re.DOTALL)
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class ReleaseError(Exception):
    """The release cannot be made; nothing has been changed."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="set the version, date the changelog, commit, tag").add_argument(
        "version"
    )
    commands.add_parser("build", help="write wheel, sdist, SBOM and checksums into dist/")
    arguments = parser.parse_args()
    try:
        if arguments.command == "prepare":
            prepare(arguments.version, datetime.datetime.now(datetime.UTC).date())
        else:
            build()
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(version: str, date: datetime.date) -> None:
    """Commit and tag the version. Everything is checked before the first file is written."""
    if _git("status", "--porcelain"):
        raise ReleaseError("there are uncommitted changes")
    if _git("tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists")
    texts = {
        PROJECT: with_version(PROJECT.read_text(), _PROJECT_VERSION, version),
        PACKAGE: with_version(PACKAGE.read_text(), _PACKAGE_VERSION, version),
        CHANGELOG: dated(CHANGELOG.read_text(), version, date),
    }
    for path, text in texts.items():
        path.write_text(text)
    _git("add", *map(str, texts))
    _git("commit", "--quiet", "--message", f"Release {version}")
    _git("tag", "--annotate", f"v{version}", "--message", f"Rune {version}")
    print(f"committed and tagged v{version}")


def with_version(text: str, pattern: re.Pattern[str], version: str) -> str:
    """Return the text with a newer version at the place of the present one."""
    match = pattern.search(text)
    if match is None:
        raise ReleaseError(f"no line matches {pattern.pattern}")
    try:
        is_newer = Version(version) > Version(match[1])
    except InvalidVersion as error:
        raise ReleaseError(str(error)) from None
    if not is_newer:
        raise ReleaseError(f"{version} is not newer than {match[1]}")
    return text[: match.start(1)] + version + text[match.end(1) :]


def dated(changelog: str, version: str, date: datetime.date) -> str:
    """Return the changelog with the unreleased changes under the version and its date."""
    section = _UNRELEASED.search(changelog)
    if section is None or not section[1].strip():
        raise ReleaseError("the changelog has no unreleased changes")
    heading = f"## [Unreleased]\n\n## [{version}] - {date:%Y-%m-%d}\n"
    return changelog[: section.start()] + heading + section[1] + changelog[section.end() :]


def build() -> None:
    """Write the files of a release. The same commit gives the same bytes of wheel and sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(DIST)], cwd=ROOT, check=True)
    version = _PROJECT_VERSION.search(PROJECT.read_text())
    if version is None:
        raise ReleaseError("pyproject.toml has no version")
    (DIST / f"{NAME}-{version[1]}.cdx.json").write_text(bill_of_materials(LOCK.read_text(), version[1]))
    (DIST / "SHA256SUMS").write_text("".join(checksums(DIST)))
    for path in sorted(DIST.iterdir()):
        print(path.relative_to(ROOT))


def bill_of_materials(lock: str, version: str) -> str:
    """Return what `requirements.lock` installs as CycloneDX JSON: names, versions and the hashes of the files."""
    bom = Bom()
    bom.metadata.component = Component(
        name=NAME,
        version=version,
        type=ComponentType.APPLICATION,
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        purl=PackageURL("pypi", None, NAME, version),
    )
    components = list(_locked(lock))
    bom.components.update(components)
    bom.register_dependency(bom.metadata.component, components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _locked(lock: str) -> Iterator[Component]:
    pins = list(_PIN.finditer(lock))
    for at, pin in enumerate(pins):
        end = pins[at + 1].start() if at + 1 < len(pins) else len(lock)
        yield Component(
            name=pin[1],
            version=pin[2],
            type=ComponentType.LIBRARY,
            purl=PackageURL("pypi", None, pin[1], pin[2]),
            bom_ref=f"{pin[1]}@{pin[2]}",
            hashes=[
                HashType(alg=HashAlgorithm.SHA_256, content=digest)
                for digest in _HASH.findall(lock, pin.end(), end)
            ],
        )


def checksums(folder: Path) -> Iterator[str]:
    """Yield the lines of SHA256SUMS, as `sha256sum --check` reads them."""
    for path in sorted(folder.iterdir()):
        if path.name != "SHA256SUMS":
            yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
