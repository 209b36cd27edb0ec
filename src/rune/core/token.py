"""Tokens and references: what travels, and what it points at."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Literal

import msgspec

from rune.core.lineage import ROOT, Path, path_text


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


class Fate(Enum):
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
    fate: Fate = Fate.RUN
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
