"""Build workflows in Python, load and write them as YAML and JSON, and run them.

from rune.build import Workflow, http, input

flow = Workflow("price-watch")
with flow:
    start = input("start")
    quote = http("quote", url=f"https://shop.example/prices/{start.out.sku}", timeout=30)
start >> quote
flow.run({"sku": "a-7"})
"""

from rune.build import fn
from rune.build.expressions import Expr, Ref, expr, template
from rune.build.flow import Workflow
from rune.build.graph import UNSET, Edge, Node, Retry, Split, node
from rune.build.nodes import (
    aggregator,
    conditional,
    datetime,
    edit,
    fail,
    filter,
    http,
    input,
    limit,
    llm_service,
    log,
    manual,
    merge,
    noop,
    output,
    schedule,
    smtp,
    sort,
    split,
    switch,
    wait,
    webhook,
    workflow,
)
from rune.build.settings import Handler, Settings

__all__ = [
    "UNSET",
    "Edge",
    "Expr",
    "Handler",
    "Node",
    "Ref",
    "Retry",
    "Settings",
    "Split",
    "Workflow",
    "aggregator",
    "conditional",
    "datetime",
    "edit",
    "expr",
    "fail",
    "filter",
    "fn",
    "http",
    "input",
    "limit",
    "llm_service",
    "log",
    "manual",
    "merge",
    "node",
    "noop",
    "output",
    "schedule",
    "smtp",
    "sort",
    "split",
    "switch",
    "template",
    "wait",
    "webhook",
    "workflow",
]
