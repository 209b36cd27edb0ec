"""Tasks of a state machine as custom nodes to implement."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.documents.importers import import_document
from rune.errors import NodeFailure
from rune.nodes.custom import kind_of
from rune.nodes.registry import standard_catalogue, standard_registry
from rune.testing.harness import run_document
from rune.testing.mocks import context
from tests.unit.importers.cases import FOLDER

CASE = FOLDER / "asl" / "18-lambda-and-token.json"


def stubs() -> dict[str, Any]:
    found = import_document(CASE.read_bytes(), standard_catalogue(), stubs=True)
    names: dict[str, Any] = {}
    exec(compile(found.stubs, "stubs.py", "exec"), names)
    return names


def test_stub_fails_until_it_is_implemented() -> None:
    with pytest.raises(NodeFailure) as failed:
        asyncio.run(stubs()["lambda_resize_image"](context(), {"key": "k"}))

    assert failed.value.code == "NOT_IMPORTED"


def test_stubs_declare_the_types_of_the_imported_document() -> None:
    found = import_document(CASE.read_bytes(), standard_catalogue(), stubs=True)
    types = {each["type"] for each in found.document["nodes"]}
    names = {kind.type.name for each in stubs().values() if (kind := kind_of(each)) is not None}

    assert names == {"lambda.resize_image", "lambda.publish", "aws.sqs_sendmessage"}
    assert names <= types
    assert {each.code for each in found.report.problems} == {"UNKNOWN_TYPE"}
    assert not found.report.complete


def test_document_with_stubs_runs_to_the_stub() -> None:
    found = import_document(CASE.read_bytes(), standard_catalogue(), stubs=True)
    kinds = [kind for each in stubs().values() if (kind := kind_of(each)) is not None]

    result = run_document(found.document, {"key": "k"}, registry=standard_registry().extended(kinds))

    assert result["error"]["code"] == "NOT_IMPORTED"
    assert result["error"]["node_id"] == "Resize"
