"""Lineage: which item of which split a token is inside of.

A path is a flat tuple of split and item index, outermost first: `(3, 5, 7, 2)` is item 2 of split 7 inside
item 5 of split 3. Flat integers hash fast and sort item 10 behind item 2.

Tokens and references: what travels, and what it points at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal

import msgspec

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


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a value lives. A value is never carried, only named.

    `start`: the start payload. `result`: what a node put out. `item`: an item of a fan-out (`path` ends with
    its frame). `entered`: the payloads that met at a join, by predecessor id, listed in that join's result.
    """

    kind: Literal["start", "result", "item", "entered"]
    node: int = -1
    path: Path = ROOT


START = Ref("start")


class Arrived(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A live arrival that opened a join: by which edge, with what payload."""

    edge: int
    payload: Ref


class TokenPurpose(Enum):
    """Why a token exists. Only `run` ever reaches a node; the others end by the rules alone."""

    RUN = "run"
    SKIP = "skip"  # every way in is dead
    UNREACHABLE = "unreachable"  # too few live arrivals remain possible
    DISPATCH = "dispatch"  # a fan-out has items left to start
    EXPIRE = "expire"  # a join waited too long
    OVERDUE = "overdue"  # the signal it waited for did not come in time


class Token(msgspec.Struct, frozen=True, gc=False):
    """The permission for one node to run once in one lineage."""

    node: int
    path: Path = ROOT
    payload: Ref = START
    error: Ref | None = None
    arrived: tuple[Arrived, ...] = ()
    fate: TokenPurpose = TokenPurpose.RUN
    attempt: int = 1
    resumed: bool = False
    signal: str | None = None  # the one that resumed it
    items: int = 0
    at: int = 0

    @property
    def key(self) -> tuple[int, Path]:
        return (self.node, self.path)


def token_name(node: int, path: Path, ids: Sequence[str]) -> str:
    """The deterministic id of a token: `price@/users:5/orders:2`."""
    return f"{ids[node]}@{path_text(path, ids)}"
