"""Generated requests get only responses that the OpenAPI document describes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rune.server.app import document
from tests.support.api_server import HELLO, ITEMS, WAITS, RunningServer, in_thread
from tests.support.generated_requests import send_until
from tests.support.whole import WHOLE

REQUESTS = int(os.environ.get("RUNE_REQUESTS", "10000" if WHOLE else "300"))
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)


VERBS = {
    "abort", "add", "cancel", "change", "check", "compare", "count", "create", "delete", "disable", "discard", "drain",
    "enable", "end", "explain", "follow", "get", "import", "list", "pack", "pause", "preview", "put", "remove",
    "requeue", "rerun", "restore", "resume", "retry", "revoke", "rotate", "signal", "start", "update", "validate",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with workflows and executions."""

    async def filled(running: RunningServer) -> None:
        await running.deploy(HELLO, WAITS, ITEMS)
        await running.ended("hello", {"name": "x"})
        await running.ended("items", {"items": [0, 1, 2]})
        await running.client.start("waits")

    with in_thread(tmp_path_factory.mktemp("schema"), filled) as url:
        yield url


def test_openapi_document_is_complete() -> None:
    made = document()
    assert made["openapi"].startswith("3.1")
    ids = [each["operationId"] for path in made["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))
    for path in made["paths"].values():
        for each in path.values():
            if "requestBody" in each and each["operationId"] not in {"pause_execution", "resume_execution"}:
                assert each["requestBody"]["content"]["application/json"]["examples"]


def test_operation_ids_are_verb_and_resource() -> None:
    ids = [each["operationId"] for path in document()["paths"].values() for each in path.values()]
    assert [each for each in ids if not re.fullmatch(r"[a-z]+(_[a-z]+)+", each)] == []
    assert {each.partition("_")[0] for each in ids} <= VERBS


def test_generated_requests_conform_to_schema(server: str) -> None:
    count = 0

    def check(operation: Any, case: Any) -> None:
        nonlocal count
        count += 1
        case.call_and_validate(base_url=server, checks=list(CHECKS))

    assert send_until(lambda: REQUESTS - count, check) == []
    assert count >= REQUESTS
