"""Data structures of an evaluation: frames, tokens, wires, and how payloads are joined."""

from __future__ import annotations

from typing import Any

from tests.simulation.oracle.expr import ANY, MISSING
from tests.simulation.oracle.model import Aggregator, Merge, Params, Path
from tests.simulation.oracle.shape import Shape

Error = str
"""An error is its code: messages are not compared."""

Arrival = tuple[str, Any]
"""A predecessor and the payload it sent."""


class NodeError(Exception):
    """A failed node; `code` is ANY where the documentation defines none."""

    def __init__(self, code: Any) -> None:
        self.code = code


class Wire:
    """One resolved edge; `alive` is None downstream of an undecided race."""

    __slots__ = ("alive", "error", "payload", "visible")

    def __init__(self, alive: bool | None, payload: Any, error: Error | None, visible: int) -> None:
        self.alive, self.payload, self.error, self.visible = alive, payload, error, visible


class Token:
    """One node in one scope; `error` is the value of `$error` downstream."""

    __slots__ = ("error", "status", "value", "visible")

    def __init__(self, status: str, value: Any, error: Error | None, visible: int) -> None:
        self.status, self.value, self.error, self.visible = status, value, error, visible


class Frame:
    """One scope at run time: the root or one item."""

    __slots__ = ("chain", "fans", "index", "item", "path", "tokens", "wires")

    def __init__(self, parent: Frame | None, path: Path, item: Any = MISSING, index: Any = MISSING) -> None:
        self.path, self.item, self.index = path, item, index
        self.chain: tuple[Frame, ...] = (*parent.chain, self) if parent else (self,)
        self.tokens: dict[str, Token] = {}
        self.wires: dict[str, Wire] = {}
        self.fans: dict[str, list[Frame | None] | None] = {}


class ExpressionScope:
    """The names that expressions of one token can read."""

    __slots__ = ("error", "frame", "payload", "shape", "start", "visible")

    def __init__(
        self, shape: Shape, start: Any, frame: Frame, payload: Any, error: Error | None, visible: int
    ) -> None:
        self.shape, self.start, self.frame = shape, start, frame
        self.payload, self.error, self.visible = payload, error, visible

    def lookup(self, name: str) -> Any:
        match name:
            case "json":
                return self.payload
            case "trigger" | "input":
                return self.start
            case "item":
                return self.frame.item
            case "index":
                return self.frame.index
            case "error":
                return MISSING if self.error is None else {"code": self.error}
        if not self.visible & self.shape.bit[name]:
            return MISSING
        token = self.frame.chain[self.shape.depth[name]].tokens.get(name)
        return MISSING if token is None or token.status not in ("success", "failed") else token.value


def union_visible(wires: list[Wire]) -> int:
    mask = 0
    for wire in wires:
        mask |= wire.visible
    return mask


def first_error(wires: list[Wire]) -> Error | None:
    return next((wire.error for wire in wires if wire.error is not None), None)


def error_object(code: Any) -> dict[str, Any]:
    return {"error": {"code": code}}


def join_payload(arrivals: list[Arrival]) -> Any:
    """`$json` at a join: the one payload, or an object by predecessor."""
    by_source = dict(arrivals)
    return arrivals[0][1] if len(by_source) == 1 else by_source


def merge_payloads(params: Merge, arrivals: list[Arrival]) -> Any:
    """The output of a merge; with `any` it is the payload of the winner in every mode."""
    if params.wait_mode == "any":
        return arrivals[0][1]
    if params.mode == "append":
        return [payload for _, payload in arrivals]
    if params.mode == "object":
        return dict(arrivals)
    union: dict[str, Any] = {}
    for _, payload in arrivals:
        if not isinstance(payload, dict):
            raise NodeError(ANY)
        union.update(payload)
    return union


def too_many(params: Params, failed: int, total: int) -> bool:
    tolerate = params.tolerate if isinstance(params, Aggregator) else None
    if tolerate is None:
        return False
    if isinstance(tolerate, str):
        return failed * 100 > float(tolerate.rstrip("%")) * total
    return bool(failed > tolerate)
