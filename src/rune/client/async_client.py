"""Asynchronous client for a Rune server.

async with AsyncClient("http://127.0.0.1:8080") as client:
    started = await client.start("hello", {"name": "World"})
    async for event in client.watch(started.execution_id):
        print(event.number, event.kind, event.node_id)
    print(await client.output(started.execution_id))
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
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
from rune.client.transport import ChangeDecoder, EventDecoder, SseDecoder, async_transport, default_server


class AsyncRun:
    """An execution on a server. `started` is the response to its start; its fields are properties of the handle."""

    def __init__(self, client: AsyncClient, started: models.Started) -> None:
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

    async def execution(self) -> models.Execution:
        """Get the execution."""
        return await self._client.execution(self.id)

    async def wait(self, timeout: float | None = None) -> models.Execution:
        """Wait until the execution has ended, whatever its status. Raise TimeoutError after `timeout` seconds."""
        execution = self.started.execution
        if execution is not None and execution.ended:
            return execution
        return await self._client.wait(self.id, timeout)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the output. Raise ExecutionFailed unless the execution completed."""
        ended = await self.wait(timeout)
        if ended.status != "completed":
            raise ExecutionFailed(ended)
        return await self._client.output(self.id)

    async def output(self) -> Any:
        """Get the output of the ended execution; None unless it completed."""
        return await self._client.output(self.id)

    async def watch(self, *, after: int = 0) -> AsyncIterator[models.Event]:
        """Yield the events of the execution until it has ended."""
        async for event in self._client.watch(self.id, after=after):
            yield event

    async def nodes(
        self, *, node: str | None = None, status: str | None = None
    ) -> AsyncIterator[models.NodeRun]:
        """Yield the node runs in the order they ended."""
        async for run in self._client.nodes(self.id, node=node, status=status):
            yield run

    async def timeline(self) -> list[models.NodeRun]:
        """List the node runs that began, in the order they began."""
        began = [run async for run in self.nodes() if run.started_at]
        return sorted(began, key=lambda run: str(run.started_at))

    async def document(self) -> dict[str, Any]:
        """Get the ended execution with all its node runs as one document."""
        return await self._client.document(self.id)

    async def explain(self) -> models.Explanation:
        """Get what the execution is waiting for."""
        return await self._client.explain(self.id)

    async def signal(
        self, name: str, value: Any = None, *, item: str | None = None, key: str | None = None
    ) -> models.SignalResult:
        """Send a signal."""
        return await self._client.signal(self.id, name, value, item=item, key=key)

    async def cancel(self, reason: str = "") -> models.ActionResult:
        """Cancel the execution."""
        return await self._client.cancel(self.id, reason)

    async def pause(self) -> models.ActionResult:
        """Pause the execution: running nodes finish, no new ones start."""
        return await self._client.pause(self.id)

    async def resume(self) -> models.ActionResult:
        """Resume the paused execution."""
        return await self._client.resume(self.id)

    async def retry(
        self,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> AsyncRun:
        """Run the failed nodes again in a new execution; the items as of `Client.retry`."""
        return await self._client.retry(
            self.id, failed_items=failed_items, split=split, item=item, code=code, key=key
        )

    async def rerun(
        self,
        node: str,
        *,
        item: str | None = None,
        key: str | None = None,
        input: Any = None,
        parameters: dict[str, Any] | None = None,
        version: str | int | None = None,
    ) -> AsyncRun:
        """Run a node and all nodes after it again in a new execution, as `AsyncClient.rerun` does."""
        return await self._client.rerun(
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


class AsyncClient:
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
        transport: httpx.AsyncBaseTransport | None = None,
        app: Any = None,
    ) -> None:
        address, key = default_server(url or base_url, key, local=app is not None)
        self._timeout = timeout
        self._patience = patience
        self._http = httpx.AsyncClient(
            base_url=address,
            headers={**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})},
            timeout=timeout,
            transport=transport if app is None else async_transport(app),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _get(self, answer: type[T], path: str, /, *names: str | int, **params: Any) -> T:
        """Read what is at a path of the API, in which each `{}` is one of the names. Parameters that are None are left
        out."""
        return await self._send(answer, self._request("GET", path, names, params), idempotent=True)

    async def _pages(
        self, page: type[P], path: str, /, *names: str, cursor: str | None = None, **params: Any
    ) -> AsyncIterator[P]:
        """Yield page after page; the next one is requested only when the caller iterates that far."""
        while True:
            answer = await self._get(page, path, *names, **params, cursor=cursor)
            yield answer
            cursor = answer.next
            if cursor is None:
                return

    async def _post(
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
        return await self._send(answer, request, idempotent=idempotent)

    async def _post_once(
        self, answer: type[T], path: str, /, *names: str, key: str | None, body: dict[str, Any], **params: Any
    ) -> T:
        """Request a change under an idempotency key, a new one if none is given, so that it can be sent again."""
        headers = {"Idempotency-Key": key or new_key()}
        request = self._request("POST", path, names, params, body=body, headers=headers)
        return await self._send(answer, request, idempotent=True)

    async def _put(
        self, answer: type[T], path: str, /, *names: str, body: dict[str, Any], match: object = None
    ) -> T:
        """Replace what is at a path; with `match`, only if it still has this tag."""
        request = self._request("PUT", path, names, body=body, headers=_if_match(match))
        return await self._send(answer, request, idempotent=True)

    async def _delete(self, answer: type[T], path: str, /, *names: str, idempotent: bool = False) -> T:
        return await self._send(answer, self._request("DELETE", path, names), idempotent=idempotent)

    async def _upload(
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
        return await self._send(answer, request, idempotent=method == "PUT")

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

    async def _send(self, answer: type[T], request: httpx.Request, *, idempotent: bool) -> T:
        """Send a request, again where it is idempotent, and decode the response."""
        for attempt in range(MAX_ATTEMPTS if idempotent else 1):
            if attempt:
                await asyncio.sleep(RETRY_DELAY_S * 2 ** (attempt - 1))
            try:
                response = await self._http.send(request)
            except httpx.TransportError as error:
                failure: ClientError = connection_failed(self._http.base_url, error)
                continue
            if response.is_success:
                return read(answer, response.status_code, response.content)
            failure = api_error(response.status_code, response.content, response.headers)
            if response.status_code != 503:
                break
        raise failure

    async def start(
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
    ) -> AsyncRun:
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
        started = await self._post_once(
            models.Started, "/workflows/{}/executions", workflow, key=key, body=body, wait=wait or None
        )
        return AsyncRun(self, started)

    async def start_definition(
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
    ) -> AsyncRun:
        """Start a definition without storing it as a workflow; `pins`, `outlets` and `wait` as of `start`."""
        body = start_body(
            input, definition=definition, labels=labels, fake_time=fake_time, pins=pins, outlets=outlets
        )
        started = await self._post_once(models.Started, "/executions", key=key, body=body, wait=wait or None)
        return AsyncRun(self, started)

    async def run(
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
        started = await self.start_definition(
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
        return await self.wait(started.execution_id, left)

    async def wait(self, execution: str, seconds: float | None = None) -> models.Execution:
        """Wait until an execution has ended, whatever its status. Raise TimeoutError after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = LONG_POLL_S if deadline is None else min(LONG_POLL_S, deadline - time.monotonic())
            answer = await self._get(
                models.Execution, "/executions/{}", execution, wait=max(left, 0.0) or None
            )
            if answer.ended:
                return answer
            if left <= 0:
                raise TimeoutError(f"{execution} has not ended within {seconds} s")

    async def watch(
        self, execution: str, *, after: int = 0, view: Literal["all", "rollup"] = "all"
    ) -> AsyncIterator[models.Event]:
        """Yield the events of an execution until it has ended: each exactly once, also across lost connections. With
        the view `rollup`, those outside of splits."""
        async for event in self.follow(execution, after=after, view=view):
            if isinstance(event, models.Event):
                yield event

    async def follow(
        self, execution: str, *, after: int = 0, view: Literal["all", "rollup"] = "all"
    ) -> AsyncIterator[models.Event | models.Now | models.Rollup]:
        """Yield events as `watch` does and, in between, which nodes run now and what they log. With the view `rollup`,
        counts of the items of splits in place of the events inside of them."""
        path, params = api_path("/executions/{}/events", execution), {"view": view, "after": after}
        async for event in self._events(path, params, EventDecoder(after)):
            yield event

    async def changes(self) -> AsyncIterator[models.ListedExecution | models.Missed]:
        """Yield each execution that starts, changes its status or ends from now on, without an end. After `Missed`
        changes may be missing: read `executions` again. It needs a server, not `app`."""
        async for change in self._events(api_path("/events"), {}, ChangeDecoder()):
            yield change

    async def _events(self, path: str, params: dict[str, Any], decoder: SseDecoder[T]) -> AsyncIterator[T]:
        """Yield what a decoder makes of a stream, and reconnect where the connection is lost."""
        lost_at: float | None = None
        while True:
            try:
                async for event in self._events_of_response(path, params, decoder):
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
            await asyncio.sleep(RETRY_DELAY_S)

    async def _events_of_response(
        self, path: str, params: dict[str, Any], decoder: SseDecoder[T]
    ) -> AsyncIterator[T | None]:
        """Yield what a decoder makes of one response; first what it makes of its beginning, which may be None."""
        async with self._http.stream(
            "GET", path, params=params, headers=decoder.headers, timeout=httpx.Timeout(STREAM_TIMEOUT_S)
        ) as response:
            if response.status_code == 204:
                decoder.ended = True
                return
            if not response.is_success:
                raise api_error(response.status_code, await response.aread())
            yield decoder.opened()
            async for line in response.aiter_lines():
                event = decoder.take(line)
                if event is not None:
                    yield event

    async def execution(self, execution: str) -> models.Execution:
        """Get an execution."""
        return await self._get(models.Execution, "/executions/{}", execution)

    async def executions(
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
    ) -> AsyncIterator[models.ListedExecution]:
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
        async for answer in self._pages(
            models.ExecutionPage, "/executions", **filters, cursor=after, limit=page
        ):
            for execution in answer.executions:
                yield execution

    async def count(
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
        page = await self._get(models.ExecutionPage, "/executions", **filters, limit=1, count="estimate")
        return page.count or models.Count(value=0, exact=False)

    async def history(
        self,
        execution: str,
        *,
        after: int = 0,
        before: int | None = None,
        kind: str | None = None,
        node: str | None = None,
        page: int = 200,
    ) -> AsyncIterator[models.Event]:
        """Yield the events of an execution so far; `watch` yields those that follow as well. `after` is the number of
        the event to continue after. With `before`, `kind` or `node` only such events, newest first."""
        backwards = (before, kind, node) != (None, None, None)
        while True:
            answer = await self._get(
                models.EventPage,
                "/executions/{}/history",
                execution,
                after=after,
                before=before,
                kind=kind,
                node=node,
                limit=page,
            )
            for event in answer.events:
                yield event
            if answer.next is None:
                return
            if backwards:
                before = answer.next
            else:
                after = answer.next

    async def nodes(
        self,
        execution: str,
        *,
        node: str | None = None,
        status: str | None = None,
        lineage: str | None = None,
        page: int = 200,
    ) -> AsyncIterator[models.NodeRun]:
        """Yield the node runs of an execution in the order they ended."""
        async for answer in self._pages(
            models.NodeRunPage,
            "/executions/{}/nodes",
            execution,
            node=node,
            status=status,
            lineage=lineage,
            limit=page,
        ):
            for run in answer.nodes:
                yield run

    async def graph(
        self, execution: str, *, lineage: str | None = None, at: int | None = None
    ) -> models.Graph:
        """Get the states of all nodes and edges: now or after event `at`, with `lineage` in one item."""
        return await self._get(models.Graph, "/executions/{}/graph", execution, lineage=lineage, at=at)

    async def rollups(self, execution: str) -> list[models.SplitRollup]:
        """List the splits of an execution with node counts by status, nodes per second and the first failures."""
        return (await self._get(models.SplitRollupList, "/executions/{}/rollups", execution)).splits

    async def items(
        self,
        execution: str,
        split: str,
        *,
        lineage: str | None = None,
        node: str | None = None,
        status: str | Sequence[str] | None = None,
        code: str | None = None,
        page: int = 200,
    ) -> AsyncIterator[models.SplitItem]:
        """Yield the items of a split in their order: by the worst state in each, or by the state of one node."""
        async for answer in self._pages(
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
            for entry in answer.items:
                yield entry

    async def packed_items(
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
        return await self._get(
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

    async def item_counts(
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
        return await self._get(
            models.ItemCounts,
            "/executions/{}/splits/{}/items/facets",
            execution,
            split,
            lineage=lineage,
            node=node,
            times=times or None,
        )

    async def attempts(
        self, execution: str, node: str, *, lineage: str | None = None
    ) -> list[models.Attempt]:
        """List the attempts of a node run, oldest first."""
        answer = await self._get(
            models.AttemptList, "/executions/{}/nodes/{}/attempts", execution, node, lineage=lineage
        )
        return answer.attempts

    async def attempt_log(
        self, execution: str, node: str, attempt: int, *, lineage: str | None = None
    ) -> models.NodeLog:
        """Get what a node logged in one attempt."""
        return await self._get(
            models.NodeLog,
            "/executions/{}/nodes/{}/attempts/{}/log",
            execution,
            node,
            attempt,
            lineage=lineage,
        )

    async def logs(
        self, execution: str, *, node: str | None = None, after: int = 0, page: int = 50
    ) -> AsyncIterator[models.NodeLog]:
        """Yield the logs of all attempts that have ended, in the order they ended. `after` is the `position` of the log
        to continue after."""
        while True:
            answer = await self._get(
                models.NodeLogPage, "/executions/{}/logs", execution, node=node, after=after, limit=page
            )
            for log in answer.logs:
                yield log
            if answer.next is None:
                return
            after = answer.next

    async def node_input(self, execution: str, node: str, *, lineage: str | None = None) -> models.NodeInput:
        """Get the payload and the resolved parameters that a node was called with."""
        return await self._get(
            models.NodeInput, "/executions/{}/nodes/{}/input", execution, node, lineage=lineage
        )

    async def output(self, execution: str) -> Any:
        """Get the output of an ended execution; None unless it completed."""
        return await self._get(Any, "/executions/{}/output", execution)

    async def value_part(
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
        return await self._get(
            models.ValuePart,
            *value_path(execution, of, node, blob),
            lineage=lineage,
            pointer=pointer,
            depth=depth,
            offset=offset,
            limit=limit,
        )

    async def find_in_value(
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
        return await self._get(
            models.ValueMatches,
            *value_path(execution, of, node, blob),
            lineage=lineage,
            find=find,
            pointer=pointer,
            offset=offset,
            limit=limit,
        )

    async def document(self, execution: str) -> dict[str, Any]:
        """Get an ended execution with all its node runs as one document."""
        return await self._get(dict[str, Any], "/executions/{}/document", execution)

    async def download(
        self,
        execution: str,
        what: Literal["document", "input", "output"] = "output",
        *,
        node: str | None = None,
        lineage: str | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the JSON of an execution in chunks as they arrive: its output, its input, or all of its node runs. With
        `node`, the output or input of this node, in an item such as `users:5`."""
        async for chunk in self._stream(*value_path(execution, what, node), lineage=lineage):
            yield chunk

    async def blob(self, execution: str, key: str) -> AsyncIterator[bytes]:
        """Yield a blob of an execution in chunks as they arrive. `key` is that of a blob reference."""
        async for chunk in self._stream(*value_path(execution, blob=key)):
            yield chunk

    async def _stream(self, path: str, /, *names: str, **params: Any) -> AsyncIterator[bytes]:
        try:
            async with self._http.stream("GET", api_path(path, *names), params=present(params)) as response:
                if not response.is_success:
                    raise api_error(response.status_code, await response.aread(), response.headers)
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx.TransportError as error:
            raise connection_failed(self._http.base_url, error) from error

    async def recorded_test(
        self, execution: str, *, node: str | None = None, lineage: str | None = None
    ) -> dict[str, Any]:
        """Get an ended execution as a test for `rune test`: its workflow, input, outcome, and mocks of nodes with
        effects. With `node` the test also expects the result of this node, inside of splits in the item `lineage`."""
        return await self._get(dict[str, Any], "/executions/{}/test", execution, node=node, lineage=lineage)

    async def explain(self, execution: str) -> models.Explanation:
        """Get what an execution is waiting for."""
        return await self._get(models.Explanation, "/executions/{}/explain", execution)

    async def waiting(
        self, *, kind: Literal["signal"] = "signal", workflow: str | None = None, page: int = 100
    ) -> AsyncIterator[models.WaitingSignal]:
        """Yield what waits for a signal in executions that have not ended, newest executions first."""
        async for answer in self._pages(
            models.WaitingSignalPage, "/waiting", kind=kind, workflow=workflow, limit=page
        ):
            for signal in answer.waiting:
                yield signal

    async def waiting_signal(
        self, execution: str, node: str, *, item: str | None = None
    ) -> models.WaitingSignal:
        """Get what a node waits for, in one item if it is inside a split."""
        return await self._get(models.WaitingSignal, "/waiting/{}/{}", execution, node, item=item)

    async def signal(
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
        return await self._post_once(
            models.SignalResult, "/executions/{}/signals", execution, key=key, body=body
        )

    async def cancel(self, execution: str, reason: str = "") -> models.ActionResult:
        """Cancel an execution."""
        return await self._post(
            models.ActionResult, "/executions/{}/cancel", execution, body={"reason": reason}
        )

    async def pause(self, execution: str) -> models.ActionResult:
        """Pause an execution: running nodes finish, no new ones start."""
        return await self._post(models.ActionResult, "/executions/{}/pause", execution)

    async def resume(self, execution: str) -> models.ActionResult:
        """Resume a paused execution."""
        return await self._post(models.ActionResult, "/executions/{}/resume", execution)

    async def compare(self, execution: str, other: str) -> models.Comparison:
        """Compare two executions: groups of runs that differ in the same way."""
        return await self._get(models.Comparison, "/executions/{}/diff/{}/summary", execution, other)

    async def differences(self, execution: str, other: str) -> models.Difference:
        """Compare two executions with all runs that differ and their outputs; `compare` and `differing_runs` return
        the same in parts, for long executions."""
        return await self._get(models.Difference, "/executions/{}/diff/{}", execution, other)

    async def differing_runs(
        self, execution: str, other: str, *, node: str | None = None, page: int = 200
    ) -> AsyncIterator[models.ComparedRunPair]:
        """Yield the runs that differ between two executions, without their outputs."""
        async for answer in self._pages(
            models.ComparedRunPage, "/executions/{}/diff/{}/runs", execution, other, node=node, limit=page
        ):
            for pair in answer.runs:
                yield pair

    async def bulk(
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
        return await self._post_once(models.BulkJob, "/bulk", key=key, body=body)

    async def bulk_preview(
        self,
        action: str,
        *,
        ids: Sequence[str] | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 1_000,
    ) -> models.BulkPreview:
        """Count the executions that `bulk` would process, and those that can be changed so."""
        return await self._post(
            models.BulkPreview, "/bulk/preview", body=bulk_selection(action, ids, filter, limit)
        )

    async def bulk_jobs(self, limit: int = 50) -> list[models.BulkJob]:
        """List bulk jobs, newest first."""
        return (await self._get(models.BulkJobList, "/bulk", limit=limit)).jobs

    async def bulk_job(self, job: str) -> models.BulkJob:
        """Get a bulk job with its progress."""
        return await self._get(models.BulkJob, "/bulk/{}", job)

    async def bulk_outcomes(
        self, job: str, *, outcome: str | None = None, page: int = 200
    ) -> AsyncIterator[models.BulkOutcome]:
        """Yield what became of each execution of a bulk job."""
        async for answer in self._pages(
            models.BulkOutcomePage, "/bulk/{}/outcomes", job, outcome=outcome, limit=page
        ):
            for result in answer.outcomes:
                yield result

    async def abort_bulk(self, job: str) -> models.BulkJob:
        """Let a bulk job process no further execution."""
        return await self._post(models.BulkJob, "/bulk/{}/abort", job)

    async def retry(
        self,
        execution: str,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> AsyncRun:
        """Run the failed nodes again in a new execution; with `failed_items` only those of failed items, which `split`,
        `item` and `code` limit to one split, to an item around it and to one error code."""
        chosen = present({"split": split, "item": item, "code": code})
        started = await self._post_once(
            models.Started,
            "/executions/{}/retry",
            execution,
            key=key,
            body={"failed_items": failed_items, **chosen},
        )
        return AsyncRun(self, started)

    async def rerun(
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
    ) -> AsyncRun:
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
        started = await self._post_once(models.Started, "/executions/{}/rerun", execution, key=key, body=body)
        return AsyncRun(self, started)

    async def handle(self, execution: str) -> AsyncRun:
        """Get the handle of an execution that was started before."""
        stored = await self.execution(execution)
        return AsyncRun(
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

    async def deploy(
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
        return await self._upload(
            models.Deployed,
            *target,
            document=definition,
            media_type=media_type,
            match=match,
            alias=alias,
            note=note,
        )

    async def source(self, workflow: str, version: str | int = "latest") -> bytes:
        """Get the text that a version was deployed with, JSON or YAML."""
        return await self._get(bytes, "/workflows/{}/versions/{}/source", workflow, version)

    async def check(
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
        return await self._upload(
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

    async def import_workflow(
        self,
        source: dict[str, Any] | str | bytes,
        *,
        format: Literal["canvas", "n8n", "asl"] | None = None,
        name: str | None = None,
        stubs: bool = False,
    ) -> models.Imported:
        """Convert a workflow of another tool, without storing it: plain data, or text, JSON or YAML. The format is
        detected unless it is given; `name` names a workflow whose document has no name."""
        return await self._upload(
            models.Imported,
            "POST",
            "/workflows/import",
            document=source,
            format=format,
            name=name,
            stubs=stubs or None,
        )

    async def stats(
        self, *, by: str = "status", since: str | None = None, step: str = "1h", workflow: str | None = None
    ) -> models.Stats:
        """Count the executions that ended since a time (a day ago by default) in steps of `1m` to `1d`: by `status`,
        `workflow` or `workflow,status`."""
        return await self._get(models.Stats, "/stats", by=by, since=since, step=step, workflow=workflow)

    async def activity(self, workflow: str) -> models.WorkflowActivity:
        """Get the newest outcomes of a workflow and how long its executions take."""
        return await self._get(models.WorkflowActivity, "/workflows/{}/activity", workflow)

    async def workflows(
        self, *, hidden: bool = False, activity: bool = False, page: int = 200
    ) -> AsyncIterator[models.Workflow]:
        """Yield the deployed workflows by id. `hidden` adds archived ones, `activity` adds their newest outcomes."""
        async for answer in self._pages(
            models.WorkflowPage, "/workflows", hidden=hidden or None, activity=activity or None, limit=page
        ):
            for entry in answer.workflows:
                yield entry

    async def workflow(self, workflow: str, version: str | int | None = None) -> models.WorkflowVersion:
        """Get a version of a workflow with its definition; the latest by default."""
        if version is None:
            return await self._get(models.WorkflowVersion, "/workflows/{}", workflow)
        return await self._get(models.WorkflowVersion, "/workflows/{}/versions/{}", workflow, version)

    async def versions(self, workflow: str, *, page: int = 200) -> AsyncIterator[models.Version]:
        """Yield the versions of a workflow, oldest first."""
        async for answer in self._pages(models.VersionPage, "/workflows/{}/versions", workflow, limit=page):
            for version in answer.versions:
                yield version

    async def set_alias(
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
        return await self._put(
            models.PointedAlias, "/workflows/{}/aliases/{}", workflow, alias, body=body, match=match
        )

    async def aliases(self, workflow: str) -> list[models.Alias]:
        """List the aliases of a workflow by name."""
        return (await self._get(models.AliasList, "/workflows/{}/aliases", workflow)).aliases

    async def alias(self, workflow: str, name: str) -> models.Alias:
        """Get an alias of a workflow."""
        return await self._get(models.Alias, "/workflows/{}/aliases/{}", workflow, name)

    async def compare_versions(
        self, workflow: str, before: str | int, after: str | int = "latest"
    ) -> models.ComparedVersions:
        """Compare two versions of a workflow, given by number or alias."""
        return await self._get(
            models.ComparedVersions, "/workflows/{}/diff", workflow, before=before, after=after
        )

    async def restore(self, workflow: str) -> models.Deployed:
        """Restore an archived workflow."""
        return await self._post(models.Deployed, "/workflows/{}/restore", workflow)

    async def delete(self, workflow: str) -> models.Archived:
        """Archive a workflow. Its versions and executions are kept."""
        return await self._delete(models.Archived, "/workflows/{}", workflow, idempotent=True)

    async def definition(self, hash: str) -> dict[str, Any]:
        """Get a definition by its hash."""
        return await self._get(dict[str, Any], "/definitions/{}", hash)

    async def layout(
        self,
        hash: str,
        *,
        direction: Literal["right", "down"] = "right",
        width: int = 200,
        height: int = 64,
    ) -> models.Layout:
        """Get the layout of a definition, for nodes of this size."""
        return await self._get(
            models.Layout, "/definitions/{}/layout", hash, direction=direction, width=width, height=height
        )

    async def preview(
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
        return await self._post(
            models.Preview, "/expressions/preview", body={**body, **present({"draft": draft})}
        )

    async def dead_letters(
        self, *, after: str | None = None, page: int = 200
    ) -> AsyncIterator[models.DeadLetter]:
        """Yield the dead letters, newest first. `after` is the id of the dead letter to continue after."""
        async for answer in self._pages(models.DeadLetterPage, "/dead-letters", cursor=after, limit=page):
            for letter in answer.dead_letters:
                yield letter

    async def requeue(self, letter: str) -> AsyncRun:
        """Run a dead letter again in a new execution."""
        started = await self._post(models.Started, "/dead-letters/{}/requeue", letter, idempotent=True)
        return AsyncRun(self, started)

    async def drop(self, letter: str) -> None:
        """Discard a dead letter."""
        await self._delete(NoneType, "/dead-letters/{}", letter)

    async def dead_messages(self, limit: int = 50) -> list[models.DeadMessage]:
        """List messages of the queue that no worker could process, oldest first."""
        return (await self._get(models.DeadMessageList, "/dead-messages", limit=limit)).dead_messages

    async def dead_message(self, message: str) -> models.DeadMessageDetail:
        """Get a dead message with its body."""
        return await self._get(models.DeadMessageDetail, "/dead-messages/{}", message)

    async def requeue_message(self, message: str) -> models.RequeuedMessage:
        """Send a dead message to its queue again."""
        return await self._post(models.RequeuedMessage, "/dead-messages/{}/requeue", message)

    async def drop_message(self, message: str) -> models.DiscardedMessage:
        """Discard a dead message."""
        return await self._delete(models.DiscardedMessage, "/dead-messages/{}", message)

    async def triggers(self, workflow: str | None = None) -> list[models.Trigger]:
        """List all triggers, or those of one workflow."""
        return (await self._get(models.TriggerList, "/triggers", workflow=workflow)).triggers

    async def trigger(self, id: str) -> models.Trigger:
        """Get a trigger."""
        return await self._get(models.Trigger, "/triggers/{}", id)

    async def enable_trigger(self, id: str, *, enabled: bool = True) -> models.Trigger:
        """Enable or disable a trigger."""
        verb = "enable" if enabled else "disable"
        return await self._post(models.Trigger, "/triggers/{}/" + verb, id, idempotent=True)

    async def rotate_trigger(self, id: str, *, secret: bool = False) -> models.RotatedTrigger:
        """Give a webhook a new path or, with `secret`, a new secret, which only this response contains."""
        return await self._post(models.RotatedTrigger, "/triggers/{}/rotate", id, body={"secret": secret})

    async def credentials(self) -> list[models.Credential]:
        """List the credentials by name, without values."""
        return (await self._get(models.CredentialList, "/credentials")).credentials

    async def credential(self, name: str) -> models.Credential:
        """Get a credential by name or id, without values."""
        return await self._get(models.Credential, "/credentials/{}", name)

    async def add_credential(
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
        return await self._post(models.Credential, "/credentials", body=body)

    async def rotate_credential(
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
        return await self._send(models.Credential, request, idempotent=False)

    async def credential_uses(self, name: str) -> list[models.CredentialUse]:
        """List the nodes that refer to a credential, in the latest versions of workflows and those with an alias."""
        return (await self._get(models.CredentialUses, "/credentials/{}/uses", name)).uses

    async def remove_credential(self, name: str) -> None:
        """Delete a credential."""
        await self._delete(NoneType, "/credentials/{}", name)

    async def granted(self, name: str) -> list[str]:
        """List the principals that may use a credential."""
        return (await self._get(models.Granted, "/credentials/{}/grants", name)).granted

    async def grant(self, name: str, whom: Sequence[str] = (), *, withdraw: Sequence[str] = ()) -> list[str]:
        """Grant and withdraw the use of a credential. Return the principals that may use it afterwards."""
        body = {"grant": list(whom), "withdraw": list(withdraw)}
        answer = await self._post(models.Granted, "/credentials/{}/grants", name, body=body, idempotent=True)
        return answer.granted

    async def limits(self, workflow: str) -> models.Limits:
        """Get the start limits of a workflow."""
        return await self._get(models.Limits, "/workflows/{}/limits", workflow)

    async def limit(self, workflow: str, limits: models.Limits) -> models.Limits:
        """Replace all start limits of a workflow; a field that is not set removes its limit."""
        return await self._put(models.Limits, "/workflows/{}/limits", workflow, body=limits_body(limits))

    async def limit_key(self, id: str, limits: models.Limits) -> models.Limits:
        """Replace all start limits of an API key; a field that is not set removes its limit."""
        return await self._put(models.Limits, "/keys/{}/limits", id, body=limits_body(limits))

    async def handlers(self) -> models.Handlers:
        """Get the handlers of deployed workflows that name none."""
        return await self._get(models.Handlers, "/handlers")

    async def set_handlers(
        self,
        *,
        on_failure: Mapping[str, Any] | None = None,
        on_late: Mapping[str, Any] | None = None,
        on_missing: Mapping[str, Any] | None = None,
    ) -> models.Handlers:
        """Replace the handlers of deployed workflows that name none, each given as `{"workflow": …}`."""
        body = {"on_failure": on_failure, "on_late": on_late, "on_missing": on_missing}
        return await self._put(models.Handlers, "/handlers", body=body)

    async def failed_handlers(self, *, limit: int = 100) -> list[models.FailedHandler]:
        """List the handlers that could not be started, newest first."""
        return (await self._get(models.FailedHandlers, "/handlers/failed", limit=limit)).handlers

    async def keys(self) -> list[models.ApiKey]:
        """List the API keys, without their secrets."""
        return (await self._get(models.ApiKeyList, "/keys")).keys

    async def me(self) -> models.Me:
        """Get the principal of this client and its rights."""
        return await self._get(models.Me, "/me")

    async def create_session(self) -> models.Me:
        """Exchange the API key of this client for a session of 12 hours. From then on the client sends the cookie of
        the session in place of the key. On a server without keys nothing changes."""
        me = await self._post(models.Me, "/session")
        if me.authentication == "session":
            del self._http.headers["Authorization"]
            # A server accepts changes in a session only from its own pages.
            self._http.headers["Origin"] = str(self._http.base_url).rstrip("/")
        return me

    async def end_session(self) -> None:
        """End the session of this client."""
        await self._delete(NoneType, "/session", idempotent=True)

    async def create_key(
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
        return await self._post(models.NewApiKey, "/keys", body=body)

    async def revoke_key(self, id: str) -> None:
        """Revoke an API key."""
        await self._delete(NoneType, "/keys/{}", id, idempotent=True)

    async def log(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        after: int | None = None,
        page: int = 200,
    ) -> AsyncIterator[models.LogEntry]:
        """Yield the entries of the audit log, newest first; with `after` those behind this number, oldest first."""
        async for answer in self._pages(
            models.LogPage, "/audit-log", actor=actor, action=action, target=target, after=after, limit=page
        ):
            for entry in answer.entries:
                yield entry

    async def workers(self) -> list[models.Worker]:
        """List the recently active processes."""
        return (await self._get(models.WorkerList, "/workers")).workers

    async def queues(self) -> list[models.Queue]:
        """List the queues with the number of waiting and claimed tokens."""
        return (await self._get(models.QueueList, "/queues")).queues

    async def timers(self, execution: str) -> list[models.Waiting]:
        """List the timers of an execution by due time."""
        return (await self._get(models.TimerList, "/executions/{}/timers", execution)).timers

    async def next_timer(self) -> str | None:
        """Get the due time of the next timer of all executions."""
        return (await self._get(models.NextTimer, "/timers")).next_due_at

    async def drain_worker(self, worker: str) -> models.WorkerRequest:
        """Ask a worker to receive no more work. It finishes what it holds and then stays idle; `workers` shows it."""
        return await self._post(models.WorkerRequest, "/workers/{}/drain", worker)

    async def resume_worker(self, worker: str) -> models.WorkerRequest:
        """Ask a drained worker to receive work again."""
        return await self._post(models.WorkerRequest, "/workers/{}/resume", worker)

    async def doctor(self) -> models.DoctorReport:
        """Check the configuration of the server and its stores, as `rune doctor` does."""
        return await self._get(models.DoctorReport, "/doctor")

    async def settings(self) -> list[models.Setting]:
        """List the settings of the server and where each comes from. Secrets are not shown."""
        return (await self._get(models.SettingList, "/settings")).settings

    async def preview_schedule(self, *, count: int = 5, **times: Any) -> models.SchedulePreview:
        """Get the next times of a schedule with the parameters of a `schedule` node: `cron` and `timezone`, or `amount`
        and `unit`."""
        return await self._post(models.SchedulePreview, "/schedules/preview", body={**times, "count": count})

    async def node_types(self) -> list[dict[str, Any]]:
        """List the node types of the server with the schemas of their parameters."""
        types: list[dict[str, Any]] = (await self._get(dict[str, Any], "/nodes"))["nodes"]
        return types

    async def node_type(self, name: str) -> dict[str, Any]:
        """Get a node type by its name or an alias."""
        return await self._get(dict[str, Any], "/nodes/{}", name)

    async def credential_types(self) -> list[models.CredentialType]:
        """List the credential types with the schemas of their fields."""
        return (await self._get(models.CredentialTypeList, "/credential-types")).credential_types

    async def workflow_schema(self) -> dict[str, Any]:
        """Get the JSON Schema of workflow documents, with the node types of the server."""
        return await self._get(dict[str, Any], "/schemas/workflow")

    async def version(self) -> models.ServerVersion:
        """Get the version of the server."""
        request = self._http.build_request("GET", "/version")
        return await self._send(models.ServerVersion, request, idempotent=True)
