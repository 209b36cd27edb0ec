"""The synchronous client is generated, and the models of both clients match the OpenAPI document."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from rune.client import AsyncClient, Client, models
from rune.client.models import Model
from rune.server.app import document
from tests.support.each import for_each
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
    models.EventPage: ("EventPage",),
    models.NodeState: ("NodeState",),
    models.SplitState: ("SplitState",),
    models.Graph: ("GraphState",),
    models.BulkJob: ("BulkView",),
    models.BulkJobList: ("BulkList",),
    models.BulkOutcome: ("BulkOutcomeView",),
    models.BulkOutcomePage: ("BulkOutcomePage",),
    models.BulkPreview: ("BulkPreview",),
    models.ComparedRun: ("ComparedRun",),
    models.ComparedRunPair: ("ComparedRunPair",),
    models.ComparedRunPage: ("ComparedRunPage",),
    models.DifferenceGroup: ("DifferenceGroupView",),
    models.Comparison: ("ComparisonSummary",),
    models.Difference: ("Difference",),
    models.DifferingRun: ("RunChange",),
    models.FailedRun: ("Failed",),
    models.SplitRollup: ("SplitRollup",),
    models.SplitRollupList: ("RollupPage",),
    models.ValueEntry: ("ValueEntry",),
    models.ValuePart: ("ValuePart",),
    models.ValueMatch: ("ValueMatch",),
    models.ValueMatches: ("ValueMatches",),
    models.SplitItem: ("SplitItemView",),
    models.SplitItemPage: ("SplitItemPage",),
    models.CodeCount: ("CodeCount",),
    models.ItemTimes: ("ItemTimes",),
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
    models.VersionChange: ("Change",),
    models.ComparedVersions: ("Compared",),
    models.Queue: ("QueueView",),
    models.QueueList: ("QueueList",),
    models.TimerList: ("TimerList",),
    models.NextTimer: ("TimerClock",),
    models.Version: ("VersionView",),
    models.VersionPage: ("VersionPage",),
    models.Deployed: ("Deployed",),
    models.Checked: ("Checked",),
    models.ImportEntry: ("ImportEntry",),
    models.Imported: ("Imported",),
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
    models.DeadLetter: ("DeadLetterView",),
    models.DeadLetterPage: ("DeadLetterPage",),
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
    models.CredentialUse: ("CredentialUseView",),
    models.CredentialUses: ("CredentialUseList",),
    models.Granted: ("GrantList",),
    models.Limits: ("LimitsView",),
    models.ApiKey: ("KeyView",),
    models.NewApiKey: ("NewKey",),
    models.ApiKeyList: ("KeyList",),
    models.LateHandler: ("LateHandlerView",),
    models.Handler: ("HandlerView",),
    models.Handlers: ("HandlersView",),
    models.FailedHandler: ("FailedHandlerView",),
    models.FailedHandlers: ("FailedHandlers",),
    models.LogEntry: ("EntryView",),
    models.LogPage: ("EntryPage",),
    models.Worker: ("WorkerView",),
    models.WorkerList: ("WorkerList",),
    models.WorkerRequest: ("WorkerRequest",),
    models.Finding: ("FindingView",),
    models.DoctorReport: ("DoctorReport",),
    models.Setting: ("SettingView",),
    models.SettingList: ("SettingList",),
    models.SchedulePreview: ("SchedulePreview",),
    models.NodeTypeList: ("Catalogue",),
    models.CredentialType: ("CredentialTypeView",),
    models.CredentialTypeList: ("CredentialTypeList",),
    models.ProblemDocument: ("ProblemDocument",),
}
# Base classes, the response of a route that is not part of the document, and events of streams.
WITHOUT_SCHEMA = {models.Model, models.Page, models.ServerVersion, models.Rollup, models.Missed}


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = document()["components"]["schemas"]
    return found


@for_each("source", TARGETS, ids=lambda source: source.stem)
def test_generator_output_equals_checked_in_client(source: Path) -> None:
    assert generate(source) == TARGETS[source].read_text(encoding="utf-8"), "run make generate"


@for_each("target", TARGETS.values(), ids=lambda target: target.stem)
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


@for_each("model", SCHEMAS, ids=lambda model: model.__name__)
def test_model_fields_exist_in_schema(model: type[Model], schemas: dict[str, Any]) -> None:
    declared = {field.encode_name for field in msgspec.structs.fields(model)}

    assert declared - schemas[SCHEMAS[model][0]]["properties"].keys() == set()


@for_each("model", SCHEMAS, ids=lambda model: model.__name__)
def test_required_model_fields_are_required_in_schemas(model: type[Model], schemas: dict[str, Any]) -> None:
    required = {field.encode_name for field in msgspec.structs.fields(model) if field.required}

    assert {name: required - set(schemas[name]["required"]) for name in SCHEMAS[model]} == {
        name: set() for name in SCHEMAS[model]
    }


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "deploy": [{}, {"workflow": "x"}],
    "download": [{"what": "document"}, {"what": "input"}, {"what": "output"}],
    "enable_trigger": [{"enabled": True}, {"enabled": False}],
    "workflow": [{}, {"version": 1}],
    "value_part": [
        {"of": "input"},
        {"of": "output"},
        {"node": "x"},
        {"node": "x", "of": "input"},
        {"blob": "x"},
    ],
    "find_in_value": [
        {"of": "input"},
        {"of": "output"},
        {"node": "x"},
        {"node": "x", "of": "input"},
        {"blob": "x"},
    ],
}
"""Arguments with which a method calls different operations."""

KEYWORDS = {"limit": ("limit", "page"), "label": ("labels",), "wait": ("seconds", "wait")}
"""Names of keywords that differ from the parameter of the query that they set."""


class Sent(Exception):  # noqa: N818 - carries a request out of a method
    def __init__(self, request: httpx.Request) -> None:
        self.request = request


def _argument(annotation: str) -> Any:
    if annotation.startswith("models.Limits"):
        return models.Limits()
    for beginning, value in (("dict", {}), ("Sequence", ["x"]), ("list", ["x"]), ("int", 1), ("bool", True)):
        if annotation.startswith(beginning):
            return value
    return "x"


def _sent(name: str, given: dict[str, Any]) -> httpx.Request:
    """Return the first request that a method of the client sends."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise Sent(request)

    with Client("http://localhost", transport=httpx.MockTransport(refuse)) as client:
        method = getattr(client, name)
        required = {
            each.name: _argument(str(each.annotation))
            for each in inspect.signature(method).parameters.values()
            if each.default is inspect.Parameter.empty and each.kind is not inspect.Parameter.VAR_KEYWORD
        }
        try:
            next(method(**{**required, **given}))
        except Sent as sent:
            return sent.request
    raise AssertionError(f"{name} sent no request")


class Operation:
    """An operation of the OpenAPI document."""

    def __init__(self, verb: str, path: str, described: dict[str, Any]) -> None:
        self.id: str = described["operationId"]
        self.queries = [each for each in described.get("parameters", ()) if each["in"] == "query"]
        self._verb = verb.upper()
        self._path = re.compile(re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(path)) + "$")

    def is_called_by(self, request: httpx.Request) -> bool:
        return request.method == self._verb and self._path.match(request.url.path) is not None


@pytest.fixture(scope="module")
def operations() -> list[Operation]:
    return [
        Operation(verb, path, each)
        for path, found in document()["paths"].items()
        for verb, each in found.items()
    ]


def _variants() -> list[tuple[str, dict[str, Any]]]:
    methods = [
        name
        for name, _ in inspect.getmembers(Client, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    ]
    return [(name, each) for name in methods for each in VARIANTS.get(name, [{}])]


def test_every_operation_has_a_method_in_the_client(operations: list[Operation]) -> None:
    requests = [_sent(name, given) for name, given in _variants()]

    assert [
        each.id for each in operations if not any(each.is_called_by(request) for request in requests)
    ] == []


def _value(schema: dict[str, Any], keyword: str) -> Any:
    """Return a value of a parameter that is not its default."""
    if keyword == "labels":
        return {"name": "value"}
    if "enum" in schema:
        return schema["enum"][-1]
    if "const" in schema:
        return schema["const"]
    if schema.get("type") in ("integer", "number"):
        return max(schema.get("minimum", 0), 1)
    return True if schema.get("type") == "boolean" else "x"


def test_every_parameter_of_a_query_is_a_keyword_of_a_method(operations: list[Operation]) -> None:
    found: dict[tuple[str, str], bool] = {}
    for name, given in _variants():
        request = _sent(name, given)
        known = inspect.signature(getattr(Client, name)).parameters
        for operation in operations:
            if not operation.is_called_by(request):
                continue
            for each in operation.queries:
                parameter = each["name"]
                sent = [request] + [
                    _sent(name, {**given, keyword: _value(each["schema"], keyword)})
                    for keyword in KEYWORDS.get(parameter, (parameter,))
                    if keyword in known
                ]
                place = (operation.id, parameter)
                found[place] = found.get(place, False) or any(
                    parameter in other.url.params and operation.is_called_by(other) for other in sent
                )

    # Methods that list something send the cursor of each further page themselves.
    assert [place for place, reachable in found.items() if not reachable and place[1] != "cursor"] == []
