"""`POST /workflows/import`: a workflow of another tool becomes a document, with a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rune.client import Invalid
from tests.support.api_server import RunningServer, run

MACHINE = {
    "StartAt": "Greet",
    "States": {
        "Greet": {"Type": "Pass", "Result": {"text": "Hello!"}, "Next": "Call"},
        "Call": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": True},
    },
}


def test_imported_workflow_is_returned_with_a_report_and_not_stored(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        found = await server.client.import_workflow(MACHINE, name="greeting")

        assert (found.format, found.complete) == ("asl", False)
        assert [each.source for each in found.entries if each.status == "by_hand"] == ["States.Call.Resource"]
        assert found.counts["by_hand"] == 1
        assert [each async for each in server.client.workflows()] == []
        deployed = await server.client.deploy(found.document)
        assert deployed.workflow_id == found.document["id"]

    run(tmp_path, work)


def test_import_with_stubs_returns_the_source_of_custom_nodes(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        found = await server.client.import_workflow(json.dumps(MACHINE), format="asl", stubs=True)

        assert "@node(" in found.stubs

    run(tmp_path, work)


def test_import_of_unknown_format_is_refused(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        with pytest.raises(Invalid) as refused:
            await server.client.import_workflow({"jobs": {}})

        assert refused.value.problems[0].code == "UNKNOWN_SOURCE"
        with pytest.raises(Invalid):
            await server.client.import_workflow(MACHINE, format="n8n")

    run(tmp_path, work)
