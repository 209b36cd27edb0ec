"""The declaration of a node type. The core decides by these declarations and never by the name of a type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from rune.core.definition.problems import Problem
from rune.core.schedules import Schedule
from rune.core.webhooks import WebhookConfig

Join = Literal["all", "any"] | int
"""How a join opens: `all`, `any`, or at the k-th live arrival."""

ParameterKind = Literal["template", "expression", "element", "literal"]
"""How a parameter is resolved. `template`: its templates are resolved before the run. `expression`: the whole text is
one expression, or a list of rules, that the node evaluates. `element`: a template or expression that the node
evaluates per element (`$item`). `literal`: the value is used unchanged."""


PERMANENT_CODES = frozenset(
    {
        "BAD_PARAMETER",
        "CHILD_FORBIDDEN",
        "EXPRESSION_ERROR",
        "EXPRESSION_SYNTAX",
        "INVALID_INPUT",
        "LIMIT_EXCEEDED",
        "NOT_JSON",
        "UNKNOWN_WORKFLOW",
    }
)
"""Error codes of any node type that every further attempt would repeat."""

ErrorClass = Literal["permanent", "transient", "by status"]
"""Whether `retry` covers an error code: never by default, by default, or depending on the status in the details."""


class JoinRule(msgspec.Struct, frozen=True):
    """How a join waits: what opens it, when it times out, and whether an opening cancels the other branches."""

    opens: Join = "all"
    timeout: float | None = None  # s; None: the default of the node type; 0: none
    cancel_losers: bool = False
    tolerates: bool = False  # of a join of items: the definition states how many may fail


class Window(msgspec.Struct, frozen=True):
    """How a fan-out starts its items."""

    size: int | None = None  # None: the default window, which ignores suspended items
    batch: int = 1


class NodeType(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a node type. Callables receive the unresolved parameters of a node."""

    name: str
    aliases: tuple[str, ...] = ()
    summary: str = ""
    doc: str = ""
    output: str = ""
    # How editors present it: a group, the name of an icon, the JSON Schema of the output (None: it depends on the
    # parameters or the input), and controls by parameter where its schema does not tell the right one.
    category: str = "custom"
    icon: str = "puzzle"
    output_schema: Mapping[str, Any] | None = None
    widgets: Mapping[str, str] = {}
    credential_types: tuple[str, ...] = ()  # those that the node can use; empty with `credentials`: any
    errors: Mapping[str, str] = {}
    permanent: frozenset[str] = frozenset()  # codes that `retry` does not cover, besides `PERMANENT_CODES`
    by_status: frozenset[str] = (
        frozenset()
    )  # codes whose failures state themselves whether they are permanent
    schema: Mapping[str, Any] = {}
    kinds: Mapping[str, ParameterKind] = {}  # parameters not named here are templates
    lax: bool = False  # numbers and booleans may be written as text
    trigger: bool = False
    # The webhook or schedule that starts executions.
    starts: Callable[[Mapping[str, Any]], WebhookConfig | Schedule | None] = lambda parameters: None
    fans_out: bool = False
    joins_items: bool = False
    merges: bool = False  # the node combines its arrivals itself, instead of receiving them as `$json`
    passes_payload: Callable[[Mapping[str, Any]], bool] = lambda parameters: False
    # Whether the node uses `$json` even if no parameter refers to it.
    reads_payload: Callable[[Mapping[str, Any]], bool] = lambda parameters: False
    suspends: bool = False  # a join after it has no default timeout
    # Whether a node only waits until a time, so that its timeout has no effect.
    waits_for_time: Callable[[Mapping[str, Any]], bool] = lambda parameters: False
    # The names of the signals that a node may wait for, given its id and parameters; None: unknown before it runs.
    # Not called for types that do not suspend.
    signals: Callable[[str, Mapping[str, Any]], tuple[str, ...] | None] = lambda node, parameters: None
    launches: bool = False  # it starts child executions
    sets_output: bool = False
    logs_output: bool = False  # its output is a line of the log, at the level of its parameter `level`
    credentials: bool = False
    effectful: Callable[[Mapping[str, Any]], bool] = lambda parameters: False
    stand_in: bool = False  # for a type that only the worker knew; it counts as effectful
    check: Callable[[Mapping[str, Any], Callable[[str], bool]], tuple[Problem, ...]] = (
        lambda parameters, dynamic: ()
    )
    outlets: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda parameters: ()
    routes: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda parameters: {}
    ignore_outlet: str | None = None
    # The outlet that a node chose, from its output; None if that does not tell, or no node of the type has outlets.
    outlet_of: Callable[[Any], str | None] | None = None
    join_rule: Callable[[Mapping[str, Any]], JoinRule] = lambda parameters: JoinRule()
    window: Callable[[Mapping[str, Any]], Window] = lambda parameters: Window()
    binds_item: Callable[[Mapping[str, Any]], bool] = lambda parameters: False
    retry: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda parameters: None

    def error_class(self, code: str) -> ErrorClass:
        """Return whether `retry` covers a code of this type without naming it in `on`."""
        if code in self.by_status:
            return "by status"
        return "permanent" if code in PERMANENT_CODES or code in self.permanent else "transient"


Catalogue = Mapping[str, NodeType]
"""Node types by name and by alias."""
