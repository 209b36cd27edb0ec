"""What the rules may know of a node type: its declaration, never its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from rune.core.definition.problems import Problem
from rune.core.triggers import Schedule, WebhookConfig

Join = Literal["all", "any"] | int
"""How a join opens: `all`, `any`, or at the k-th live arrival."""

ParameterKind = Literal["template", "expression", "element", "literal"]
"""How a parameter is resolved: templates inside it before the run; one expression over the whole text, or a
list of rules, that the node itself evaluates; a template or expression that it evaluates per element (`$item`);
or taken as it stands."""


class JoinRule(msgspec.Struct, frozen=True):
    """How the entry of a node waits: what opens it, when it gives up, whether losers are cancelled."""

    opens: Join = "all"
    timeout: float | None = None  # None: the default of the kind; 0: none
    cancel_losers: bool = False


class Window(msgspec.Struct, frozen=True):
    """How a fan-out starts its items."""

    size: int | None = None  # None: the default window, which does not count items that only wait
    batch: int = 1


class NodeType(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a node type. The callables are given the node's raw parameters."""

    name: str
    aliases: tuple[str, ...] = ()
    summary: str = ""
    doc: str = ""
    output: str = ""
    errors: Mapping[str, str] = {}
    schema: Mapping[str, Any] = {}
    kinds: Mapping[str, ParameterKind] = {}  # parameters not named here are templates
    trigger: bool = False
    starts: Callable[[Mapping[str, Any]], WebhookConfig | Schedule | None] = lambda parameters: (
        None
    )  # by itself
    fans_out: bool = False
    joins_items: bool = False
    merges: bool = False  # the node combines its arrivals itself; they are not folded into `$json`
    passes_payload: Callable[[Mapping[str, Any]], bool] = lambda parameters: False
    reads_payload: Callable[[Mapping[str, Any]], bool] = lambda parameters: False  # unasked, as by `$json`
    suspends: bool = False  # a join behind it has no default timeout
    launches: bool = False  # it starts executions of its own
    sets_output: bool = False
    credentials: bool = False
    effectful: Callable[[Mapping[str, Any]], bool] = lambda parameters: False
    check: Callable[[Mapping[str, Any], Callable[[str], bool]], tuple[Problem, ...]] = (
        lambda parameters, dynamic: ()
    )
    outlets: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda parameters: ()
    routes: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda parameters: {}
    ignore_outlet: str | None = None
    join_rule: Callable[[Mapping[str, Any]], JoinRule] = lambda parameters: JoinRule()
    window: Callable[[Mapping[str, Any]], Window] = lambda parameters: Window()
    binds_item: Callable[[Mapping[str, Any]], bool] = lambda parameters: False
    retry: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda parameters: None


Catalogue = Mapping[str, NodeType]
"""Node types by name and by alias."""
