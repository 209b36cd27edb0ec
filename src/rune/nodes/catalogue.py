"""The catalogue: every node type that comes with Rune, by name and by alias."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import MappingProxyType

from rune.core.nodetype import Catalogue, NodeType
from rune.nodes.control import (
    aggregator,
    conditional,
    fail,
    input,
    manual,
    merge,
    noop,
    output,
    schedule,
    split,
    switch,
    wait,
    webhook,
    workflow,
)
from rune.nodes.data import datetime, edit, filter, limit, log, sort
from rune.nodes.io import http, llm_service, smtp

STANDARD: tuple[NodeType, ...] = tuple(
    module.TYPE
    for module in (
        manual,
        input,
        webhook,
        schedule,
        http,
        smtp,
        llm_service,
        conditional,
        switch,
        split,
        aggregator,
        merge,
        wait,
        workflow,
        edit,
        filter,
        sort,
        limit,
        datetime,
        log,
        noop,
        fail,
        output,
    )
)
"""In the order of the documentation."""


def catalogue(types: Iterable[NodeType]) -> Catalogue:
    """These types by name and alias; a name that is taken twice is refused."""
    found: dict[str, NodeType] = {}
    for each in types:
        for name in (each.name, *each.aliases):
            if name in found:
                raise ValueError(f"two node types are called `{name}`")
            found[name] = each
    return MappingProxyType(found)


@cache
def standard_catalogue() -> Catalogue:
    """The node types that come with Rune."""
    return catalogue(STANDARD)
