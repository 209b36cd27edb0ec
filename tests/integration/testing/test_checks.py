"""Assertions about documents, and the strategy of generated documents."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from rune.testing import EmbeddedEngine, assert_problem, assert_valid, documents
from rune.testing.expectations import random_document
from tests.support.paths import EXAMPLES

BROKEN = {
    "id": "broken",
    "nodes": [{"id": "start", "type": "input"}, {"id": "a", "type": "nothing"}],
    "edges": [{"src": "start", "dst": "b"}],
}


def test_valid_document_passes() -> None:
    assert_valid(EXAMPLES / "approval" / "approval.yaml")
    assert_valid(str(EXAMPLES / "hello" / "hello.yaml"))


def test_invalid_document_fails_with_all_problems() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_valid(BROKEN)

    assert "UNKNOWN_TYPE nodes[1].type" in str(failed.value)
    assert "edges[0].dst" in str(failed.value)


def test_expected_problem_is_returned() -> None:
    assert assert_problem(BROKEN, "UNKNOWN_TYPE", path="nodes[1].type").hint


@pytest.mark.parametrize("expected", [{"code": "CYCLE"}, {"code": "UNKNOWN_TYPE", "path": "nodes[0].type"}])
def test_problem_that_is_not_there_fails_with_those_that_are(expected: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"no problem .*; found:\n  UNKNOWN_TYPE nodes\[1\]\.type"):
        assert_problem(BROKEN, **expected)


@settings(max_examples=40, deadline=None)
@given(documents())
def test_generated_document_is_valid(document: dict[str, Any]) -> None:
    assert_valid(document)


def test_generated_documents_run_to_their_end(tmp_path: Path) -> None:
    random = Random(7)

    with EmbeddedEngine(tmp_path) as engine:
        statuses = {engine.run(random_document(random, size)).status for size in range(1, 9)}

    assert statuses == {"completed"}
