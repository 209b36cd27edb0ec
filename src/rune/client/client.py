# Generated from async_client.py by tools/unasync.py; do not edit.
"""Synchronous client for a Rune server.

with Client("http://127.0.0.1:8080") as client:
    started = client.start("hello", {"name": "World"})
    for event in client.watch(started.execution_id):
        print(event.number, event.kind, event.node_id)
    print(client.output(started.execution_id))
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

import httpx
import msgspec

from rune.client import models
from rune.client.encoding import (
    any_of,
    api_path,
    bulk_selection,
    document_content,
    execution_filters,
    limits_body,
    new_key,
    present,
    read,
    start_body,
    value_path,
)
from rune.client.errors import (
    ApiError,
    ClientError,
    ConnectionFailedError,
    ExecutionFailed,
    api_error,
    connection_failed,
)
from rune.client.transport import ChangeDecoder, EventDecoder, SseDecoder, default_server, sync_transport


class Run:
    """An execution on a server. `started` is the response to its start; its fields are properties of the handle."""

    def __init__(self, client: Client, started: models.Started) -> None:
        self._client = client
        self.started = started

    @property
    def id(self) -> str:
        return self.started.execution_id

    @property
    def execution_id(self) -> str:
        return self.started.execution_id

    @property
    def workflow_id(self) -> str:
        return self.started.workflow_id

    @property
    def hash(self) -> str:
        """The hash of the definition."""
        return self.started.hash

    @property
    def version(self) -> int | None:
        return self.started.version

    @property
    def alias(self) -> str | None:
        return self.started.alias

    @property
    def started_at(self) -> str:
        return self.started.started_at

    @property
    def retry_of(self) -> str | None:
        """The execution that this one repeats."""
        return self.started.retry_of

    @property
    def replayed(self) -> bool:
        """Whether an earlier request with the same idempotency key started it."""
        return self.started.replayed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.workflow_id}>"

    def execution(self) -> models.Execution:
        """Get the execution."""
        return self._client.execution(self.id)

    def wait(self, timeout: float | None = None) -> models.Execution:
        """Wait until the execution has ended, whatever its status. Raise TimeoutError after `timeout` seconds."""
        execution = self.started.execution
        if execution is not None and execution.ended:
            return execution
        return self._client.wait(self.id, timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the output. Raise ExecutionFailed unless the execution completed."""
        ended = self.wait(timeout)
        if ended.status != "completed":
            raise ExecutionFailed(ended)
        return self._client.output(self.id)

    def output(self) -> Any:
        """Get the output of the ended execution; None unless it completed."""
        return self._client.output(self.id)

    def watch(self, *, after: int = 0) -> Iterator[models.Event]:
        """Yield the events of the execution until it has ended."""
        yield from self._client.watch(self.id, after=after)

    def nodes(self, *, node: str | None = None, status: str | None = None) -> Iterator[models.NodeRun]:
        """Yield the node runs in the order they ended."""
        yield from self._client.nodes(self.id, node=node, status=status)

    def timeline(self) -> list[models.NodeRun]:
        """List the node runs that began, in the order they began."""
        began = [run for run in self.nodes() if run.started_at]
        return sorted(began, key=lambda run: str(run.started_at))

    def document(self) -> dict[str, Any]:
        """Get the ended execution with all its node runs as one document."""
        return self._client.document(self.id)

    def explain(self) -> models.Explanation:
        """Get what the execution is waiting for."""
        return self._client.explain(self.id)

    def signal(
        self, name: str, value: Any = None, *, item: str | None = None, key: str | None = None
    ) -> models.SignalResult:
        """Send a signal."""
        return self._client.signal(self.id, name, value, item=item, key=key)

    def cancel(self, reason: str = "") -> models.ActionResult:
        """Cancel the execution."""
        return self._client.cancel(self.id, reason)

    def pause(self) -> models.ActionResult:
        """Pause the execution: running nodes finish, no new ones start."""
        return self._client.pause(self.id)

    def resume(self) -> models.ActionResult:
        """Resume the paused execution."""
        return self._client.resume(self.id)

    def retry(
        self,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> Run:
        """Run the failed nodes again in a new execution; the items as of `Client.retry`."""
        return self._client.retry(
            self.id, failed_items=failed_items, split=split, item=item, code=code, key=key
        )

    def rerun(
        self,
        node: str,
        *,
        item: str | None = None,
        key: str | None = None,
        input: Any = None,
        parameters: dict[str, Any] | None = None,
        version: str | int | None = None,
    ) -> Run:
        """Run a node and all nodes after it again in a new execution, as `Client.rerun` does."""
        return self._client.rerun(
            self.id, node, item=item, key=key, input=input, parameters=parameters, version=version
        )


class Page(Protocol):
    """One page of a list. `next` is the cursor of the following page, None on the last one."""

    @property
    def next(self) -> str | None: ...


MAX_ATTEMPTS = 4
RETRY_DELAY_S = 0.2  # before the second attempt; doubled with each further one
LONG_POLL_S = 30.0
STREAM_TIMEOUT_S = 60.0

T = TypeVar("T")
P = TypeVar("P", bound="Page")
_NONE_GIVEN: Mapping[str, Any] = {}


def _if_match(tag: object) -> dict[str, str]:
    return {} if tag is None else {"If-Match": f'"{tag}"'}


class Client:
    """Calls the HTTP API of a server, with an API key if `key` is given. Without a URL, the server is the one that
    RUNE_URL names, with the key in RUNE_API_KEY. `app` is an ASGI application to call instead of a server; `timeout`,
    `headers` and `transport` are those of httpx, and `base_url` is another name of `url`.

    Requests that fail on the network or with status 503 are sent again where that is safe; starts and signals carry an
    idempotency key for this purpose. `watch` reconnects for up to `patience` seconds after a connection is lost.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        patience: float = 20.0,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        app: Any = None,
    ) -> None:
        address, key = default_server(url or base_url, key, local=app is not None)
        self._timeout = timeout
        self._patience = patience
        self._http = httpx.Client(
            base_url=address,
            headers={**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})},
            timeout=timeout,
            transport=transport if app is None else sync_transport(app),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _get(self, answer: type[T], path: str, /, *names: str | int, **params: Any) -> T:
        """Read what is at a path of the API, in which each `{}` is one of the names. Parameters that are None are left
        out."""
        return self._send(answer, self._request("GET", path, names, params), idempotent=True)

    def _pages(
        self, page: type[P], path: str, /, *names: str, cursor: str | None = None, **params: Any
    ) -> Iterator[P]:
        """Yield page after page; the next one is requested only when the caller iterates that far."""
        while True:
            answer = self._get(page, path, *names, **params, cursor=cursor)
            yield answer
            cursor = answer.next
            if cursor is None:
                return

    def _post(
        self,
        answer: type[T],
        path: str,
        /,
        *names: str,
        body: dict[str, Any] | None = None,
        idempotent: bool = False,
    ) -> T:
        """Request a change. It is sent again only if it is idempotent: repeated, it changes nothing further."""
        request = self._request("POST", path, names, body=body or {})
        return self._send(answer, request, idempotent=idempotent)

    def _post_once(
        self, answer: type[T], path: str, /, *names: str, key: str | None, body: dict[str, Any], **params: Any
    ) -> T:
        """Request a change under an idempotency key, a new one if none is given, so that it can be sent again."""
        headers = {"Idempotency-Key": key or new_key()}
        request = self._request("POST", path, names, params, body=body, headers=headers)
        return self._send(answer, request, idempotent=True)

    def _put(
        self, answer: type[T], path: str, /, *names: str, body: dict[str, Any], match: object = None
    ) -> T:
        """Replace what is at a path; with `match`, only if it still has this tag."""
        request = self._request("PUT", path, names, body=body, headers=_if_match(match))
        return self._send(answer, request, idempotent=True)

    def _delete(self, answer: type[T], path: str, /, *names: str, idempotent: bool = False) -> T:
        return self._send(answer, self._request("DELETE", path, names), idempotent=idempotent)

    def _upload(
        self,
        answer: type[T],
        method: Literal["POST", "PUT"],
        path: str,
        /,
        *names: str,
        document: Any,
        media_type: str | None = None,
        match: str | None = None,
        **params: Any,
    ) -> T:
        """Send a document, plain data or text."""
        content, kind = document_content(document, media_type)
        headers = {"Content-Type": kind, **_if_match(match)}
        request = self._request(method, path, names, params, content=content, headers=headers)
        return self._send(answer, request, idempotent=method == "PUT")

    def _request(
        self,
        method: str,
        path: str,
        names: Sequence[str | int],
        params: Mapping[str, Any] = _NONE_GIVEN,
        *,
        body: dict[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] = _NONE_GIVEN,
    ) -> httpx.Request:
        """Build a request, of which the body is JSON and `content` is not. The time that the server is asked to wait is
        added to the timeout."""
        if body is not None:
            content, headers = msgspec.json.encode(body), {"Content-Type": "application/json", **headers}
        return self._http.build_request(
            method,
            api_path(path, *names),
            params=present(params),
            content=content,
            headers=headers,
            timeout=self._timeout + (params.get("wait") or 0.0),
        )

    def _send(self, answer: type[T], request: httpx.Request, *, idempotent: bool) -> T:
        """Send a request, again where it is idempotent, and decode the response."""
        for attempt in range(MAX_ATTEMPTS if idempotent else 1):
            if attempt:
                time.sleep(RETRY_DELAY_S * 2 ** (attempt - 1))
            try:
                response = self._http.send(request)
            except httpx.TransportError as error:
                failure: ClientError = connection_failed(self._http.base_url, error)
                continue
            if response.is_success:
                return read(answer, response.status_code, response.content)
            failure = api_error(response.status_code, response.content, response.headers)
            if response.status_code != 503:
                break
        raise failure

    def start(
        self,
        workflow: str,
        input: Any = None,
        *,
        version: str | int | None = None,
        key: str | None = None,
        labels: dict[str, str] | None = None,
        priority: int | None = None,
        fake_time: bool = False,
        pins: dict[str, Any] | None = None,
        outlets: dict[str, str] | None = None,
        wait: float = 0.0,
    ) -> Run:
        """Start a deployed workflow and return the handle of its execution, which is durable when this returns.
        `version` is a number or an alias. `pins` are outputs of nodes that are not called, by node; `outlets` are the
        outlets of pinned nodes that have outlets. With `wait`, the same request waits for the end, up to so many
        seconds and at most 60; `started.execution` of the handle is the execution then."""
        body = start_body(
            input,
            version=version,
            labels=labels,
            priority=priority,
            fake_time=fake_time,
            pins=pins,
            outlets=outlets,
        )
        started = self._post_once(
            models.Started, "/workflows/{}/executions", workflow, key=key, body=body, wait=wait or None
        )
        return Run(self, started)

    def start_definition(
        self,
        definition: dict[str, Any],
        input: Any = None,
        *,
        key: str | None = None,
        labels: dict[str, str] | None = None,
        fake_time: bool = False,
        pins: dict[str, Any] | None = None,
        outlets: dict[str, str] | None = None,
        wait: float = 0.0,
    ) -> Run:
        """Start a definition without storing it as a workflow; `pins`, `outlets` and `wait` as of `start`."""
        body = start_body(
            input, definition=definition, labels=labels, fake_time=fake_time, pins=pins, outlets=outlets
        )
        started = self._post_once(models.Started, "/executions", key=key, body=body, wait=wait or None)
        return Run(self, started)

    def run(
        self,
        definition: dict[str, Any],
        input: Any = None,
        *,
        key: str | None = None,
        labels: dict[str, str] | None = None,
        fake_time: bool = False,
        pins: dict[str, Any] | None = None,
        outlets: dict[str, str] | None = None,
        seconds: float | None = None,
    ) -> models.Execution:
        """Start a definition without storing it and wait for its end. Raise TimeoutError after `seconds`."""
        began = time.monotonic()
        started = self.start_definition(
            definition,
            input,
            key=key,
            labels=labels,
            fake_time=fake_time,
            pins=pins,
            outlets=outlets,
            wait=LONG_POLL_S if seconds is None else min(LONG_POLL_S, max(seconds, 0.0)),
        )
        execution = started.started.execution
        if execution is not None and execution.ended:
            return execution
        left = None if seconds is None else seconds - (time.monotonic() - began)
        return self.wait(started.execution_id, left)

    def wait(self, execution: str, seconds: float | None = None) -> models.Execution:
        """Wait until an execution has ended, whatever its status. Raise TimeoutError after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = LONG_POLL_S if deadline is None else min(LONG_POLL_S, deadline - time.monotonic())
            answer = self._get(models.Execution, "/executions/{}", execution, wait=max(left, 0.0) or None)
            if answer.ended:
                return answer
            if left <= 0:
                raise TimeoutError(f"{execution} has not ended within {seconds} s")

    def watch(
        self, execution: str, *, after: int = 0, view: Literal["all", "rollup"] = "all"
    ) -> Iterator[models.Event]:
        """Yield the events of an execution until it has ended: each exactly once, also across lost connections. With
        the view `rollup`, those outside of splits."""
        for event in self.follow(execution, after=after, view=view):
            if isinstance(event, models.Event):
                yield event

    def follow(
        self, execution: str, *, after: int = 0, view: Literal["all", "rollup"] = "all"
    ) -> Iterator[models.Event | models.Now | models.Rollup]:
        """Yield events as `watch` does and, in between, which nodes run now and what they log. With the view `rollup`,
        counts of the items of splits in place of the events inside of them."""
        path, params = api_path("/executions/{}/events", execution), {"view": view, "after": after}
        yield from self._events(path, params, EventDecoder(after))

    def changes(self) -> Iterator[models.ListedExecution | models.Missed]:
        """Yield each execution that starts, changes its status or ends from now on, without an end. After `Missed`
        changes may be missing: read `executions` again. It needs a server, not `app`."""
        yield from self._events(api_path("/events"), {}, ChangeDecoder())

    def _events(self, path: str, params: dict[str, Any], decoder: SseDecoder[T]) -> Iterator[T]:
        """Yield what a decoder makes of a stream, and reconnect where the connection is lost."""
        lost_at: float | None = None
        while True:
            try:
                for event in self._events_of_response(path, params, decoder):
                    lost_at = None
                    if event is not None:
                        yield event
            except httpx.TransportError as error:
                failure: ClientError = connection_failed(self._http.base_url, error)
            except ApiError as error:
                if error.status != 503:
                    raise
                failure = error
            else:
                failure = ConnectionFailedError("the stream ended before the execution did")
            if decoder.ended:
                return
            lost_at = time.monotonic() if lost_at is None else lost_at
            if time.monotonic() - lost_at > self._patience:
                raise failure
            time.sleep(RETRY_DELAY_S)

    def _events_of_response(
        self, path: str, params: dict[str, Any], decoder: SseDecoder[T]
    ) -> Iterator[T | None]:
        """Yield what a decoder makes of one response; first what it makes of its beginning, which may be None."""
        with self._http.stream(
            "GET", path, params=params, headers=decoder.headers, timeout=httpx.Timeout(STREAM_TIMEOUT_S)
        ) as response:
            if response.status_code == 204:
                decoder.ended = True
                return
            if not response.is_success:
                raise api_error(response.status_code, response.read())
            yield decoder.opened()
            for line in response.iter_lines():
                event = decoder.take(line)
                if event is not None:
                    yield event

    def execution(self, execution: str) -> models.Execution:
        """Get an execution."""
        return self._get(models.Execution, "/executions/{}", execution)

    def executions(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow: str | None = None,
        version: str | int | None = None,
        failed_items: bool = False,
        stuck: bool = False,
        labels: dict[str, str] | None = None,
        since: str | None = None,
        until: str | None = None,
        created_after: str | None = None,
        code: str | None = None,
        principal: str | None = None,
        parent: str | None = None,
        retry_of: str | None = None,
        q: str | None = None,
        after: str | None = None,
        page: int = 100,
    ) -> Iterator[models.ListedExecution]:
        """Yield executions, newest first, that match all filters: with one or any of several statuses; with
        `failed_items`, ended ones in which an item failed; with `stuck`, running ones without progress; started from
        `since` to before `until`, times in ISO 8601 with an offset; ended with the error `code`; started by a
        `principal`. `after` is the id to continue after."""
        filters = execution_filters(
            status=status,
            workflow=workflow,
            version=version,
            failed_items=failed_items,
            stuck=stuck,
            labels=labels,
            since=since,
            created_after=created_after,
            until=until,
            code=code,
            principal=principal,
            parent=parent,
            retry_of=retry_of,
            q=q,
        )
        for answer in self._pages(models.ExecutionPage, "/executions", **filters, cursor=after, limit=page):
            yield from answer.executions

    def count(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow: str | None = None,
        failed_items: bool = False,
        labels: dict[str, str] | None = None,
        since: str | None = None,
        until: str | None = None,
        code: str | None = None,
        principal: str | None = None,
    ) -> models.Count:
        """Count the executions that match all filters; many are estimated."""
        filters = execution_filters(
            status=status,
            workflow=workflow,
            failed_items=failed_items,
            labels=labels,
            since=since,
            until=until,
            code=code,
            principal=principal,
        )
        page = self._get(models.ExecutionPage, "/executions", **filters, limit=1, count="estimate")
        return page.count or models.Count(value=0, exact=False)

    def history(
        self,
        execution: str,
        *,
        after: int = 0,
        before: int | None = None,
        kind: str | None = None,
        node: str | None = None,
        page: int = 200,
    ) -> Iterator[models.Event]:
        """Yield the events of an execution so far; `watch` yields those that follow as well. `after` is the number of
        the event to continue after. With `before`, `kind` or `node` only such events, newest first."""
        backwards = (before, kind, node) != (None, None, None)
        while True:
            answer = self._get(
                models.EventPage,
                "/executions/{}/history",
                execution,
                after=after,
                before=before,
                kind=kind,
                node=node,
                limit=page,
            )
            yield from answer.events
            if answer.next is None:
                return
            if backwards:
                before = answer.next
            else:
                after = answer.next

    def nodes(
        self,
        execution: str,
        *,
        node: str | None = None,
        status: str | None = None,
        lineage: str | None = None,
        page: int = 200,
    ) -> Iterator[models.NodeRun]:
        """Yield the node runs of an execution in the order they ended."""
        for answer in self._pages(
            models.NodeRunPage,
            "/executions/{}/nodes",
            execution,
            node=node,
            status=status,
            lineage=lineage,
            limit=page,
        ):
            yield from answer.nodes

    def graph(self, execution: str, *, lineage: str | None = None, at: int | None = None) -> models.Graph:
        """Get the states of all nodes and edges: now or after event `at`, with `lineage` in one item."""
        return self._get(models.Graph, "/executions/{}/graph", execution, lineage=lineage, at=at)

    def rollups(self, execution: str) -> list[models.SplitRollup]:
        """List the splits of an execution with node counts by status, nodes per second and the first failures."""
        return (self._get(models.SplitRollupList, "/executions/{}/rollups", execution)).splits

    def items(
        self,
        execution: str,
        split: str,
        *,
        lineage: str | None = None,
        node: str | None = None,
        status: str | Sequence[str] | None = None,
        code: str | None = None,
        page: int = 200,
    ) -> Iterator[models.SplitItem]:
        """Yield the items of a split in their order: by the worst state in each, or by the state of one node."""
        for answer in self._pages(
            models.SplitItemPage,
            "/executions/{}/splits/{}/items",
            execution,
            split,
            lineage=lineage,
            node=node,
            status=any_of(status),
            code=code,
            limit=page,
        ):
            yield from answer.items

    def packed_items(
        self,
        execution: str,
        split: str,
        *,
        by: str = "state",
        lineage: str | None = None,
        node: str | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> bytes:
        """Get one byte per item of a split: its state, duration, attempts or error code. `offset` and `limit` select a
        range of items."""
        return self._get(
            bytes,
            "/executions/{}/splits/{}/items/packed",
            execution,
            split,
            by=by,
            lineage=lineage,
            node=node,
            offset=offset or None,
            limit=limit,
        )

    def item_counts(
        self,
        execution: str,
        split: str,
        *,
        lineage: str | None = None,
        node: str | None = None,
        times: bool = False,
    ) -> models.ItemCounts:
        """Count the items of a split by state and by error code; with `times` also tell how long they took and how many
        were under way at a time."""
        return self._get(
            models.ItemCounts,
            "/executions/{}/splits/{}/items/facets",
            execution,
            split,
            lineage=lineage,
            node=node,
            times=times or None,
        )

    def attempts(self, execution: str, node: str, *, lineage: str | None = None) -> list[models.Attempt]:
        """List the attempts of a node run, oldest first."""
        answer = self._get(
            models.AttemptList, "/executions/{}/nodes/{}/attempts", execution, node, lineage=lineage
        )
        return answer.attempts

    def attempt_log(
        self, execution: str, node: str, attempt: int, *, lineage: str | None = None
    ) -> models.NodeLog:
        """Get what a node logged in one attempt."""
        return self._get(
            models.NodeLog,
            "/executions/{}/nodes/{}/attempts/{}/log",
            execution,
            node,
            attempt,
            lineage=lineage,
        )

    def logs(
        self, execution: str, *, node: str | None = None, after: int = 0, page: int = 50
    ) -> Iterator[models.NodeLog]:
        """Yield the logs of all attempts that have ended, in the order they ended. `after` is the `position` of the log
        to continue after."""
        while True:
            answer = self._get(
                models.NodeLogPage, "/executions/{}/logs", execution, node=node, after=after, limit=page
            )
            yield from answer.logs
            if answer.next is None:
                return
            after = answer.next

    def node_input(self, execution: str, node: str, *, lineage: str | None = None) -> models.NodeInput:
        """Get the payload and the resolved parameters that a node was called with."""
        return self._get(models.NodeInput, "/executions/{}/nodes/{}/input", execution, node, lineage=lineage)

    def output(self, execution: str) -> Any:
        """Get the output of an ended execution; None unless it completed."""
        return self._get(Any, "/executions/{}/output", execution)

    def value_part(
        self,
        execution: str,
        of: Literal["input", "output"] = "output",
        *,
        node: str | None = None,
        blob: str | None = None,
        lineage: str | None = None,
        pointer: str = "",
        depth: int = 1,
        offset: int = 0,
        limit: int | None = None,
    ) -> models.ValuePart:
        """Get a part of the input or output of an execution or of one of its nodes, or of a blob with JSON: what a JSON
        pointer names, with `depth` levels of members, from `offset` on."""
        return self._get(
            models.ValuePart,
            *value_path(execution, of, node, blob),
            lineage=lineage,
            pointer=pointer,
            depth=depth,
            offset=offset,
            limit=limit,
        )

    def find_in_value(
        self,
        execution: str,
        find: str,
        of: Literal["input", "output"] = "output",
        *,
        node: str | None = None,
        blob: str | None = None,
        lineage: str | None = None,
        pointer: str = "",
        offset: int = 0,
        limit: int = 100,
    ) -> models.ValueMatches:
        """List keys and texts that contain a text, in any case, in the input or output of an execution or of one of its
        nodes, or in a blob with JSON; with `pointer`, in a part of it."""
        return self._get(
            models.ValueMatches,
            *value_path(execution, of, node, blob),
            lineage=lineage,
            find=find,
            pointer=pointer,
            offset=offset,
            limit=limit,
        )

    def document(self, execution: str) -> dict[str, Any]:
        """Get an ended execution with all its node runs as one document."""
        return self._get(dict[str, Any], "/executions/{}/document", execution)

    def download(
        self,
        execution: str,
        what: Literal["document", "input", "output"] = "output",
        *,
        node: str | None = None,
        lineage: str | None = None,
    ) -> Iterator[bytes]:
        """Yield the JSON of an execution in chunks as they arrive: its output, its input, or all of its node runs. With
        `node`, the output or input of this node, in an item such as `users:5`."""
        yield from self._stream(*value_path(execution, what, node), lineage=lineage)

    def blob(self, execution: str, key: str) -> Iterator[bytes]:
        """Yield a blob of an execution in chunks as they arrive. `key` is that of a blob reference."""
        yield from self._stream(*value_path(execution, blob=key))

    def _stream(self, path: str, /, *names: str, **params: Any) -> Iterator[bytes]:
        try:
            with self._http.stream("GET", api_path(path, *names), params=present(params)) as response:
                if not response.is_success:
                    raise api_error(response.status_code, response.read(), response.headers)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise connection_failed(self._http.base_url, error) from error

    def recorded_test(
        self, execution: str, *, node: str | None = None, lineage: str | None = None
    ) -> dict[str, Any]:
        """Get an ended execution as a test for `rune test`: its workflow, input, outcome, and mocks of nodes with
        effects. With `node` the test also expects the result of this node, inside of splits in the item `lineage`."""
        return self._get(dict[str, Any], "/executions/{}/test", execution, node=node, lineage=lineage)

    def explain(self, execution: str) -> models.Explanation:
        """Get what an execution is waiting for."""
        return self._get(models.Explanation, "/executions/{}/explain", execution)

    def waiting(
        self, *, kind: Literal["signal"] = "signal", workflow: str | None = None, page: int = 100
    ) -> Iterator[models.WaitingSignal]:
        """Yield what waits for a signal in executions that have not ended, newest executions first."""
        for answer in self._pages(
            models.WaitingSignalPage, "/waiting", kind=kind, workflow=workflow, limit=page
        ):
            yield from answer.waiting

    def waiting_signal(self, execution: str, node: str, *, item: str | None = None) -> models.WaitingSignal:
        """Get what a node waits for, in one item if it is inside a split."""
        return self._get(models.WaitingSignal, "/waiting/{}/{}", execution, node, item=item)

    def signal(
        self,
        execution: str,
        name: str,
        value: Any = None,
        *,
        item: str | None = None,
        key: str | None = None,
    ) -> models.SignalResult:
        """Send a signal. Under the same key it is delivered once."""
        body = {"name": name, "value": value, **present({"item": item})}
        return self._post_once(models.SignalResult, "/executions/{}/signals", execution, key=key, body=body)

    def cancel(self, execution: str, reason: str = "") -> models.ActionResult:
        """Cancel an execution."""
        return self._post(models.ActionResult, "/executions/{}/cancel", execution, body={"reason": reason})

    def pause(self, execution: str) -> models.ActionResult:
        """Pause an execution: running nodes finish, no new ones start."""
        return self._post(models.ActionResult, "/executions/{}/pause", execution)

    def resume(self, execution: str) -> models.ActionResult:
        """Resume a paused execution."""
        return self._post(models.ActionResult, "/executions/{}/resume", execution)

    def compare(self, execution: str, other: str) -> models.Comparison:
        """Compare two executions: groups of runs that differ in the same way."""
        return self._get(models.Comparison, "/executions/{}/diff/{}/summary", execution, other)

    def differences(self, execution: str, other: str) -> models.Difference:
        """Compare two executions with all runs that differ and their outputs; `compare` and `differing_runs` return
        the same in parts, for long executions."""
        return self._get(models.Difference, "/executions/{}/diff/{}", execution, other)

    def differing_runs(
        self, execution: str, other: str, *, node: str | None = None, page: int = 200
    ) -> Iterator[models.ComparedRunPair]:
        """Yield the runs that differ between two executions, without their outputs."""
        for answer in self._pages(
            models.ComparedRunPage, "/executions/{}/diff/{}/runs", execution, other, node=node, limit=page
        ):
            yield from answer.runs

    def bulk(
        self,
        action: str,
        *,
        ids: Sequence[str] | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 1_000,
        reason: str = "",
        key: str | None = None,
    ) -> models.BulkJob:
        """Act on many executions in the background: `cancel`, `pause`, `resume`, `retry`, `retry_failed_items` or
        `requeue`. They are given by id, or as the newest that match a filter with the parameters of `executions`."""
        body = {**bulk_selection(action, ids, filter, limit), "reason": reason}
        return self._post_once(models.BulkJob, "/bulk", key=key, body=body)

    def bulk_preview(
        self,
        action: str,
        *,
        ids: Sequence[str] | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 1_000,
    ) -> models.BulkPreview:
        """Count the executions that `bulk` would process, and those that can be changed so."""
        return self._post(
            models.BulkPreview, "/bulk/preview", body=bulk_selection(action, ids, filter, limit)
        )

    def bulk_jobs(self, limit: int = 50) -> list[models.BulkJob]:
        """List bulk jobs, newest first."""
        return (self._get(models.BulkJobList, "/bulk", limit=limit)).jobs

    def bulk_job(self, job: str) -> models.BulkJob:
        """Get a bulk job with its progress."""
        return self._get(models.BulkJob, "/bulk/{}", job)

    def bulk_outcomes(
        self, job: str, *, outcome: str | None = None, page: int = 200
    ) -> Iterator[models.BulkOutcome]:
        """Yield what became of each execution of a bulk job."""
        for answer in self._pages(
            models.BulkOutcomePage, "/bulk/{}/outcomes", job, outcome=outcome, limit=page
        ):
            yield from answer.outcomes

    def abort_bulk(self, job: str) -> models.BulkJob:
        """Let a bulk job process no further execution."""
        return self._post(models.BulkJob, "/bulk/{}/abort", job)

    def retry(
        self,
        execution: str,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> Run:
        """Run the failed nodes again in a new execution; with `failed_items` only those of failed items, which `split`,
        `item` and `code` limit to one split, to an item around it and to one error code."""
        chosen = present({"split": split, "item": item, "code": code})
        started = self._post_once(
            models.Started,
            "/executions/{}/retry",
            execution,
            key=key,
            body={"failed_items": failed_items, **chosen},
        )
        return Run(self, started)

    def rerun(
        self,
        execution: str,
        node: str,
        *,
        item: str | None = None,
        key: str | None = None,
        input: Any = None,
        parameters: dict[str, Any] | None = None,
        version: str | int | None = None,
        definition: dict[str, Any] | None = None,
        pins: dict[str, Any] | None = None,
        outlets: dict[str, str] | None = None,
        wait: float = 0.0,
    ) -> Run:
        """Run a node and all nodes after it again in a new execution: with another payload unless `input` is None, with
        other `parameters` of the node, with another version of the workflow or a `definition` that is not stored, or
        with `pins` and `outlets` as of `start`."""
        changes = {
            "input": input,
            "parameters": parameters,
            "version": version,
            "definition": definition,
            "pins": pins,
            "outlets": outlets,
        }
        body = {"node": node, **present({"item": item, **changes})}
        started = self._post_once(models.Started, "/executions/{}/rerun", execution, key=key, body=body)
        return Run(self, started)

    def handle(self, execution: str) -> Run:
        """Get the handle of an execution that was started before."""
        stored = self.execution(execution)
        return Run(
            self,
            models.Started(
                execution_id=stored.execution_id,
                workflow_id=stored.workflow_id,
                hash=stored.hash,
                version=stored.version,
                alias=stored.alias,
                started_at=stored.started_at,
                retry_of=stored.retry_of,
                replayed=False,
            ),
        )

    def deploy(
        self,
        definition: dict[str, Any] | str | bytes,
        *,
        workflow: str | None = None,
        match: str | None = None,
        alias: str | None = None,
        note: str | None = None,
        media_type: str | None = None,
    ) -> models.Deployed:
        """Store a definition as a new workflow, or as the next version of an existing one: plain data, or text, which
        is YAML unless `media_type` is `application/json`. The text and the note are kept with the version. `alias` is
        pointed at it in the same transaction. With `match`, only if the latest version still has this hash, or its
        newest text this SHA-256."""
        if workflow is None and isinstance(definition, dict) and "id" in definition:
            workflow = str(definition["id"])
        target = ("POST", "/workflows") if workflow is None else ("PUT", "/workflows/{}", workflow)
        return self._upload(
            models.Deployed,
            *target,
            document=definition,
            media_type=media_type,
            match=match,
            alias=alias,
            note=note,
        )

    def source(self, workflow: str, version: str | int = "latest") -> bytes:
        """Get the text that a version was deployed with, JSON or YAML."""
        return self._get(bytes, "/workflows/{}/versions/{}/source", workflow, version)

    def check(
        self,
        definition: dict[str, Any] | str,
        *,
        plan: bool = False,
        layout: bool = False,
        direction: Literal["right", "down"] | None = None,
        width: int | None = None,
        height: int | None = None,
    ) -> models.Checked:
        """Validate a definition without storing it; with `plan` return what each node may mention, with `layout` the
        places of nodes and edges, in this direction and for nodes of this size."""
        return self._upload(
            models.Checked,
            "POST",
            "/workflows/validate",
            document=definition,
            plan=plan or None,
            layout=layout or None,
            direction=direction,
            width=width,
            height=height,
        )

    def import_workflow(
        self,
        source: dict[str, Any] | str | bytes,
        *,
        format: Literal["canvas", "n8n", "asl"] | None = None,
        name: str | None = None,
        stubs: bool = False,
    ) -> models.Imported:
        """Convert a workflow of another tool, without storing it: plain data, or text, JSON or YAML. The format is
        detected unless it is given; `name` names a workflow whose document has no name."""
        return self._upload(
            models.Imported,
            "POST",
            "/workflows/import",
            document=source,
            format=format,
            name=name,
            stubs=stubs or None,
        )

    def stats(
        self, *, by: str = "status", since: str | None = None, step: str = "1h", workflow: str | None = None
    ) -> models.Stats:
        """Count the executions that ended since a time (a day ago by default) in steps of `1m` to `1d`: by `status`,
        `workflow` or `workflow,status`."""
        return self._get(models.Stats, "/stats", by=by, since=since, step=step, workflow=workflow)

    def activity(self, workflow: str) -> models.WorkflowActivity:
        """Get the newest outcomes of a workflow and how long its executions take."""
        return self._get(models.WorkflowActivity, "/workflows/{}/activity", workflow)

    def workflows(
        self, *, hidden: bool = False, activity: bool = False, page: int = 200
    ) -> Iterator[models.Workflow]:
        """Yield the deployed workflows by id. `hidden` adds archived ones, `activity` adds their newest outcomes."""
        for answer in self._pages(
            models.WorkflowPage, "/workflows", hidden=hidden or None, activity=activity or None, limit=page
        ):
            yield from answer.workflows

    def workflow(self, workflow: str, version: str | int | None = None) -> models.WorkflowVersion:
        """Get a version of a workflow with its definition; the latest by default."""
        if version is None:
            return self._get(models.WorkflowVersion, "/workflows/{}", workflow)
        return self._get(models.WorkflowVersion, "/workflows/{}/versions/{}", workflow, version)

    def versions(self, workflow: str, *, page: int = 200) -> Iterator[models.Version]:
        """Yield the versions of a workflow, oldest first."""
        for answer in self._pages(models.VersionPage, "/workflows/{}/versions", workflow, limit=page):
            yield from answer.versions

    def set_alias(
        self,
        workflow: str,
        alias: str,
        version: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        match: int | None = None,
    ) -> models.PointedAlias:
        """Point an alias at a version; `weights` send a percentage of the starts to other versions. With `match`, only
        if the alias still has this revision."""
        shares = {str(number): share for number, share in (weights or {}).items()}
        body = {**present({"version": version}), "weights": shares}
        return self._put(
            models.PointedAlias, "/workflows/{}/aliases/{}", workflow, alias, body=body, match=match
        )

    def aliases(self, workflow: str) -> list[models.Alias]:
        """List the aliases of a workflow by name."""
        return (self._get(models.AliasList, "/workflows/{}/aliases", workflow)).aliases

    def alias(self, workflow: str, name: str) -> models.Alias:
        """Get an alias of a workflow."""
        return self._get(models.Alias, "/workflows/{}/aliases/{}", workflow, name)

    def compare_versions(
        self, workflow: str, before: str | int, after: str | int = "latest"
    ) -> models.ComparedVersions:
        """Compare two versions of a workflow, given by number or alias."""
        return self._get(models.ComparedVersions, "/workflows/{}/diff", workflow, before=before, after=after)

    def restore(self, workflow: str) -> models.Deployed:
        """Restore an archived workflow."""
        return self._post(models.Deployed, "/workflows/{}/restore", workflow)

    def delete(self, workflow: str) -> models.Archived:
        """Archive a workflow. Its versions and executions are kept."""
        return self._delete(models.Archived, "/workflows/{}", workflow, idempotent=True)

    def definition(self, hash: str) -> dict[str, Any]:
        """Get a definition by its hash."""
        return self._get(dict[str, Any], "/definitions/{}", hash)

    def layout(
        self,
        hash: str,
        *,
        direction: Literal["right", "down"] = "right",
        width: int = 200,
        height: int = 64,
    ) -> models.Layout:
        """Get the layout of a definition, for nodes of this size."""
        return self._get(
            models.Layout, "/definitions/{}/layout", hash, direction=direction, width=width, height=height
        )

    def preview(
        self,
        execution: str,
        node: str,
        text: str,
        *,
        lineage: str = "",
        mode: Literal["expression", "template"] = "template",
        draft: dict[str, Any] | None = None,
    ) -> models.Preview:
        """Evaluate an expression as a parameter of a node of an execution would be. `draft` describes a node that the
        execution does not have: `after` lists the nodes before it, `names` maps mentioned nodes to their former ids."""
        body = {"execution": execution, "node": node, "text": text, "lineage": lineage, "mode": mode}
        return self._post(models.Preview, "/expressions/preview", body={**body, **present({"draft": draft})})

    def dead_letters(self, *, after: str | None = None, page: int = 200) -> Iterator[models.DeadLetter]:
        """Yield the dead letters, newest first. `after` is the id of the dead letter to continue after."""
        for answer in self._pages(models.DeadLetterPage, "/dead-letters", cursor=after, limit=page):
            yield from answer.dead_letters

    def requeue(self, letter: str) -> Run:
        """Run a dead letter again in a new execution."""
        started = self._post(models.Started, "/dead-letters/{}/requeue", letter, idempotent=True)
        return Run(self, started)

    def drop(self, letter: str) -> None:
        """Discard a dead letter."""
        self._delete(NoneType, "/dead-letters/{}", letter)

    def dead_messages(self, limit: int = 50) -> list[models.DeadMessage]:
        """List messages of the queue that no worker could process, oldest first."""
        return (self._get(models.DeadMessageList, "/dead-messages", limit=limit)).dead_messages

    def dead_message(self, message: str) -> models.DeadMessageDetail:
        """Get a dead message with its body."""
        return self._get(models.DeadMessageDetail, "/dead-messages/{}", message)

    def requeue_message(self, message: str) -> models.RequeuedMessage:
        """Send a dead message to its queue again."""
        return self._post(models.RequeuedMessage, "/dead-messages/{}/requeue", message)

    def drop_message(self, message: str) -> models.DiscardedMessage:
        """Discard a dead message."""
        return self._delete(models.DiscardedMessage, "/dead-messages/{}", message)

    def triggers(self, workflow: str | None = None) -> list[models.Trigger]:
        """List all triggers, or those of one workflow."""
        return (self._get(models.TriggerList, "/triggers", workflow=workflow)).triggers

    def trigger(self, id: str) -> models.Trigger:
        """Get a trigger."""
        return self._get(models.Trigger, "/triggers/{}", id)

    def enable_trigger(self, id: str, *, enabled: bool = True) -> models.Trigger:
        """Enable or disable a trigger."""
        verb = "enable" if enabled else "disable"
        return self._post(models.Trigger, "/triggers/{}/" + verb, id, idempotent=True)

    def rotate_trigger(self, id: str, *, secret: bool = False) -> models.RotatedTrigger:
        """Give a webhook a new path or, with `secret`, a new secret, which only this response contains."""
        return self._post(models.RotatedTrigger, "/triggers/{}/rotate", id, body={"secret": secret})

    def credentials(self) -> list[models.Credential]:
        """List the credentials by name, without values."""
        return (self._get(models.CredentialList, "/credentials")).credentials

    def credential(self, name: str) -> models.Credential:
        """Get a credential by name or id, without values."""
        return self._get(models.Credential, "/credentials/{}", name)

    def add_credential(
        self,
        name: str,
        type: str,
        values: dict[str, Any],
        *,
        hosts: Sequence[str] = (),
        insecure: bool = False,
        grants: Sequence[str] = (),
    ) -> models.Credential:
        """Store a credential that is sent to `hosts` only; `*` is any host. Without `grants` it is granted to the
        principal of this client. `insecure` permits connections without TLS or with an unverified certificate."""
        body = {
            "name": name,
            "type": type,
            "values": values,
            "hosts": list(hosts),
            "insecure": insecure,
            "grants": list(grants),
        }
        return self._post(models.Credential, "/credentials", body=body)

    def rotate_credential(
        self,
        name: str,
        values: dict[str, Any],
        *,
        hosts: Sequence[str] | None = None,
        insecure: bool | None = None,
    ) -> models.Credential:
        """Replace values of a credential; fields that are not given keep their values."""
        bound = None if hosts is None else list(hosts)
        body = {"values": values, **present({"hosts": bound, "insecure": insecure})}
        request = self._request("PATCH", "/credentials/{}", (name,), body=body)
        return self._send(models.Credential, request, idempotent=False)

    def credential_uses(self, name: str) -> list[models.CredentialUse]:
        """List the nodes that refer to a credential, in the latest versions of workflows and those with an alias."""
        return (self._get(models.CredentialUses, "/credentials/{}/uses", name)).uses

    def remove_credential(self, name: str) -> None:
        """Delete a credential."""
        self._delete(NoneType, "/credentials/{}", name)

    def granted(self, name: str) -> list[str]:
        """List the principals that may use a credential."""
        return (self._get(models.Granted, "/credentials/{}/grants", name)).granted

    def grant(self, name: str, whom: Sequence[str] = (), *, withdraw: Sequence[str] = ()) -> list[str]:
        """Grant and withdraw the use of a credential. Return the principals that may use it afterwards."""
        body = {"grant": list(whom), "withdraw": list(withdraw)}
        answer = self._post(models.Granted, "/credentials/{}/grants", name, body=body, idempotent=True)
        return answer.granted

    def limits(self, workflow: str) -> models.Limits:
        """Get the start limits of a workflow."""
        return self._get(models.Limits, "/workflows/{}/limits", workflow)

    def limit(self, workflow: str, limits: models.Limits) -> models.Limits:
        """Replace all start limits of a workflow; a field that is not set removes its limit."""
        return self._put(models.Limits, "/workflows/{}/limits", workflow, body=limits_body(limits))

    def limit_key(self, id: str, limits: models.Limits) -> models.Limits:
        """Replace all start limits of an API key; a field that is not set removes its limit."""
        return self._put(models.Limits, "/keys/{}/limits", id, body=limits_body(limits))

    def handlers(self) -> models.Handlers:
        """Get the handlers of deployed workflows that name none."""
        return self._get(models.Handlers, "/handlers")

    def set_handlers(
        self,
        *,
        on_failure: Mapping[str, Any] | None = None,
        on_late: Mapping[str, Any] | None = None,
        on_missing: Mapping[str, Any] | None = None,
    ) -> models.Handlers:
        """Replace the handlers of deployed workflows that name none, each given as `{"workflow": …}`."""
        body = {"on_failure": on_failure, "on_late": on_late, "on_missing": on_missing}
        return self._put(models.Handlers, "/handlers", body=body)

    def failed_handlers(self, *, limit: int = 100) -> list[models.FailedHandler]:
        """List the handlers that could not be started, newest first."""
        return (self._get(models.FailedHandlers, "/handlers/failed", limit=limit)).handlers

    def keys(self) -> list[models.ApiKey]:
        """List the API keys, without their secrets."""
        return (self._get(models.ApiKeyList, "/keys")).keys

    def me(self) -> models.Me:
        """Get the principal of this client and its rights."""
        return self._get(models.Me, "/me")

    def create_session(self) -> models.Me:
        """Exchange the API key of this client for a session of 12 hours. From then on the client sends the cookie of
        the session in place of the key. On a server without keys nothing changes."""
        me = self._post(models.Me, "/session")
        if me.authentication == "session":
            del self._http.headers["Authorization"]
            # A server accepts changes in a session only from its own pages.
            self._http.headers["Origin"] = str(self._http.base_url).rstrip("/")
        return me

    def end_session(self) -> None:
        """End the session of this client."""
        self._delete(NoneType, "/session", idempotent=True)

    def create_key(
        self,
        name: str,
        role: str,
        *,
        workflows: list[str] | None = None,
        expires_in: int | None = None,
        limits: models.Limits | None = None,
    ) -> models.NewApiKey:
        """Create an API key for some workflows, or for all. `expires_in` is in seconds. Only this response contains
        the secret."""
        optional = {"expires_in": expires_in, "limits": None if limits is None else limits_body(limits)}
        body = {"name": name, "role": role, "workflows": workflows or [], **present(optional)}
        return self._post(models.NewApiKey, "/keys", body=body)

    def revoke_key(self, id: str) -> None:
        """Revoke an API key."""
        self._delete(NoneType, "/keys/{}", id, idempotent=True)

    def log(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        after: int | None = None,
        page: int = 200,
    ) -> Iterator[models.LogEntry]:
        """Yield the entries of the audit log, newest first; with `after` those behind this number, oldest first."""
        for answer in self._pages(
            models.LogPage, "/audit-log", actor=actor, action=action, target=target, after=after, limit=page
        ):
            yield from answer.entries

    def workers(self) -> list[models.Worker]:
        """List the recently active processes."""
        return (self._get(models.WorkerList, "/workers")).workers

    def queues(self) -> list[models.Queue]:
        """List the queues with the number of waiting and claimed tokens."""
        return (self._get(models.QueueList, "/queues")).queues

    def timers(self, execution: str) -> list[models.Waiting]:
        """List the timers of an execution by due time."""
        return (self._get(models.TimerList, "/executions/{}/timers", execution)).timers

    def next_timer(self) -> str | None:
        """Get the due time of the next timer of all executions."""
        return (self._get(models.NextTimer, "/timers")).next_due_at

    def drain_worker(self, worker: str) -> models.WorkerRequest:
        """Ask a worker to receive no more work. It finishes what it holds and then stays idle; `workers` shows it."""
        return self._post(models.WorkerRequest, "/workers/{}/drain", worker)

    def resume_worker(self, worker: str) -> models.WorkerRequest:
        """Ask a drained worker to receive work again."""
        return self._post(models.WorkerRequest, "/workers/{}/resume", worker)

    def doctor(self) -> models.DoctorReport:
        """Check the configuration of the server and its stores, as `rune doctor` does."""
        return self._get(models.DoctorReport, "/doctor")

    def settings(self) -> list[models.Setting]:
        """List the settings of the server and where each comes from. Secrets are not shown."""
        return (self._get(models.SettingList, "/settings")).settings

    def preview_schedule(self, *, count: int = 5, **times: Any) -> models.SchedulePreview:
        """Get the next times of a schedule with the parameters of a `schedule` node: `cron` and `timezone`, or `amount`
        and `unit`."""
        return self._post(models.SchedulePreview, "/schedules/preview", body={**times, "count": count})

    def node_types(self) -> list[dict[str, Any]]:
        """List the node types of the server with the schemas of their parameters."""
        types: list[dict[str, Any]] = (self._get(dict[str, Any], "/nodes"))["nodes"]
        return types

    def node_type(self, name: str) -> dict[str, Any]:
        """Get a node type by its name or an alias."""
        return self._get(dict[str, Any], "/nodes/{}", name)

    def credential_types(self) -> list[models.CredentialType]:
        """List the credential types with the schemas of their fields."""
        return (self._get(models.CredentialTypeList, "/credential-types")).credential_types

    def workflow_schema(self) -> dict[str, Any]:
        """Get the JSON Schema of workflow documents, with the node types of the server."""
        return self._get(dict[str, Any], "/schemas/workflow")

    def version(self) -> models.ServerVersion:
        """Get the version of the server."""
        request = self._http.build_request("GET", "/version")
        return self._send(models.ServerVersion, request, idempotent=True)
