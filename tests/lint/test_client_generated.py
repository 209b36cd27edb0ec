"""The synchronous client is generated, and the models of both clients match the OpenAPI document."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.client import AsyncClient, Client, models
from rune.client.models import Model
from rune.server.app import document
from tools.unasync import TARGETS, generate

# The schemas that a model is decoded from, the most detailed one first.
SCHEMAS: dict[type[Model], tuple[str, ...]] = {
    models.ErrorInfo: ("ErrorView",),
    models.Item: ("ItemView",),
    models.Execution: ("ExecutionDetail", "ExecutionView"),
    models.ExecutionPage: ("ExecutionPage",),
    models.Started: ("Started",),
    models.ActionResult: ("ActionResultView",),
    models.SignalResult: ("SignalResultView",),
    models.Frame: ("Frame",),
    models.NodeRun: ("RunView",),
    models.NodeRunPage: ("RunPage",),
    models.Attempt: ("AttemptView",),
    models.AttemptList: ("AttemptList",),
    models.LogLine: ("LogLineView",),
    models.NodeLog: ("LogView",),
    models.NodeLogPage: ("NodeLogPage",),
    models.NodeInput: ("InputView",),
    models.Event: ("EventView",),
    models.Count: ("CountView",),
    models.NodeState: ("NodeState",),
    models.SplitState: ("SplitState",),
    models.Graph: ("GraphState",),
    models.SplitItem: ("SplitItemView",),
    models.SplitItemPage: ("SplitItemPage",),
    models.CodeCount: ("CodeCount",),
    models.ItemCounts: ("Facets",),
    models.Me: ("Me",),
    models.Outcome: ("OutcomeView",),
    models.WorkflowActivity: ("WorkflowActivity",),
    models.StatsGroup: ("StatsGroup",),
    models.Stats: ("Stats",),
    models.WaitingSignal: ("WaitingView",),
    models.WaitingSignalPage: ("WaitingPage",),
    models.Now: ("NowView",),
    models.RunningNode: ("RunningView",),
    models.LoggedLine: ("LineView",),
    models.Waiting: ("Waiting",),
    models.Explanation: ("Explanation",),
    models.Problem: ("Problem",),
    models.Version: ("VersionView",),
    models.VersionPage: ("VersionPage",),
    models.Deployed: ("Deployed",),
    models.Checked: ("Checked",),
    models.Workflow: ("WorkflowView",),
    models.WorkflowPage: ("WorkflowPage",),
    models.WorkflowVersion: ("WorkflowDetail",),
    models.Preview: ("PreviewView",),
    models.PlannedNode: ("PlannedNode",),
    models.NodePlace: ("NodePlace",),
    models.EdgePlace: ("EdgePlace",),
    models.FramePlace: ("FramePlace",),
    models.Layout: ("LayoutView",),
    models.Alias: ("AliasView",),
    models.AliasList: ("AliasList",),
    models.DeadLetter: ("LetterView",),
    models.DeadLetterPage: ("LetterPage",),
    models.DeadMessage: ("DeadMessageView",),
    models.DeadMessageDetail: ("DeadMessageDetail",),
    models.DeadMessageList: ("DeadMessageList",),
    models.RequeuedMessage: ("RequeuedMessage",),
    models.Webhook: ("HookView",),
    models.Schedule: ("ScheduleView",),
    models.Trigger: ("RotatedView", "TriggerView"),
    models.TriggerList: ("TriggerList",),
    models.Credential: ("CredentialView",),
    models.CredentialList: ("CredentialList",),
    models.Granted: ("GrantList",),
    models.Limits: ("LimitsView",),
    models.ApiKey: ("KeyView",),
    models.NewApiKey: ("NewKey",),
    models.ApiKeyList: ("KeyList",),
    models.LogEntry: ("EntryView",),
    models.LogPage: ("EntryPage",),
    models.Worker: ("WorkerView",),
    models.WorkerList: ("WorkerList",),
    models.NodeTypeList: ("Catalogue",),
    models.CredentialType: ("CredentialTypeView",),
    models.CredentialTypeList: ("CredentialTypeList",),
    models.ProblemDocument: ("ProblemDocument",),
}
# Base classes, and the response of a route that is not part of the document.
WITHOUT_SCHEMA = {models.Model, models.Page, models.ServerVersion}


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = document()["components"]["schemas"]
    return found


@pytest.mark.parametrize("source", TARGETS, ids=lambda source: source.stem)
def test_generator_output_equals_checked_in_client(source: Path) -> None:
    assert generate(source) == TARGETS[source].read_text(encoding="utf-8"), "run make generate"


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.stem)
def test_generated_client_has_no_asynchronous_syntax(target: Path) -> None:
    tree = ast.parse(target.read_text(encoding="utf-8"))
    asynchronous = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)

    assert [node for node in ast.walk(tree) if isinstance(node, asynchronous)] == []


def test_both_clients_have_same_methods_and_parameters() -> None:
    def methods(client: type) -> dict[str, list[str]]:
        functions = inspect.getmembers(client, inspect.isfunction)
        return {
            name: list(inspect.signature(each).parameters) for name, each in functions if name.isidentifier()
        }

    waiting, blocking = methods(AsyncClient), methods(Client)
    waiting["__enter__"], waiting["__exit__"] = waiting.pop("__aenter__"), waiting.pop("__aexit__")

    assert waiting == blocking


def test_every_model_is_compared_with_a_schema() -> None:
    declared = {each for each in vars(models).values() if isinstance(each, type) and issubclass(each, Model)}

    assert declared == SCHEMAS.keys() | WITHOUT_SCHEMA


@pytest.mark.parametrize("model", SCHEMAS, ids=lambda model: model.__name__)
def test_model_fields_exist_in_schema(model: type[Model], schemas: dict[str, Any]) -> None:
    declared = {field.encode_name for field in msgspec.structs.fields(model)}

    assert declared - schemas[SCHEMAS[model][0]]["properties"].keys() == set()


@pytest.mark.parametrize("model", SCHEMAS, ids=lambda model: model.__name__)
def test_required_model_fields_are_required_in_schemas(model: type[Model], schemas: dict[str, Any]) -> None:
    required = {field.encode_name for field in msgspec.structs.fields(model) if field.required}

    assert {name: required - set(schemas[name]["required"]) for name in SCHEMAS[model]} == {
        name: set() for name in SCHEMAS[model]
    }
