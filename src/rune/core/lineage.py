"""Lineage: which item of which split a token is inside of.

A path is a flat tuple of split and item index, outermost first: `(3, 5, 7, 2)` is item 2 of split 7 inside
item 5 of split 3. Flat integers hash fast and sort item 10 behind item 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Path = tuple[int, ...]
ROOT: Path = ()


def parent(path: Path) -> Path:
    """The scope around this one."""
    return path[:-2]


def within(path: Path, outer: Path) -> bool:
    """Whether `path` is `outer` or lies inside it."""
    return path[: len(outer)] == outer


def path_text(path: Path, ids: Sequence[str]) -> str:
    """The readable form: `/` for the root, `/users:5/orders:2` inside items."""
    if not path:
        return "/"
    return "".join(f"/{ids[path[i]]}:{path[i + 1]}" for i in range(0, len(path), 2))


def indices(path: Path) -> tuple[int, ...]:
    """The item indices alone, outermost first."""
    return path[1::2]


def parse_path(text: str, index: Mapping[str, int]) -> Path | None:
    """A path from its readable form, `users:5/orders:2`; None if it names no item of known splits."""
    path: list[int] = []
    for part in text.strip("/").split("/"):
        split, colon, item = part.rpartition(":")
        if not colon or split not in index or not (item.isascii() and item.isdecimal()):
            return None
        path += (index[split], int(item))
    return tuple(path)
