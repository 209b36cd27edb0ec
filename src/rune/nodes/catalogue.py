"""The catalogue: every node type that comes with Rune and how it is run, by name and by alias."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import MappingProxyType

from rune.core.nodetype import Catalogue, NodeType
from rune.nodes.base import RunnableType
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

STANDARD_KINDS: tuple[RunnableType, ...] = (
    RunnableType(manual.TYPE, manual.Parameters, manual.run, builds=False),
    RunnableType(input.TYPE, input.Parameters, input.run, builds=False),
    RunnableType(webhook.TYPE, webhook.Parameters, webhook.run, builds=False),
    RunnableType(schedule.TYPE, schedule.Parameters, schedule.run, builds=False),
    RunnableType(conditional.TYPE, conditional.Parameters, conditional.run, builds=False),
    RunnableType(switch.TYPE, switch.Parameters, switch.run),
    RunnableType(split.TYPE, split.Parameters, split.run, builds=False),
    RunnableType(aggregator.TYPE, aggregator.Parameters, aggregator.run),
    RunnableType(merge.TYPE, merge.Parameters, merge.run),
    RunnableType(wait.TYPE, wait.Parameters, wait.run, builds=False),
    RunnableType(edit.TYPE, edit.Parameters, edit.run),
    RunnableType(filter.TYPE, filter.Parameters, filter.run),
    RunnableType(sort.TYPE, sort.Parameters, sort.run),
    RunnableType(limit.TYPE, limit.Parameters, limit.run),
    RunnableType(datetime.TYPE, datetime.Parameters, datetime.run, builds=False),
    RunnableType(log.TYPE, log.Parameters, log.run),
    RunnableType(workflow.TYPE, workflow.Parameters, workflow.run),
    RunnableType(noop.TYPE, noop.Parameters, noop.run, builds=False),
    RunnableType(fail.TYPE, fail.Parameters, fail.run, builds=False),
    RunnableType(output.TYPE, output.Parameters, output.run),
    RunnableType(http.TYPE, http.Parameters, http.run, lax=True),
    RunnableType(smtp.TYPE, smtp.Parameters, smtp.run),
    RunnableType(llm_service.TYPE, llm_service.Parameters, llm_service.run),
)
"""What is put together of payloads and expressions is looked at again: it nests deeper than its parts."""

STANDARD: tuple[NodeType, ...] = tuple(kind.type for kind in STANDARD_KINDS)


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
