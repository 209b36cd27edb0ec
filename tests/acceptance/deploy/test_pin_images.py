"""`make pin-images` writes the digests of the registry into compose.yaml and the Dockerfile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FILES = ("compose.yaml", "deploy/Dockerfile")
IMAGES = {"python:3.12-slim", "postgres:16-alpine", "redis:7-alpine", "rabbitmq:3.13-alpine"}


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run_with_docker(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run the tool with a `docker` that runs a shell script; its last argument is the image."""
    docker = folder / "bin" / "docker"
    docker.parent.mkdir(exist_ok=True)
    docker.write_text(f"#!/bin/sh\nfor image; do :; done\n{script}\n", encoding="utf-8")
    docker.chmod(0o755)
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "pin_images.py", folder],
        env={**os.environ, "PATH": f"{docker.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def contents(folder: Path) -> str:
    return "".join((folder / name).read_text(encoding="utf-8") for name in FILES)


def pinned(folder: Path) -> dict[str, str]:
    found = re.findall(r"^(?:\s*image: |FROM )(\S+?)(?:@(\S+))?(?: AS \w+)?$", contents(folder), re.MULTILINE)
    return dict(found)


def test_pin_images_writes_digest_of_every_foreign_image(copies: Path) -> None:
    done = run_with_docker(copies, 'echo "sha256:$(echo "$image" | sha256sum | cut -d" " -f1)"')

    assert done.returncode == 0, done.stderr
    digests = pinned(copies)
    assert digests.pop("rune-engine") == ""
    assert digests.keys() == IMAGES
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests.values())
    assert len(set(digests.values())) == len(IMAGES)


def test_committed_files_name_every_foreign_image_with_a_digest() -> None:
    digests = pinned(ROOT)

    assert digests.pop("rune-engine") == ""
    assert digests.keys() == IMAGES
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests.values())


def test_pin_images_again_replaces_digests(copies: Path) -> None:
    for digit in "12":
        assert run_with_docker(copies, f'printf "sha256:%064d" {digit}').returncode == 0

    assert set(pinned(copies).values()) == {"", f"sha256:{2:064d}"}


@pytest.mark.parametrize("script", ["echo no registry >&2; exit 1", "echo latest"])
def test_pin_images_without_digest_changes_nothing(copies: Path, script: str) -> None:
    before = contents(copies)

    done = run_with_docker(copies, script)

    assert done.returncode == 1
    assert "no digest for" in done.stderr
    assert contents(copies) == before
