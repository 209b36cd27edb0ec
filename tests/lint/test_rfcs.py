"""The page for readers of the RFCs: every name that it gives for Rune exists in the product."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import pytest

from rune.adapters.rabbitmq.consumer import STATUS_PREFETCH
from rune.adapters.rabbitmq.queue import EARLY_ACK_S
from rune.adapters.rabbitmq.topology import DELAYS_S, Topology, all_exchanges, all_queues, roles, user_name
from rune.adapters.redis.encoding import KeySpace
from rune.codec.messages import MAX_FULL_BYTES, InvalidMessageError
from rune.core.definition import model
from rune.core.definition.fields import MAX_ID_LENGTH
from rune.core.execution.state import NodeStatus
from rune.errors import InvalidDocumentError, LimitExceededError
from rune.nodes.registry import described, full_registry
from rune.ports.queue import failure_of
from rune.ports.state import LEASE_MS
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.runtime.maintenance.scheduler import BATCH
from rune.runtime.messaging.completion_publisher import MAX_CONTEXT_BYTES
from rune.runtime.messaging.published_values import MAX_PUBLISHED_BYTES
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.settings import Settings, load_settings
from tests.lint.tree import PACKAGE, ROOT, parsed
from tests.support.each import for_each
from tools.docs.errors import find_codes

PAGE = (ROOT / "docs" / "about" / "rfcs.md").read_text(encoding="utf-8")
RABBITMQ = (ROOT / "docs" / "rabbitmq.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
SETTING = re.compile(r"RUNE_([A-Z_]+)(?:=(\w+))?")
CLUSTER = {"RUNE_JOURNAL": "postgresql://x/y", "RUNE_STATE": "redis://x", "RUNE_QUEUE": "amqp://x"}
TIMER = "wait:NODE@/"


def rows() -> Iterator[list[str]]:
    """Yield the cells of each row of the tables."""
    for line in PAGE.splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if line.startswith("|") and set(line) - set("|-") and cells[0] != "there":
            yield cells


def our_names() -> list[str]:
    """Return the names on our side: in the column *here*, and in the rules."""
    rules = PAGE.split("## Rules")[1].split("\n## ")[0]
    columns = "\n".join(cells[1] for cells in rows())
    return sorted(set(CODE.findall(columns + rules)))


@cache
def names_of_messages_and_documents() -> set[str]:
    """Return all names and values of the schemas of messages and of workflow documents."""
    found: set[str] = set()

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            found.update(part.get("properties", ()))
            found.update(each for each in part.get("enum", ()) if isinstance(each, str))
            if isinstance(part.get("const"), str):
                found.add(part["const"])
            for each in part.values():
                collect(each)
        elif isinstance(part, list):
            for each in part:
                collect(each)

    for path in (ROOT / "docs" / "schemas").glob("*.json"):
        collect(json.loads(path.read_text(encoding="utf-8")))
    return found


@cache
def names_of_the_broker() -> set[str]:
    found: set[str] = set()
    for topology in (Topology(kind="classic"), Topology(kind="quorum")):
        found |= {each.name for each in all_exchanges(topology)}
        found |= {each.name for each in all_queues(topology)}
        found |= {name for each in all_queues(topology) for name in each.arguments}
        found |= {str(value) for each in all_queues(topology) for value in each.arguments.values()}
        found |= {user_name(role) for role in roles(topology)}
    found |= {user_name(role) for role in roles(Topology(consume_statuses=False))}
    return found


@cache
def names_of_redis() -> set[str]:
    """Return the keys of an execution `ID` of the partition 3."""
    execution = next(each for each in map(str, range(1_000)) if KeySpace().partition(each) == 3)
    return {each.replace(f":x:{execution}", ":x:ID") for each in KeySpace().of(execution)}


@cache
def names_of_nodes() -> set[str]:
    types = described(full_registry(()))
    return {name for each in types for name in (each["type"], *each["aliases"])}


@cache
def fields_of_metadata() -> set[str]:
    """Return the texts in the modules that publish statuses: `metadata` and `details` have no schema."""
    folder = PACKAGE / "runtime" / "messaging"
    return {
        each.value
        for name in ("status_publisher.py", "waiting_joins.py")
        for each in ast.walk(parsed(folder / name))
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


@cache
def codes() -> set[str]:
    return set(find_codes())


def exists(name: str) -> bool:
    """Return whether a name is one of a setting, a message, a document, the broker, Redis, a node type or a code."""
    setting = SETTING.fullmatch(name)
    if setting:
        field = setting[1].lower()
        if field not in Settings.__struct_fields__:
            return False
        return setting[2] is None or bool(
            load_settings({**CLUSTER, name.split("=", maxsplit=1)[0]: setting[2]})
        )
    if name.startswith("rune "):
        return True  # commands are checked in all pages, by test_commands.py
    if name.startswith("$"):
        return name in {"$trigger", "$input", "$item", "$index"}
    known = (
        names_of_messages_and_documents()
        | names_of_the_broker()
        | names_of_redis()
        | names_of_nodes()
        | fields_of_metadata()
    )
    return name in known or name in codes() or name in get_args(NodeStatus) or name == TIMER


@for_each("name", our_names())
def test_name_on_our_side_exists(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize(
    "name", ["workflow.timeout", "RUNE_CHECKPOINT", "x-max-priority", "exec:ID:barrier", "STALE"]
)
def test_name_that_the_product_does_not_have_is_noticed(name: str) -> None:
    assert not exists(name)


@pytest.mark.parametrize("queue", ["workflow.node.status", "workflow.completion"])
def test_arguments_of_queues_are_those_that_are_declared(queue: str) -> None:
    (row,) = [cells[1] for cells in rows() if cells[1].startswith(f"`{queue}`: durable")]
    (declared,) = [each.arguments for each in all_queues(Topology()) if each.name == queue]
    shown = dict(re.findall(r"`(x-[a-z-]+)` `?([\w-]+)`?", row))
    assert shown == {name: str(value) for name, value in declared.items() if name != "x-queue-type"}


def test_every_row_names_both_sides_and_has_three_cells() -> None:
    assert [cells for cells in rows() if len(cells) != 3 or not cells[0] or not cells[1]] == []


def one_row(begin: str) -> list[str]:
    """Return the row whose first cell begins so."""
    (found,) = [cells for cells in rows() if cells[0].startswith(begin)]
    return found


def test_all_codes_of_rejected_messages_are_listed() -> None:
    """On this page, and in the section on messages of other publishers."""
    tree = parsed(PACKAGE / "runtime" / "messaging" / "foreign_messages.py")
    raised = {
        each.value.value
        for error in tree.body
        if isinstance(error, ast.ClassDef)
        for each in error.body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)
    }
    elsewhere = (
        InvalidMessageError,
        InvalidDocumentError,
        LimitExceededError,
        DefinitionNotFoundError,
        ExecutionNotFoundError,
    )
    codes = {*raised, *(each.code for each in elsewhere), failure_of(MemoryError())[0]}
    section = RABBITMQ.split("## Messages from other publishers")[1].split("\n### ")[0]

    assert set(CODE.findall(one_row("invalid messages")[1])) - {"workflow.execution.dead"} == codes
    assert codes <= set(CODE.findall(section))


SIZES = (
    f"values of {MAX_PUBLISHED_BYTES >> 10} KiB in a status, {MAX_CONTEXT_BYTES >> 10} KiB in a completion"
)
FIRST, SECOND, THIRD = DELAYS_S


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("ids match", f"at most {MAX_ID_LENGTH}"),
        ("at most 10 MB per message", SIZES),
        ("at most 10 MB per message", f"`RUNE_WIRE_BYTES`, {MAX_FULL_BYTES >> 20} MiB"),
        ("`final_context`", f"above {MAX_CONTEXT_BYTES >> 10} KiB"),
        ("at most 3 retries", f"{len(DELAYS_S)}, after {FIRST}, {SECOND} and {THIRD} s"),
        (f"prefetch {STATUS_PREFETCH} for statuses", "the same"),
        ("acknowledged after", f"after {EARLY_ACK_S:g} s in any case"),
        ("polled every 500 ms", f"{BATCH} at a time"),
        ("`aggregator`: `timeout`", f"by default {model.Settings().join_timeout:g} s"),
        ("`merge`: `timeout`", f"{model.Settings().join_timeout:g} s, for `wait_for_all` and `at_least`"),
        ("`ORCHESTRATOR_STALE_RESULT", f"leases of {LEASE_MS / 1000:g} s"),
    ],
)
def test_numbers_of_a_row_are_those_of_the_product(row: str, text: str) -> None:
    assert text in one_row(row)[1]
