"""The pictures of the documentation: screens in both themes, the main ones on a phone, all of them shown."""

from __future__ import annotations

import struct
import zlib

from tests.acceptance.browser.test_screens import OPENED, SCREENS
from tests.lint.tree import ROOT
from tests.support.each import for_each
from tools import copy_pictures

PICTURES = ROOT / "docs" / "pictures"
MAX_BYTES = 8_000_000
CLIPS = {"editor.png": ("editor.md", 6), "clip-retry.png": ("ui.md", 5), "clip-fan-out.png": ("ui.md", 4)}
"""The animated pictures, the page that shows each, and how many frames it has at least."""
MAX_CLIP_BYTES = 1_500_000


def looks() -> dict[str, set[str]]:
    """The looks of the pictures by the name of their screen."""
    found: dict[str, set[str]] = {}
    for path in PICTURES.glob("*.png"):
        look = copy_pictures.look_of(path.stem)
        if look:
            found.setdefault(path.stem.removesuffix(f"-{look}"), set()).add(look)
    return found


def test_each_picture_is_of_a_screen_in_both_themes() -> None:
    found = looks()

    assert set(found) <= {*SCREENS, *OPENED}, "run `make pictures`"
    assert len(found) >= 30
    assert [name for name, each in found.items() if not {"light", "dark"} <= each] == []
    assert {name for name, each in found.items() if {"phone", "phone-dark"} <= each} == {
        *copy_pictures.ON_PHONE
    }


def test_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in PICTURES.glob("*.png")) <= MAX_BYTES


def test_each_picture_is_shown_in_the_documentation() -> None:
    page = (ROOT / "docs" / "ui.md").read_text(encoding="utf-8")

    names = [path.name for path in PICTURES.glob("*.png") if copy_pictures.look_of(path.stem)]
    assert [name for name in names if f"(pictures/{name})" not in page] == []


@for_each("clip", CLIPS)
def test_clip_is_animated_small_and_shown_on_its_page(clip: str) -> None:
    place, least = CLIPS[clip]
    page = (ROOT / "docs" / place).read_text(encoding="utf-8")
    data = (PICTURES / clip).read_bytes()
    (animation,) = (body for kind, body in copy_pictures.chunks(data) if kind == b"acTL")
    frames, repetitions = struct.unpack(">II", animation)

    assert frames >= least, "run `make clip`"
    assert repetitions == 0, "it starts again"
    assert len(data) <= MAX_CLIP_BYTES
    assert f"(pictures/{clip})" in page


def test_compressed_picture_has_the_same_pixels() -> None:
    rows = b"".join(b"\0" + bytes([each, 0, 0]) * 40 for each in range(40))
    head = struct.pack(">IIBBBBB", 40, 40, 8, 2, 0, 0, 0)
    quick = zlib.compress(rows, 1)
    parts = [(b"IHDR", head), (b"IDAT", quick[:50]), (b"IDAT", quick[50:]), (b"IEND", b"")]
    made = copy_pictures.SIGNATURE + b"".join(copy_pictures.chunk(*each) for each in parts)

    smaller = copy_pictures.compressed(made)

    assert len(smaller) < len(made)
    found = dict(copy_pictures.chunks(smaller))
    assert (found[b"IHDR"], zlib.decompress(found[b"IDAT"])) == (head, rows)
