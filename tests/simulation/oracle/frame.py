"""The values an evaluation is made of: frames, tokens, wires, and how payloads meet."""

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
    """A node run that failed; `code` may be ANY where no document names one."""

    def __init__(self, code: Any) -> None:
        self.code = code


class Wire:
    """One resolved edge: alive True, False, or None where an undecided race lies before it."""

    __slots__ = ("alive", "error", "payload", "seen")

    def __init__(self, alive: bool | None, payload: Any, error: Error | None, seen: int) -> None:
        self.alive, self.payload, self.error, self.seen = alive, payload, error, seen


class Token:
    """One node in one scope; `error` is what `$error` becomes for those behind it."""

    __slots__ = ("error", "seen", "status", "value")

    def __init__(self, status: str, value: Any, error: Error | None, seen: int) -> None:
        self.status, self.value, self.error, self.seen = status, value, error, seen


class Frame:
    """One scope at run time: the root, or one item."""

    __slots__ = ("chain", "fans", "index", "item", "path", "tokens", "wires")

    def __init__(self, parent: Frame | None, path: Path, item: Any = MISSING, index: Any = MISSING) -> None:
        self.path, self.item, self.index = path, item, index
        self.chain: tuple[Frame, ...] = (*parent.chain, self) if parent else (self,)
        self.tokens: dict[str, Token] = {}
        self.wires: dict[str, Wire] = {}
        self.fans: dict[str, list[Frame | None] | None] = {}


class Sight:
    """What the expressions of one token can see."""

    __slots__ = ("error", "frame", "payload", "seen", "shape", "start")

    def __init__(
        self, shape: Shape, start: Any, frame: Frame, payload: Any, error: Error | None, seen: int
    ) -> None:
        self.shape, self.start, self.frame = shape, start, frame
        self.payload, self.error, self.seen = payload, error, seen

    def look(self, name: str) -> Any:
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
        if not self.seen & self.shape.bit[name]:
            return MISSING
        token = self.frame.chain[self.shape.depth[name]].tokens.get(name)
        return MISSING if token is None or token.status not in ("success", "failed") else token.value


def all_seen(wires: list[Wire]) -> int:
    mask = 0
    for wire in wires:
        mask |= wire.seen
    return mask


def first_error(wires: list[Wire]) -> Error | None:
    return next((wire.error for wire in wires if wire.error is not None), None)


def error_object(code: Any) -> dict[str, Any]:
    return {"error": {"code": code}}


def joined(arrivals: list[Arrival]) -> Any:
    """`$json` at a join: the one payload, or an object by predecessor."""
    by_source = dict(arrivals)
    return arrivals[0][1] if len(by_source) == 1 else by_source


def merged(params: Merge, arrivals: list[Arrival]) -> Any:
    """The output of a merge; the winner of a race passes as it is, whatever the mode."""
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
