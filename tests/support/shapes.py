"""Workflows whose values share parts: written out they are much larger than what exists of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.support.documents import Raw, document, node

START = {"list": [1, 2], "text": "x" * 40, "object": {"deep": {"deeper": None}}}


def diamonds(count: int, *behind: Raw) -> Raw:
    """A chain of forks of two branches, whose joins each pass on what arrived: the payload doubles with each. The nodes
    `behind` follow one after another."""
    nodes, pairs = [node("n0", "input")], []
    for at in range(count):
        nodes += [node(f"a{at}"), node(f"b{at}"), node(f"n{at + 1}")]
        for branch in (f"a{at}", f"b{at}"):
            pairs += [f"n{at}>{branch}", f"{branch}>n{at + 1}"]
    for last, each in zip((f"n{count}", *(each["id"] for each in behind)), behind, strict=False):
        nodes.append(each)
        pairs.append(f"{last}>{each['id']}")
    return document(nodes, *pairs, id=f"diamonds-{count}")


def done() -> Raw:
    """An output node with a small value, so that the output of an execution is not what is measured."""
    return node("done", "output", {"value": "done"})


def ladder(count: int) -> Raw:
    """A chain of joins, each of the one before it and of the trigger."""
    nodes, pairs = [node("n0", "input"), node("n1")], ["n0>n1"]
    for at in range(1, count + 1):
        nodes.append(node(f"n{at + 1}"))
        pairs += [f"n{at}>n{at + 1}", f"n0>n{at + 1}"]
    return document([*nodes, done()], *pairs, f"n{count + 1}>done", id=f"ladder-{count}")


def wide_join(count: int) -> Raw:
    """Branches that all pass on the same value to one join."""
    names = [f"b{at}" for at in range(count)]
    pairs = [pair for each in names for pair in (f"n0>{each}", f"{each}>join")]
    nodes = [node("n0", "input"), *(node(each) for each in names), node("join"), done()]
    return document(nodes, *pairs, "join>done", id=f"wide-{count}")


def chain(count: int) -> Raw:
    """Nodes that pass on what the one before them received."""
    names = ["n0", *(f"n{at}" for at in range(1, count + 1))]
    nodes = [node(each, "noop" if at else "input") for at, each in enumerate(names)]
    pairs = [f"{one}>{next}" for one, next in pairwise(names)]
    return document([*nodes, done()], *pairs, f"{names[-1]}>done", id=f"chain-{count}")


def nested_merges(count: int) -> Raw:
    """Forks whose branches a `merge` combines into an object: each level is built and stored."""
    found: dict[str, Any] = diamonds(count, done())
    for each in found["nodes"]:
        if each["id"].startswith("n") and each["id"] != "n0":
            each |= {"type": "merge", "parameters": {"mode": "object"}}
    return found | {"id": f"merges-{count}"}
