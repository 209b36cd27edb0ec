"""The reference of settings, metrics and limits, made from their declarations."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from rune import settings as declared
from rune.core.limits import LIMITS
from rune.settings import DERIVED, LISTS, Settings
from rune.telemetry.counters import Counters
from rune.telemetry.prometheus import PrometheusMetrics
from tools.docs.markdown import code, page, table

LIMIT_MEANINGS = {
    "definition_bytes": "bytes of a workflow document",
    "nodes": "nodes of a workflow",
    "edges": "edges of a workflow",
    "split_depth": "splits inside each other",
    "payload_bytes": "bytes of the start payload",
    "payload_containers": "lists and objects of a start payload",
    "output_bytes": "bytes of the output of a node",
    "body_bytes": "bytes of a request body, unless its route states another limit",
    "message_bytes": "bytes of a message of the queue",
    "inline_bytes": "bytes of a value that is stored in its row; a larger one is stored as a blob",
    "json_depth": "nesting of JSON values",
    "items": "items of a split",
    "page_items": "items per stored page of a split",
    "page_bytes": "bytes per stored page of a split",
    "child_depth": "child workflows inside each other",
    "window": "items in flight by default",
    "items_in_flight": "items in flight that `max_in_flight` may allow",
}


def pages() -> dict[str, str]:
    """Return the pages of settings, metrics and limits."""
    return {
        "reference/settings.md": _settings(),
        "reference/metrics.md": _metrics(),
        "reference/limits.md": _limits(),
    }


def _settings() -> str:
    meanings = comments(Path(declared.__file__).read_text(encoding="utf-8"), "Settings")
    rows = [
        (
            f"`RUNE_{each.name.upper()}`",
            code(each.name),
            _type(each.type, each.name),
            _default(each.default),
            meanings.get(each.name, ""),
        )
        for each in msgspec.structs.fields(Settings)
        if each.name not in DERIVED
    ]
    blocks = [
        "Settings are read from the environment, then from `rune.toml` in the current folder. [The command"
        " line](../cli.md#settings) describes them with links to what they change.",
        table(("variable", "in `rune.toml`", "type", "default", "meaning"), rows),
    ]
    return page("Settings", blocks, audience="operator")


def comments(source: str, name: str) -> dict[str, str]:
    """Return the comment of each field of a class."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    by_line = {
        token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT
    }
    (found,) = (
        each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == name
    )
    return {
        each.target.id: next(
            (by_line[line] for line in range(each.lineno, (each.end_lineno or 0) + 1) if line in by_line), ""
        )
        for each in found.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def _type(kind: Any, name: str) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(code(each) for each in get_args(kind) if each)
    if name in LISTS:
        return "texts, separated by commas"
    words = {int: "whole number", float: "number", bool: "`true`, `false`", str: "text"}
    return words.get(kind, "JSON")


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return code(str(value).lower())
    return ", ".join(code(each) for each in value) if isinstance(value, tuple) else code(value)


def _metrics() -> str:
    rows = list(_families())
    blocks = [
        "What `/metrics` of a process exports, in the Prometheus text format. [Operations](../operate.md#metrics)"
        " explains how to aggregate them.",
        table(("metric", "type", "help"), rows),
    ]
    return page("Metrics", blocks, audience="operator")


def _families() -> Iterator[tuple[str, str, str]]:
    for family in PrometheusMetrics(Counters(), "0", ()).collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield code(name), family.type, family.documentation


def _limits() -> str:
    rows = [
        (code(name), f"{getattr(LIMITS, name):,}", LIMIT_MEANINGS[name]) for name in LIMITS.__struct_fields__
    ]
    blocks = [
        "Maximum values of everything that enters the engine. Exceeding one is an error that names it. Limits of"
        " starts and of requests are [settings](../limits.md), those of expressions are in"
        " [expressions](../expressions.md#limits).",
        table(("limit", "value", "of"), rows),
    ]
    return page("Limits", blocks)
