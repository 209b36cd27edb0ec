"""Calls: what is asked for and how its answer is read. Nothing here touches a network."""

from __future__ import annotations

import secrets
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec

from rune.client import models

T = TypeVar("T")
API = "/api/v1"


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request. `repeatable`: asked twice it has happened once."""

    method: str
    path: str
    answer: Any
    params: dict[str, Any] = {}
    body: bytes | None = None
    headers: dict[str, str] = {}
    repeatable: bool = False
    patience: float = 0.0  # s that the server may take beyond the usual

    def read(self, data: bytes) -> T:
        """The answer from its bytes."""
        if self.answer is None:
            return None  # type: ignore[return-value]
        found: T = msgspec.json.decode(data, type=self.answer)
        return found


def _get(path: str, answer: Any, patience: float = 0.0, **params: Any) -> Call[Any]:
    given = {name: value for name, value in params.items() if value is not None}
    return Call(
        method="GET", path=API + path, answer=answer, params=given, repeatable=True, patience=patience
    )


def _post(path: str, answer: Any, body: dict[str, Any] | None = None, key: str | None = None) -> Call[Any]:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return Call(
        method="POST",
        path=API + path,
        answer=answer,
        body=msgspec.json.encode(body or {}),
        headers=headers,
        repeatable=key is not None,
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _in(text: str) -> str:
    return quote(text, safe="")


def new_key() -> str:
    """A key for a call that must happen once, should it have to be made twice."""
    return secrets.token_hex(16)


def _document(method: str, path: str, definition: Any, answer: Any, match: str | None = None) -> Call[Any]:
    """A definition: plain data, or the text of a YAML document."""
    text = isinstance(definition, str | bytes)
    data = definition.encode() if isinstance(definition, str) else definition
    headers = {"Content-Type": "application/yaml" if text else "application/json"}
    if match is not None:
        headers["If-Match"] = f'"{match}"'
    return Call(
        method=method,
        path=API + path,
        answer=answer,
        body=data if text else msgspec.json.encode(definition),
        headers=headers,
        repeatable=method == "PUT",
    )


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
) -> Call[models.Started]:
    body = _given(
        workflow=workflow,
        definition=definition,
        version=None if version is None else str(version),
        labels=labels,
        priority=priority,
    )
    body["input"] = {} if input is None else input
    if fake_time:
        body["fake_time"] = True
    return _post("/executions", models.Started, body, key or new_key())


def execution(id: str, wait: float = 0.0) -> Call[models.Execution]:
    return _get(f"/executions/{_in(id)}", models.Execution, wait, wait=wait or None)


def executions(
    status: str | None,
    workflow: str | None,
    labels: dict[str, str] | None,
    q: str | None,
    limit: int,
    cursor: str | None,
) -> Call[models.ExecutionPage]:
    label = [f"{name}={value}" for name, value in (labels or {}).items()] or None
    return _get(
        "/executions",
        models.ExecutionPage,
        status=status,
        workflow=workflow,
        label=label,
        q=q,
        limit=limit,
        cursor=cursor,
    )


def output(id: str) -> Call[Any]:
    return _get(f"/executions/{_in(id)}/output", Any)


def document(id: str) -> Call[dict[str, Any]]:
    return _get(f"/executions/{_in(id)}/document", dict[str, Any])


def explain(id: str) -> Call[models.Explanation]:
    return _get(f"/executions/{_in(id)}/explain", models.Explanation)


def nodes(
    id: str, node: str | None, status: str | None, lineage: str | None, limit: int, cursor: str | None
) -> Call[models.NodeRunPage]:
    return _get(
        f"/executions/{_in(id)}/nodes",
        models.NodeRunPage,
        node=node,
        status=status,
        lineage=lineage,
        limit=limit,
        cursor=cursor,
    )


def control(id: str, verb: Literal["pause", "resume"]) -> Call[models.ActionResult]:
    return _post(f"/executions/{_in(id)}/{verb}", models.ActionResult)


def cancel(id: str, reason: str) -> Call[models.ActionResult]:
    return _post(f"/executions/{_in(id)}/cancel", models.ActionResult, {"reason": reason})


def signal(id: str, name: str, value: Any, item: str | None, key: str | None) -> Call[models.SignalResult]:
    body = {"name": name, "value": value, **_given(item=item)}
    return _post(f"/executions/{_in(id)}/signals", models.SignalResult, body, key or new_key())


def retry(id: str, failed_items: bool, key: str | None) -> Call[models.Started]:
    body = {"failed_items": failed_items}
    return _post(f"/executions/{_in(id)}/retry", models.Started, body, key or new_key())


def rerun(id: str, node: str, item: str | None, key: str | None) -> Call[models.Started]:
    body = {"node": node, **_given(item=item)}
    return _post(f"/executions/{_in(id)}/rerun", models.Started, body, key or new_key())


def deploy(definition: Any, workflow: str | None, match: str | None) -> Call[models.Deployed]:
    if workflow is None:
        return _document("POST", "/workflows", definition, models.Deployed, match)
    return _document("PUT", f"/workflows/{_in(workflow)}", definition, models.Deployed, match)


def check(definition: Any) -> Call[models.Checked]:
    return _document("POST", "/workflows/validate", definition, models.Checked)


def workflows(hidden: bool, limit: int, cursor: str | None) -> Call[models.WorkflowPage]:
    return _get(
        "/workflows",
        models.WorkflowPage,
        hidden="true" if hidden else None,
        limit=limit,
        cursor=cursor,
    )


def workflow(id: str, version: str | int | None) -> Call[models.WorkflowVersion]:
    behind = "" if version is None else f"/versions/{_in(str(version))}"
    return _get(f"/workflows/{_in(id)}{behind}", models.WorkflowVersion)


def versions(id: str, limit: int, cursor: str | None) -> Call[models.VersionPage]:
    return _get(f"/workflows/{_in(id)}/versions", models.VersionPage, limit=limit, cursor=cursor)


def aliases(id: str) -> Call[models.AliasList]:
    return _get(f"/workflows/{_in(id)}/aliases", models.AliasList)


def point(
    id: str, alias: str, version: int | None, weights: dict[int, float] | None, match: int | None
) -> Call[models.Alias]:
    body = {**_given(version=version), "weights": {str(k): v for k, v in (weights or {}).items()}}
    return Call(
        method="PUT",
        path=f"{API}/workflows/{_in(id)}/aliases/{_in(alias)}",
        answer=models.Alias,
        body=msgspec.json.encode(body),
        headers={} if match is None else {"If-Match": f'"{match}"'},
        repeatable=True,
    )


def delete_workflow(id: str) -> Call[None]:
    return Call(method="DELETE", path=f"{API}/workflows/{_in(id)}", answer=None, repeatable=True)


def definition(hash: str) -> Call[dict[str, Any]]:
    return _get(f"/definitions/{_in(hash)}", dict[str, Any])


def dead_letters(limit: int, cursor: str | None) -> Call[models.DeadLetterPage]:
    return _get("/dead-letters", models.DeadLetterPage, limit=limit, cursor=cursor)


def requeue(id: str) -> Call[models.Started]:
    return Call(
        method="POST",
        path=f"{API}/dead-letters/{_in(id)}/requeue",
        answer=models.Started,
        repeatable=True,
    )


def drop(id: str) -> Call[None]:
    return Call(method="DELETE", path=f"{API}/dead-letters/{_in(id)}", answer=None)


def server_version() -> Call[models.ServerVersion]:
    return Call(method="GET", path="/version", answer=models.ServerVersion, repeatable=True)


def events_path(id: str) -> str:
    return f"{API}/executions/{_in(id)}/events"


def keys() -> Call[models.ApiKeyList]:
    return _get("/keys", models.ApiKeyList)


def create_key(
    name: str, role: str, workflows: list[str], expires_in: int | None, limits: models.Limits | None
) -> Call[models.NewApiKey]:
    given = _given(expires_in=expires_in, limits=limits)
    body = {"name": name, "role": role, "workflows": workflows, **given}
    return _post("/keys", models.NewApiKey, body)


def revoke_key(id: str) -> Call[None]:
    return Call(method="DELETE", path=f"{API}/keys/{_in(id)}", answer=None, repeatable=True)


def log(
    actor: str | None, action: str | None, target: str | None, limit: int, cursor: str | None
) -> Call[models.LogPage]:
    return _get("/log", models.LogPage, actor=actor, action=action, target=target, limit=limit, cursor=cursor)
