"""Pin the images of compose.yaml and deploy/Dockerfile to the digests that a registry reports for their tags.

Usage: python tools/pin_images.py

`postgres:16-alpine` becomes `postgres:16-alpine@sha256:…`; a digest that is already there is replaced by the current
one. Needs docker with buildx and access to the registry. Nothing is written unless every image has a digest.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("compose.yaml", "deploy/Dockerfile")
OWN_IMAGE = "rune-engine"
REFERENCE = re.compile(
    r"^(?P<before>\s*image: |FROM )(?P<name>[^\s@]+)(?:@sha256:[0-9a-f]{64})?(?P<after>\s.*)?$", re.MULTILINE
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def find_images(text: str) -> set[str]:
    """Return the names of the images that a file refers to, without their digests."""
    return {match["name"] for match in REFERENCE.finditer(text)} - {OWN_IMAGE}


def pin(text: str, digests: dict[str, str]) -> str:
    """Return the text with a digest behind each image."""

    def pinned(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in digests:
            return match[0]
        return f"{match['before']}{name}@{digests[name]}{match['after'] or ''}"

    return REFERENCE.sub(pinned, text)


def look_up(image: str) -> str:
    """Return the digest that the registry reports for an image."""
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = done.stdout.strip()
    if done.returncode != 0 or not DIGEST.fullmatch(found):
        raise SystemExit(f"no digest for {image}: {done.stderr.strip() or found or 'empty response'}")
    return found


def main(root: Path = ROOT) -> None:
    texts = {root / name: (root / name).read_text(encoding="utf-8") for name in FILES}
    images = sorted(set().union(*map(find_images, texts.values())))
    digests = {image: look_up(image) for image in images}
    for path, text in texts.items():
        path.write_text(pin(text, digests), encoding="utf-8")
    for image, digest in digests.items():
        print(f"{image}@{digest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
