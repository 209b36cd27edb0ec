"""The format that an execution needs."""

from __future__ import annotations

from rune.core.definition.model import Definition, Node
from rune.core.format import FORMAT, required_format


def test_plain_definition_needs_first_format() -> None:
    assert required_format(Definition(id="w", nodes=(Node(id="a", type="noop"),))) == 1 <= FORMAT


def test_children_within_scopes_need_second_format() -> None:
    definition = Definition(id="w", nodes=(Node(id="a", type="workflow"),))
    assert required_format(definition, scoped=True) == 2 <= FORMAT
    assert required_format(definition) == 1
