"""Builders of the API calls that both clients send. Nothing here performs I/O."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec

from rune.client import models
from rune.codec.decode import decode

T = TypeVar("T")
API = "/api/v1"


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A request and the type of its response. An `idempotent` call may be sent again: its effect occurs once."""

    method: str
    path: str
    response: Any
    params: dict[str, Any] = {}
    body: bytes | None = None
    headers: dict[str, str] = {}
    idempotent: bool = False
    extra_timeout_s: float = 0.0  # added to the timeout of the client, for long polls

    def read(self, data: bytes) -> T:
        """Decode the body of a response; MalformedDataError if it is none of a Rune server."""
        if self.response is None:
            return None  # type: ignore[return-value]
        if self.response is bytes:
            return data  # type: ignore[return-value]
        decoded: T = decode(msgspec.json.Decoder(self.response), data)
        return decoded


def new_key() -> str:
    """Return a random idempotency key."""
    return secrets.token_hex(16)


def start(
    workflow: str | None,
    input: Any,
    *,
    definition: Any = None,
    version: str | int | None = None,
    key: str | None = None,
    labels: dict[str, str] | None = None,
    priority: int | None = None,
    fake_time: bool = False,
    pins: dict[str, Any] | None = None,
    outlets: dict[str, str] | None = None,
    wait: float = 0.0,
) -> Call[models.Started]:
    body = _present(
        definition=definition,
        version=version,
        labels=labels,
        priority=priority,
        pins=pins,
        outlets=outlets,
    )
    body["input"] = {} if input is None else input
    if fake_time:
        body["fake_time"] = True
    path = "/executions" if workflow is None else f"/workflows/{_quoted(workflow)}/executions"
    return _post(path, models.Started, body, key or new_key(), wait, wait=wait or None)


def execution(id: str, wait: float = 0.0) -> Call[models.Execution]:
    return _get(f"/executions/{_quoted(id)}", models.Execution, wait, wait=wait or None)


def executions(filters: dict[str, Any], limit: int, cursor: str | None) -> Call[models.ExecutionPage]:
    return _get("/executions", models.ExecutionPage, **filters, limit=limit, cursor=cursor)


def execution_filters(
    *,
    status: str | Sequence[str] | None = None,
    failed_items: bool = False,
    stuck: bool = False,
    labels: dict[str, str] | None = None,
    version: str | int | None = None,
    **others: str | None,
) -> dict[str, Any]:
    """Return the filters of a list of executions as query parameters."""
    return {
        "status": status if status is None or isinstance(status, str) else list(status) or None,
        "failed_items": failed_items or None,
        "stuck": stuck or None,
        "label": [f"{name}={value}" for name, value in (labels or {}).items()] or None,
        "version": None if version is None else str(version),
        **others,
    }


def count_executions(filters: dict[str, Any]) -> Call[models.ExecutionPage]:
    return _get("/executions", models.ExecutionPage, **filters, limit=1, count="estimate")


def events_path(id: str) -> str:
    return f"{API}/executions/{_quoted(id)}/events"


CHANGES_PATH = f"{API}/events"


def history(
    id: str, after: int, before: int | None, kind: str | None, node: str | None, limit: int
) -> Call[models.EventPage]:
    path = f"/executions/{_quoted(id)}/history"
    return _get(path, models.EventPage, after=after, before=before, kind=kind, node=node, limit=limit)


def rollups(id: str) -> Call[models.SplitRollupList]:
    return _get(f"/executions/{_quoted(id)}/rollups", models.SplitRollupList)


def output(id: str) -> Call[Any]:
    return _get(f"/executions/{_quoted(id)}/output", Any)


def compare(id: str, other: str) -> Call[models.Comparison]:
    return _get(f"/executions/{_quoted(id)}/diff/{_quoted(other)}/summary", models.Comparison)


def differences(id: str, other: str) -> Call[models.Difference]:
    return _get(f"/executions/{_quoted(id)}/diff/{_quoted(other)}", models.Difference)


def differing_runs(
    id: str, other: str, node: str | None, limit: int, cursor: str | None
) -> Call[models.ComparedRunPage]:
    path = f"/executions/{_quoted(id)}/diff/{_quoted(other)}/runs"
    return _get(path, models.ComparedRunPage, node=node, limit=limit, cursor=cursor)


def bulk_selection(
    action: str, ids: Sequence[str] | None, filter: dict[str, Any] | None, limit: int
) -> dict[str, Any]:
    """Return the selection of a bulk job as a body."""
    body: dict[str, Any] = {"action": action, "limit": limit}
    if ids is not None:
        body["ids"] = list(ids)
    if filter is not None:
        found = execution_filters(**filter)
        if isinstance(found["status"], str):
            found["status"] = [found["status"]]
        body["filter"] = _present(**found)
    return body


def bulk(selection: dict[str, Any], reason: str, key: str | None) -> Call[models.BulkJob]:
    return _post("/bulk", models.BulkJob, {**selection, "reason": reason}, key or new_key())


def bulk_preview(selection: dict[str, Any]) -> Call[models.BulkPreview]:
    return _post("/bulk/preview", models.BulkPreview, selection)


def bulk_jobs(limit: int) -> Call[models.BulkJobList]:
    return _get("/bulk", models.BulkJobList, limit=limit)


def bulk_job(id: str) -> Call[models.BulkJob]:
    return _get(f"/bulk/{_quoted(id)}", models.BulkJob)


def bulk_outcomes(
    id: str, outcome: str | None, limit: int, cursor: str | None
) -> Call[models.BulkOutcomePage]:
    return _get(
        f"/bulk/{_quoted(id)}/outcomes", models.BulkOutcomePage, outcome=outcome, limit=limit, cursor=cursor
    )


def abort_bulk(id: str) -> Call[models.BulkJob]:
    return _post(f"/bulk/{_quoted(id)}/abort", models.BulkJob)


def value_part(
    id: str,
    of: str,
    node: str | None,
    blob: str | None,
    lineage: str | None,
    pointer: str,
    depth: int,
    offset: int,
    limit: int | None,
) -> Call[models.ValuePart]:
    return _get(
        _value_path(id, of, node, blob),
        models.ValuePart,
        lineage=lineage,
        pointer=pointer,
        depth=depth,
        offset=offset,
        limit=limit,
    )


def find_in_value(
    id: str,
    find: str,
    of: str,
    node: str | None,
    blob: str | None,
    lineage: str | None,
    pointer: str,
    offset: int,
    limit: int,
) -> Call[models.ValueMatches]:
    return _get(
        _value_path(id, of, node, blob),
        models.ValueMatches,
        lineage=lineage,
        find=find,
        pointer=pointer,
        offset=offset,
        limit=limit,
    )


def _value_path(id: str, of: str, node: str | None, blob: str | None) -> str:
    if blob is not None:
        return blob_path(id, blob).removeprefix(API)
    run = "" if node is None else f"/nodes/{_quoted(node)}"
    return f"/executions/{_quoted(id)}{run}/{of}"


def document(id: str) -> Call[dict[str, Any]]:
    return _get(f"/executions/{_quoted(id)}/document", dict[str, Any])


def recorded_test(id: str, node: str | None, lineage: str | None) -> Call[dict[str, Any]]:
    return _get(f"/executions/{_quoted(id)}/test", dict[str, Any], node=node, lineage=lineage)


def explain(id: str) -> Call[models.Explanation]:
    return _get(f"/executions/{_quoted(id)}/explain", models.Explanation)


def nodes(
    id: str, node: str | None, status: str | None, lineage: str | None, limit: int, cursor: str | None
) -> Call[models.NodeRunPage]:
    return _get(
        f"/executions/{_quoted(id)}/nodes",
        models.NodeRunPage,
        node=node,
        status=status,
        lineage=lineage,
        limit=limit,
        cursor=cursor,
    )


def graph(id: str, lineage: str | None, at: int | None) -> Call[models.Graph]:
    return _get(f"/executions/{_quoted(id)}/graph", models.Graph, lineage=lineage, at=at)


def items(
    id: str,
    split: str,
    lineage: str | None,
    node: str | None,
    status: str | Sequence[str] | None,
    code: str | None,
    limit: int,
    cursor: str | None,
) -> Call[models.SplitItemPage]:
    return _get(
        _items(id, split),
        models.SplitItemPage,
        lineage=lineage,
        node=node,
        status=status if status is None or isinstance(status, str) else list(status) or None,
        code=code,
        limit=limit,
        cursor=cursor,
    )


def packed_items(
    id: str, split: str, by: str, lineage: str | None, node: str | None, offset: int, limit: int | None
) -> Call[bytes]:
    path = f"{_items(id, split)}/packed"
    return _get(path, bytes, by=by, lineage=lineage, node=node, offset=offset or None, limit=limit)


def item_counts(
    id: str, split: str, lineage: str | None, node: str | None, times: bool
) -> Call[models.ItemCounts]:
    path = f"{_items(id, split)}/facets"
    return _get(path, models.ItemCounts, lineage=lineage, node=node, times=times or None)


def _items(id: str, split: str) -> str:
    return f"/executions/{_quoted(id)}/splits/{_quoted(split)}/items"


def waiting(
    kind: str, workflow: str | None, limit: int, cursor: str | None
) -> Call[models.WaitingSignalPage]:
    return _get(
        "/waiting", models.WaitingSignalPage, kind=kind, workflow=workflow, limit=limit, cursor=cursor
    )


def waiting_signal(execution: str, node: str, item: str | None) -> Call[models.WaitingSignal]:
    return _get(f"/waiting/{_quoted(execution)}/{_quoted(node)}", models.WaitingSignal, item=item)


def attempts(id: str, node: str, lineage: str | None) -> Call[models.AttemptList]:
    path = f"/executions/{_quoted(id)}/nodes/{_quoted(node)}/attempts"
    return _get(path, models.AttemptList, lineage=lineage)


def attempt_log(id: str, node: str, attempt: int, lineage: str | None) -> Call[models.NodeLog]:
    path = f"/executions/{_quoted(id)}/nodes/{_quoted(node)}/attempts/{attempt}/log"
    return _get(path, models.NodeLog, lineage=lineage)


def node_input(id: str, node: str, lineage: str | None) -> Call[models.NodeInput]:
    return _get(f"/executions/{_quoted(id)}/nodes/{_quoted(node)}/input", models.NodeInput, lineage=lineage)


def logs(id: str, node: str | None, after: int, limit: int) -> Call[models.NodeLogPage]:
    path = f"/executions/{_quoted(id)}/logs"
    return _get(path, models.NodeLogPage, node=node, after=after, limit=limit)


def control(id: str, verb: Literal["pause", "resume"]) -> Call[models.ActionResult]:
    return _post(f"/executions/{_quoted(id)}/{verb}", models.ActionResult)


def cancel(id: str, reason: str) -> Call[models.ActionResult]:
    return _post(f"/executions/{_quoted(id)}/cancel", models.ActionResult, {"reason": reason})


def signal(id: str, name: str, value: Any, item: str | None, key: str | None) -> Call[models.SignalResult]:
    body = {"name": name, "value": value, **_present(item=item)}
    return _post(f"/executions/{_quoted(id)}/signals", models.SignalResult, body, key or new_key())


def retry(
    id: str, failed_items: bool, key: str | None, chosen: dict[str, str | None] | None = None
) -> Call[models.Started]:
    body = {"failed_items": failed_items, **_present(**(chosen or {}))}
    return _post(f"/executions/{_quoted(id)}/retry", models.Started, body, key or new_key())


def rerun(
    id: str, node: str, item: str | None, key: str | None, changes: dict[str, Any] | None = None
) -> Call[models.Started]:
    body = {"node": node, **_present(item=item), **(changes or {})}
    return _post(f"/executions/{_quoted(id)}/rerun", models.Started, body, key or new_key())


def deploy(
    definition: Any,
    workflow: str | None,
    match: str | None,
    note: str | None = None,
    media_type: str | None = None,
) -> Call[models.Deployed]:
    method, path = ("POST", "/workflows") if workflow is None else ("PUT", f"/workflows/{_quoted(workflow)}")
    return _upload(method, path, definition, models.Deployed, match, media_type, note=note)


def source(workflow: str, version: str | int) -> Call[bytes]:
    return _get(f"/workflows/{_quoted(workflow)}/versions/{_quoted(str(version))}/source", bytes)


def check(
    definition: Any, plan: bool, layout: bool, direction: str | None, width: int | None, height: int | None
) -> Call[models.Checked]:
    return _upload(
        "POST",
        "/workflows/validate",
        definition,
        models.Checked,
        plan="true" if plan else None,
        layout="true" if layout else None,
        direction=direction,
        width=width,
        height=height,
    )


def import_workflow(source: Any, format: str | None, name: str | None, stubs: bool) -> Call[models.Imported]:
    wanted = _present(format=format, name=name, stubs="true" if stubs else None)
    return _upload("POST", "/workflows/import", source, models.Imported, **wanted)


def blob_path(execution: str, key: str) -> str:
    return f"{API}/executions/{_quoted(execution)}/blobs/{quote(key)}"


def download_path(execution: str, what: str, node: str | None = None, lineage: str | None = None) -> str:
    run = "" if node is None else f"/nodes/{_quoted(node)}"
    item = "" if lineage is None else f"?lineage={quote(lineage, safe='')}"
    return f"{API}/executions/{_quoted(execution)}{run}/{what}{item}"


def stats(by: str, since: str | None, step: str, workflow: str | None) -> Call[models.Stats]:
    return _get("/stats", models.Stats, by=by, since=since, step=step, workflow=workflow)


def activity(workflow: str) -> Call[models.WorkflowActivity]:
    return _get(f"/workflows/{_quoted(workflow)}/activity", models.WorkflowActivity)


def workflows(hidden: bool, activity: bool, limit: int, cursor: str | None) -> Call[models.WorkflowPage]:
    return _get(
        "/workflows",
        models.WorkflowPage,
        hidden="true" if hidden else None,
        activity="true" if activity else None,
        limit=limit,
        cursor=cursor,
    )


def workflow(id: str, version: str | int | None) -> Call[models.WorkflowVersion]:
    suffix = "" if version is None else f"/versions/{_quoted(str(version))}"
    return _get(f"/workflows/{_quoted(id)}{suffix}", models.WorkflowVersion)


def versions(id: str, limit: int, cursor: str | None) -> Call[models.VersionPage]:
    return _get(f"/workflows/{_quoted(id)}/versions", models.VersionPage, limit=limit, cursor=cursor)


def aliases(id: str) -> Call[models.AliasList]:
    return _get(f"/workflows/{_quoted(id)}/aliases", models.AliasList)


def alias(id: str, name: str) -> Call[models.Alias]:
    return _get(f"/workflows/{_quoted(id)}/aliases/{_quoted(name)}", models.Alias)


def set_alias(
    id: str, alias: str, version: int | None, weights: dict[int, float] | None, match: int | None
) -> Call[models.Alias]:
    body = {**_present(version=version), "weights": {str(k): v for k, v in (weights or {}).items()}}
    headers = {} if match is None else {"If-Match": f'"{match}"'}
    return _put(f"/workflows/{_quoted(id)}/aliases/{_quoted(alias)}", models.Alias, body, headers)


def delete_workflow(id: str) -> Call[None]:
    return _delete(f"/workflows/{_quoted(id)}", idempotent=True)


def restore_workflow(id: str) -> Call[models.Deployed]:
    return _post(f"/workflows/{_quoted(id)}/restore", models.Deployed)


def compare_versions(id: str, before: str | int, after: str | int) -> Call[models.ComparedVersions]:
    return _get(f"/workflows/{_quoted(id)}/diff", models.ComparedVersions, before=before, after=after)


def definition(hash: str) -> Call[dict[str, Any]]:
    return _get(f"/definitions/{_quoted(hash)}", dict[str, Any])


def layout(hash: str, direction: str, width: int, height: int) -> Call[models.Layout]:
    return _get(
        f"/definitions/{_quoted(hash)}/layout",
        models.Layout,
        direction=direction,
        width=width,
        height=height,
    )


def preview(
    execution: str, node: str, text: str, lineage: str, mode: str, draft: dict[str, Any] | None
) -> Call[models.Preview]:
    body = {
        "execution": execution,
        "node": node,
        "text": text,
        "lineage": lineage,
        "mode": mode,
        **_present(draft=draft),
    }
    return _post("/expressions/preview", models.Preview, body)


def dead_letters(limit: int, cursor: str | None) -> Call[models.DeadLetterPage]:
    return _get("/dead-letters", models.DeadLetterPage, limit=limit, cursor=cursor)


def requeue(id: str) -> Call[models.Started]:
    return Call(
        method="POST",
        path=f"{API}/dead-letters/{_quoted(id)}/requeue",
        response=models.Started,
        idempotent=True,
    )


def drop(id: str) -> Call[None]:
    return _delete(f"/dead-letters/{_quoted(id)}")


def dead_messages(limit: int) -> Call[models.DeadMessageList]:
    return _get("/dead-messages", models.DeadMessageList, limit=limit)


def dead_message(id: str) -> Call[models.DeadMessageDetail]:
    return _get(f"/dead-messages/{_quoted(id)}", models.DeadMessageDetail)


def requeue_message(id: str) -> Call[models.RequeuedMessage]:
    return Call(
        method="POST", path=f"{API}/dead-messages/{_quoted(id)}/requeue", response=models.RequeuedMessage
    )


def drop_message(id: str) -> Call[None]:
    return _delete(f"/dead-messages/{_quoted(id)}")


def triggers(workflow: str | None) -> Call[models.TriggerList]:
    return _get("/triggers", models.TriggerList, workflow=workflow)


def trigger(id: str) -> Call[models.Trigger]:
    return _get(f"/triggers/{_quoted(id)}", models.Trigger)


def enable_trigger(id: str, enabled: bool) -> Call[models.Trigger]:
    verb = "enable" if enabled else "disable"
    return Call(
        method="POST", path=f"{API}/triggers/{_quoted(id)}/{verb}", response=models.Trigger, idempotent=True
    )


def rotate_trigger(id: str, secret: bool) -> Call[models.RotatedTrigger]:
    return Call(
        method="POST",
        path=f"{API}/triggers/{_quoted(id)}/rotate",
        response=models.RotatedTrigger,
        body=msgspec.json.encode({"secret": secret}),
    )


def credentials() -> Call[models.CredentialList]:
    return _get("/credentials", models.CredentialList)


def credential(name: str) -> Call[models.Credential]:
    return _get(f"/credentials/{_quoted(name)}", models.Credential)


def add_credential(
    name: str,
    type: str,
    values: dict[str, Any],
    hosts: Sequence[str],
    insecure: bool,
    grants: Sequence[str],
) -> Call[models.Credential]:
    body = {
        "name": name,
        "type": type,
        "values": values,
        "hosts": list(hosts),
        "insecure": insecure,
        "grants": list(grants),
    }
    return _post("/credentials", models.Credential, body)


def rotate_credential(
    name: str, values: dict[str, Any], hosts: Sequence[str] | None, insecure: bool | None
) -> Call[models.Credential]:
    body = {
        "values": values,
        **_present(hosts=None if hosts is None else list(hosts), insecure=insecure),
    }
    return Call(
        method="PATCH",
        path=f"{API}/credentials/{_quoted(name)}",
        response=models.Credential,
        body=msgspec.json.encode(body),
    )


def remove_credential(name: str) -> Call[None]:
    return _delete(f"/credentials/{_quoted(name)}")


def grants(name: str) -> Call[models.Granted]:
    return _get(f"/credentials/{_quoted(name)}/grants", models.Granted)


def credential_uses(name: str) -> Call[models.CredentialUses]:
    return _get(f"/credentials/{_quoted(name)}/uses", models.CredentialUses)


def change_grants(name: str, grant: Sequence[str], withdraw: Sequence[str]) -> Call[models.Granted]:
    return Call(
        method="POST",
        path=f"{API}/credentials/{_quoted(name)}/grants",
        response=models.Granted,
        body=msgspec.json.encode({"grant": list(grant), "withdraw": list(withdraw)}),
        idempotent=True,
    )


def limits(workflow: str) -> Call[models.Limits]:
    return _get(f"/workflows/{_quoted(workflow)}/limits", models.Limits)


def put_limits(workflow: str, limits: models.Limits) -> Call[models.Limits]:
    return _put(f"/workflows/{_quoted(workflow)}/limits", models.Limits, _set(limits))


def put_key_limits(id: str, limits: models.Limits) -> Call[models.Limits]:
    return _put(f"/keys/{_quoted(id)}/limits", models.Limits, _set(limits))


def handlers() -> Call[models.Handlers]:
    return _get("/handlers", models.Handlers)


def put_handlers(
    on_failure: Mapping[str, Any] | None,
    on_late: Mapping[str, Any] | None,
    on_missing: Mapping[str, Any] | None,
) -> Call[models.Handlers]:
    body = {"on_failure": on_failure, "on_late": on_late, "on_missing": on_missing}
    return _put("/handlers", models.Handlers, body)


def failed_handlers(limit: int) -> Call[models.FailedHandlers]:
    return _get("/handlers/failed", models.FailedHandlers, limit=limit)


def keys() -> Call[models.ApiKeyList]:
    return _get("/keys", models.ApiKeyList)


def me() -> Call[models.Me]:
    return _get("/me", models.Me)


def create_session() -> Call[models.Me]:
    return _post("/session", models.Me)


def end_session() -> Call[None]:
    return _delete("/session", idempotent=True)


def create_key(
    name: str, role: str, workflows: list[str], expires_in: int | None, limits: models.Limits | None
) -> Call[models.NewApiKey]:
    optional = _present(expires_in=expires_in, limits=None if limits is None else _set(limits))
    body = {"name": name, "role": role, "workflows": workflows, **optional}
    return _post("/keys", models.NewApiKey, body)


def revoke_key(id: str) -> Call[None]:
    return _delete(f"/keys/{_quoted(id)}", idempotent=True)


def log(
    actor: str | None,
    action: str | None,
    target: str | None,
    after: int | None,
    limit: int,
    cursor: str | None,
) -> Call[models.LogPage]:
    return _get(
        "/audit-log",
        models.LogPage,
        actor=actor,
        action=action,
        target=target,
        after=after,
        limit=limit,
        cursor=cursor,
    )


def workers() -> Call[models.WorkerList]:
    return _get("/workers", models.WorkerList)


def doctor() -> Call[models.DoctorReport]:
    return _get("/doctor", models.DoctorReport)


def drain_worker(id: str) -> Call[models.WorkerRequest]:
    return _post(f"/workers/{_quoted(id)}/drain", models.WorkerRequest)


def resume_worker(id: str) -> Call[models.WorkerRequest]:
    return _post(f"/workers/{_quoted(id)}/resume", models.WorkerRequest)


def settings() -> Call[models.SettingList]:
    return _get("/settings", models.SettingList)


def preview_schedule(times: dict[str, Any], count: int) -> Call[models.SchedulePreview]:
    return _post("/schedules/preview", models.SchedulePreview, {**times, "count": count})


def node_types() -> Call[dict[str, Any]]:
    return _get("/nodes", dict[str, Any])


def node_type(name: str) -> Call[dict[str, Any]]:
    return _get(f"/nodes/{_quoted(name)}", dict[str, Any])


def queues() -> Call[models.QueueList]:
    return _get("/queues", models.QueueList)


def timers(execution: str) -> Call[models.TimerList]:
    return _get(f"/executions/{_quoted(execution)}/timers", models.TimerList)


def next_timer() -> Call[models.NextTimer]:
    return _get("/timers", models.NextTimer)


def credential_types() -> Call[models.CredentialTypeList]:
    return _get("/credential-types", models.CredentialTypeList)


def workflow_schema() -> Call[dict[str, Any]]:
    return _get("/schemas/workflow", dict[str, Any])


def server_version() -> Call[models.ServerVersion]:
    return Call(method="GET", path="/version", response=models.ServerVersion, idempotent=True)


def _get(path: str, response: Any, extra_timeout_s: float = 0.0, **params: Any) -> Call[Any]:
    return Call(
        method="GET",
        path=API + path,
        response=response,
        params=_present(**params),
        idempotent=True,
        extra_timeout_s=extra_timeout_s,
    )


def _post(
    path: str,
    response: Any,
    body: dict[str, Any] | None = None,
    key: str | None = None,
    extra_timeout_s: float = 0.0,
    **params: Any,
) -> Call[Any]:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return Call(
        method="POST",
        path=API + path,
        response=response,
        params=_present(**params),
        body=msgspec.json.encode(body or {}),
        headers=headers,
        idempotent=key is not None,
        extra_timeout_s=extra_timeout_s,
    )


def _put(path: str, response: Any, body: Any, headers: dict[str, str] | None = None) -> Call[Any]:
    return Call(
        method="PUT",
        path=API + path,
        response=response,
        body=msgspec.json.encode(body),
        headers=headers or {},
        idempotent=True,
    )


def _delete(path: str, *, idempotent: bool = False) -> Call[None]:
    return Call(method="DELETE", path=API + path, response=None, idempotent=idempotent)


def _upload(
    method: str,
    path: str,
    definition: Any,
    response: Any,
    match: str | None = None,
    media_type: str | None = None,
    **params: Any,
) -> Call[Any]:
    """Send a definition as JSON if it is plain data, as YAML if it is text without another media type."""
    text = isinstance(definition, str | bytes)
    data = definition.encode() if isinstance(definition, str) else definition
    headers = {"Content-Type": media_type or ("application/yaml" if text else "application/json")}
    if match is not None:
        headers["If-Match"] = f'"{match}"'
    return Call(
        method=method,
        path=API + path,
        response=response,
        params=_present(**params),
        body=data if text else msgspec.json.encode(definition),
        headers=headers,
        idempotent=method == "PUT",
    )


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _set(limits: models.Limits) -> dict[str, Any]:
    return _present(**msgspec.structs.asdict(limits))
