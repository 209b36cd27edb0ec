"""Tokens, the paths that identify their scope, references to values, and ids that follow from a token.

A path is a flat tuple of split and item index, outermost first: `(3, 5, 7, 2)` is item 2 of split 7 inside item 5 of
split 3. Flat integers hash fast and sort item 10 after item 2. Ids are deterministic: every process derives the same id
for the same token, timer or effect.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal

import msgspec

Path = tuple[int, ...]
ROOT: Path = ()

_CHILD_ID = re.compile("c[0-9a-f]{30}")


def parent(path: Path) -> Path:
    """Return the path of the enclosing scope."""
    return path[:-2]


def within(path: Path, outer: Path) -> bool:
    """Return whether `path` is `outer` or inside it."""
    return path[: len(outer)] == outer


def path_text(path: Path, ids: Sequence[str]) -> str:
    """Format a path: `/` for the root, `/users:5/orders:2` inside items."""
    if not path:
        return "/"
    return "".join(f"/{ids[path[i]]}:{path[i + 1]}" for i in range(0, len(path), 2))


def indices(path: Path) -> tuple[int, ...]:
    """Return the item indices, outermost first."""
    return path[1::2]


def parse_path(text: str, index: Mapping[str, int]) -> Path | None:
    """Parse a path such as `users:5/orders:2`; None if it names no item of known splits."""
    path: list[int] = []
    for part in text.strip("/").split("/"):
        split, colon, item = part.rpartition(":")
        if not colon or split not in index or not (item.isascii() and item.isdecimal()):
            return None
        path += (index[split], int(item))
    return tuple(path)


class Frame(msgspec.Struct, frozen=True):
    """One level of a lineage: an item of a split."""

    split_node_id: str
    branch_id: str
    item_index: int
    total_items: int | None


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a value is stored. Tokens carry references, never values.

    `start`: the start payload. `result`: the output of a node. `item`: an item of a fan-out (`path` ends with its
    frame). `entered`: the payloads that arrived at a join, by predecessor id, listed in the result of that join.
    """

    kind: Literal["start", "result", "item", "entered"]
    node: int = -1
    path: Path = ROOT


START = Ref("start")


class Arrived(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A live arrival that opened a join: its edge and payload."""

    edge: int
    payload: Ref


class TokenPurpose(Enum):
    """Why a token exists. Only `run` executes a node; the others end by the rules alone."""

    RUN = "run"
    SKIP = "skip"  # every in-edge is dead
    UNREACHABLE = "unreachable"  # too few live arrivals remain possible
    DISPATCH = "dispatch"  # a fan-out has items left to start
    EXPIRE = "expire"  # a join waited too long
    OVERDUE = "overdue"  # the signal did not arrive in time


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
    signal: str | None = None  # id of the signal that resumed it
    items: int = 0
    at: int = 0
    last: int = -1  # of a join: the position of its last arrival among its in-edges

    @property
    def key(self) -> tuple[int, Path]:
        return (self.node, self.path)


def token_name(node: int, path: Path, ids: Sequence[str]) -> str:
    """Return the deterministic id of a token, such as `price@/users:5/orders:2`."""
    return f"{ids[node]}@{path_text(path, ids)}"


def fraction(*parts: object) -> float:
    """Return a number in [0, 1) that depends only on the parts: jitter that every process computes alike."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def idempotency_key(root_execution: str, token_name: str) -> str:
    """Return the idempotency key of an external effect. It is the same for every attempt and resume of the token."""
    return f"{root_execution}:{token_name}"


def child_id(parent: str, token_name: str, attempt: int) -> str:
    """Return the id of the child execution of one attempt, the same for every delivery of that attempt."""
    parts = "\x1f".join((parent, token_name, str(attempt)))
    return "c" + hashlib.blake2b(parts.encode(), digest_size=15).hexdigest()


def is_child_id(text: str) -> bool:
    """Return whether a text has the form of the id of a child execution."""
    return _CHILD_ID.fullmatch(text) is not None
