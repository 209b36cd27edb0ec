"""One word per thing: the usual second words for the same thing name nothing in the package."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.house.tree import modules, name, parsed

# Words at the wire are those of the messages, so this one file speaks another language.
AT_THE_WIRE = "src/rune/wire/envelope.py"

SYNONYMS: dict[str, str] = {
    "task": "token (what travels) or node (what it runs)",
    "job": "token",
    "activity": "node",
    "vertex": "node",
    "dag": "definition, or plan once compiled",
    "flow": "definition",
    "dag run": "execution",
    "workflow run": "execution",
    "flow run": "execution",
    "workflow instance": "execution",
    "run id": "execution id",
    "handler type": "node type",
    "node kind": "node type",
    "ghost": "dead edge",
    "fork": "split, or several out-edges",
    "gateway": "barrier",
    "latch": "barrier",
    "semaphore": "window",
    "lineage stack": "lineage",
    "accumulated context": "context",
    "poison": "dead letter",
    "dlq": "dead letter",
    "checkpoint": "journal row",
    "snapshot": "fold",
    "watchdog timer": "timer",
    "alarm": "timer",
    "cronjob": "schedule",
    "datastore": "backend",
}


def words(identifier: str) -> list[str]:
    """`dagRun`, `DAG_run` and `dag_run` are all `dag run`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", identifier)
    return spaced.lower().split()


def coined(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names this module gives to things, as opposed to those it was given by a library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def second_words(tree: ast.AST) -> list[str]:
    found = set()
    for identifier, line in coined(tree):
        said = f" {' '.join(words(identifier))} "
        for synonym, word in SYNONYMS.items():
            if f" {synonym} " in said or f" {synonym}s " in said:
                found.add(f"line {line}: {identifier}: say {word}")
    return sorted(found)


@pytest.mark.parametrize("path", [path for path in modules() if name(path) != AT_THE_WIRE], ids=name)
def test_each_thing_has_one_word(path: pathlib.Path) -> None:
    assert second_words(parsed(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "def run_task(): ...",
        "class DagRun: ...",
        "jobs = 1",
        "def f(workflowRun): ...",
        "self.lineage_stack = 1",
    ],
)
def test_the_check_hears_second_words(source: str) -> None:
    assert len(second_words(ast.parse(source))) >= 1


def test_the_words_of_libraries_are_theirs() -> None:
    assert second_words(ast.parse("asyncio.create_task(work())\nmultitasking = overflow = 1")) == []
