"""Copies the pictures of the screens into the documentation, compressed as far as PNG permits without loss.

    python tools/copy_pictures.py build/pictures docs/pictures

Every screen is copied in both themes as a desktop shows it, the main ones also as a phone does. A picture of a screen
that no longer exists is removed.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

SIGNATURE = b"\x89PNG\r\n\x1a\n"
ON_PHONE = ("overview", "executions", "execution", "failed", "items", "inbox", "decision", "run")
LOOKS = ("light", "dark", "phone", "phone-dark")
"""How the names of pictures end that `make pictures` makes; others are made otherwise and kept."""


def main() -> int:
    source, target = (Path(each) for each in sys.argv[1:])
    wanted = {path.name: path for path in source.glob("*.png") if is_shown(path.stem)}
    if not wanted:
        print(f"{source} has no pictures", file=sys.stderr)
        return 1
    for path in target.glob("*.png"):
        if look_of(path.stem) and path.name not in wanted:
            path.unlink()
    for name, path in sorted(wanted.items()):
        (target / name).write_bytes(compressed(path.read_bytes()))
    total = sum(path.stat().st_size for path in target.glob("*.png"))
    print(f"{len(wanted)} pictures in {target}, {total / 1e6:.1f} MB with those made otherwise")
    return 0


def look_of(name: str) -> str:
    """Return the look that the name of a picture ends with; empty if it has none."""
    return next((each for each in sorted(LOOKS, key=len, reverse=True) if name.endswith(f"-{each}")), "")


def is_shown(name: str) -> bool:
    """Return whether the documentation has this picture."""
    look = look_of(name)
    return look in ("light", "dark") or name.removesuffix(f"-{look}") in ON_PHONE


def compressed(data: bytes) -> bytes:
    """Return a picture with the same pixels, compressed once more; browsers compress quickly, not well."""
    parts = list(chunks(data))
    pixels = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    made = SIGNATURE
    for kind, body in parts:
        if kind == b"IEND":
            made += chunk(b"IDAT", zlib.compress(pixels, 9))
        if kind != b"IDAT":
            made += chunk(kind, body)
    return min(made, data, key=len)


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks of a PNG, each as its kind and its body."""
    at = len(SIGNATURE)
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        at += 12 + size


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


if __name__ == "__main__":
    sys.exit(main())
