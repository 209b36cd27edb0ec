"""The workflow model of the oracle: frozen dataclasses without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from tests.simulation.oracle.expr import Expr

if TYPE_CHECKING:
    from tests.simulation.oracle.shape import Shape

Path = tuple[tuple[str, int], ...]
"""One (split id, item index) per frame, outermost first."""

TokenKey = tuple[str, Path]


@dataclass(frozen=True, slots=True)
class Trigger:
    kind: ClassVar[str] = "trigger"


@dataclass(frozen=True, slots=True)
class Edit:
    assignments: tuple[tuple[str, Expr], ...]
    kind: ClassVar[str] = "edit"


@dataclass(frozen=True, slots=True)
class Noop:
    kind: ClassVar[str] = "noop"


@dataclass(frozen=True, slots=True)
class Effect:
    """Fails on attempts 1..fail_attempts, and always for the item indices in fail_items."""

    key: str
    fail_attempts: int = 0
    fail_items: tuple[int, ...] = ()
    code: str = "EFFECT"
    kind: ClassVar[str] = "effect"


@dataclass(frozen=True, slots=True)
class Log:
    message: Expr
    kind: ClassVar[str] = "log"


@dataclass(frozen=True, slots=True)
class Fail:
    code: str
    message: str = "x"
    kind: ClassVar[str] = "fail"


@dataclass(frozen=True, slots=True)
class Conditional:
    expression: Expr
    kind: ClassVar[str] = "conditional"


@dataclass(frozen=True, slots=True)
class Rule:
    value: Expr
    operator: str
    compare: Expr


@dataclass(frozen=True, slots=True)
class Switch:
    rules: tuple[Rule, ...]
    kind: ClassVar[str] = "switch"


@dataclass(frozen=True, slots=True)
class Split:
    input_array: Expr
    max_in_flight: int | None = None
    batch_size: int | None = None
    kind: ClassVar[str] = "split"


@dataclass(frozen=True, slots=True)
class Aggregator:
    tolerate: int | str | None = None
    timeout: int | None = None
    kind: ClassVar[str] = "aggregator"


@dataclass(frozen=True, slots=True)
class Merge:
    """`wait_mode` is `all`, `any` or `at_least` (then `at_least` holds the number)."""

    mode: str = "append"
    wait_mode: str = "all"
    at_least: int = 0
    timeout: int | None = None
    cancel_losers: bool = False
    kind: ClassVar[str] = "merge"


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: Expr
    kind: ClassVar[str] = "wait"


@dataclass(frozen=True, slots=True)
class SignalWait:
    """Waits for a signal; its output is the value of the signal."""

    name: str
    kind: ClassVar[str] = "signal_wait"


@dataclass(frozen=True, slots=True)
class Child:
    """Runs a child workflow on its own start payload; its output is the output of the child."""

    workflow: str
    input: Any
    kind: ClassVar[str] = "child"


@dataclass(frozen=True, slots=True)
class Output:
    value: Expr
    kind: ClassVar[str] = "output"


Params = (
    Trigger
    | Edit
    | Noop
    | Effect
    | Log
    | Fail
    | Conditional
    | Switch
    | Split
    | Aggregator
    | Merge
    | Wait
    | SignalWait
    | Child
    | Output
)

PASSES_PAYLOAD = frozenset({"conditional", "switch", "wait", "log", "noop"})
EXTERNAL_KINDS = frozenset({"signal_wait", "child"})
"""Kinds whose output does not follow from the definition."""


@dataclass(frozen=True, slots=True)
class Retry:
    max_attempts: int
    initial_delay: int = 1
    backoff: int = 2
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """`error` is the explicit policy: None, halt, ignore or branch (along its one error edge).

    `timeout` limits its wait; with `at_most_once` its effect is not repeated after a crash.
    """

    id: str
    params: Params
    error: str | None = None
    retry: Retry | None = None
    join: str = "all"
    timeout: int | None = None
    at_most_once: bool = False

    @property
    def kind(self) -> str:
        return self.params.kind

    @property
    def quorum(self) -> int:
        """Number of live arrivals that open the node; 0 if all edges must be resolved first."""
        if isinstance(self.params, Merge):
            return {"all": 0, "any": 1, "at_least": self.params.at_least}[self.params.wait_mode]
        return 1 if self.join == "any" else 0

    def expressions(self) -> tuple[Expr, ...]:
        match self.params:
            case Edit(assignments):
                return tuple(value for _, value in assignments)
            case Log(expr) | Conditional(expr) | Split(expr) | Wait(expr) | Output(expr):
                return (expr,)
            case Switch(rules):
                return tuple(side for rule in rules for side in (rule.value, rule.compare))
        return ()


@dataclass(frozen=True, slots=True)
class Edge:
    id: str
    src: str
    dst: str
    outlet: str | None = None
    is_error: bool = False


@dataclass(frozen=True)
class Model:
    """Nodes and edges in document order; the order of a node's in-edges is the order of `edges`.

    `external_results` holds results from outside the definition: ("success", value) or ("failed", code).
    """

    id: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    settings: tuple[tuple[str, Any], ...] = ()
    features: frozenset[str] = field(default=frozenset(), compare=False)
    external_results: Mapping[TokenKey, tuple[str, Any]] = field(default_factory=dict, compare=False)

    @cached_property
    def shape(self) -> Shape:
        """The static analysis of the graph."""
        from tests.simulation.oracle.shape import Shape

        return Shape(self)
