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
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

import httpx

from rune.client import calls, models
from rune.client.calls import Call
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
        found = self.started.execution
        if found is not None and found.ended:
            return found
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

    def _send(self, call: Call[T]) -> T:
        """Send a call, again where it is idempotent, and decode the response."""
        for attempt in range(MAX_ATTEMPTS if call.idempotent else 1):
            if attempt:
                time.sleep(RETRY_DELAY_S * 2 ** (attempt - 1))
            try:
                response = self._send_once(call)
            except httpx.TransportError as error:
                failure: ClientError = connection_failed(self._http.base_url, error)
                continue
            if response.is_success:
                return call.read(response.content)
            failure = api_error(response.status_code, response.content, response.headers)
            if response.status_code != 503:
                break
        raise failure

    def _send_once(self, call: Call[T]) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if call.body is not None else {}
        return self._http.request(
            call.method,
            call.path,
            params=call.params,
            content=call.body,
            headers={**headers, **call.headers},
            timeout=self._timeout + call.extra_timeout_s,
        )

    def _pages(self, call: Callable[[str | None], Call[P]], cursor: str | None = None) -> Iterator[P]:
        """Yield page after page; the next one is requested only when the caller iterates that far."""
        while True:
            page = self._send(call(cursor))
            yield page
            cursor = page.next
            if cursor is None:
                return

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
        call = calls.start(
            workflow,
            input,
            version=version,
            key=key,
            labels=labels,
            priority=priority,
            fake_time=fake_time,
            pins=pins,
            outlets=outlets,
            wait=wait,
        )
        return Run(self, self._send(call))

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
        call = calls.start(
            None,
            input,
            definition=definition,
            key=key,
            labels=labels,
            fake_time=fake_time,
            pins=pins,
            outlets=outlets,
            wait=wait,
        )
        return Run(self, self._send(call))

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
        found = started.started.execution
        if found is not None and found.ended:
            return found
        left = None if seconds is None else seconds - (time.monotonic() - began)
        return self.wait(started.execution_id, left)

    def wait(self, execution: str, seconds: float | None = None) -> models.Execution:
        """Wait until an execution has ended, whatever its status. Raise TimeoutError after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = LONG_POLL_S if deadline is None else min(LONG_POLL_S, deadline - time.monotonic())
            found = self._send(calls.execution(execution, max(left, 0.0)))
            if found.ended:
                return found
            if left <= 0:
                raise TimeoutError(f"{execution} has not ended within {seconds} s")

    def watch(
        self, execution: str, *, after: int = 0, view: Literal["all", "rollup"] = "all"
    ) -> Iterator[models.Event]:
        """Yield the events of an execution until it has ended: each exactly once, also across lost connections. With
        the view `rollup`, those outside of splits."""
        for each in self.follow(execution, after=after, view=view):
            if isinstance(each, models.Event):
                yield each

    def follow(
        self, execution: str, *, after: int = 0, view: Literal["all", "rollup"] = "all"
    ) -> Iterator[models.Event | models.Now | models.Rollup]:
        """Yield events as `watch` does and, in between, which nodes run now and what they log. With the view `rollup`,
        counts of the items of splits in place of the events inside of them."""
        path, params = calls.events_path(execution), {"view": view, "after": after}
        yield from self._events(path, params, EventDecoder(after))

    def changes(self) -> Iterator[models.ListedExecution | models.Missed]:
        """Yield each execution that starts, changes its status or ends from now on, without an end. After `Missed`
        changes may be missing: read `executions` again. It needs a server, not `app`."""
        yield from self._events(calls.CHANGES_PATH, {}, ChangeDecoder())

    def _events(self, path: str, params: dict[str, Any], decoder: SseDecoder[T]) -> Iterator[T]:
        """Yield what a decoder makes of a stream, and reconnect where the connection is lost."""
        lost_at: float | None = None
        while True:
            try:
                for each in self._events_of_response(path, params, decoder):
                    lost_at = None
                    if each is not None:
                        yield each
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
        return self._send(calls.execution(execution))

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
        filters = calls.execution_filters(
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
        for found in self._pages(lambda cursor: calls.executions(filters, page, cursor), after):
            yield from found.executions

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
        filters = calls.execution_filters(
            status=status,
            workflow=workflow,
            failed_items=failed_items,
            labels=labels,
            since=since,
            until=until,
            code=code,
            principal=principal,
        )
        page = self._send(calls.count_executions(filters))
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
            found = self._send(calls.history(execution, after, before, kind, node, page))
            yield from found.events
            if found.next is None:
                return
            if backwards:
                before = found.next
            else:
                after = found.next

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
        for found in self._pages(lambda cursor: calls.nodes(execution, node, status, lineage, page, cursor)):
            yield from found.nodes

    def graph(self, execution: str, *, lineage: str | None = None, at: int | None = None) -> models.Graph:
        """Get the states of all nodes and edges: now or after event `at`, with `lineage` in one item."""
        return self._send(calls.graph(execution, lineage, at))

    def rollups(self, execution: str) -> list[models.SplitRollup]:
        """List the splits of an execution with node counts by status, nodes per second and the first failures."""
        found = self._send(calls.rollups(execution))
        return found.splits

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
        for found in self._pages(
            lambda cursor: calls.items(execution, split, lineage, node, status, code, page, cursor)
        ):
            yield from found.items

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
        return self._send(calls.packed_items(execution, split, by, lineage, node, offset, limit))

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
        return self._send(calls.item_counts(execution, split, lineage, node, times))

    def attempts(self, execution: str, node: str, *, lineage: str | None = None) -> list[models.Attempt]:
        """List the attempts of a node run, oldest first."""
        found = self._send(calls.attempts(execution, node, lineage))
        return found.attempts

    def attempt_log(
        self, execution: str, node: str, attempt: int, *, lineage: str | None = None
    ) -> models.NodeLog:
        """Get what a node logged in one attempt."""
        return self._send(calls.attempt_log(execution, node, attempt, lineage))

    def logs(
        self, execution: str, *, node: str | None = None, after: int = 0, page: int = 50
    ) -> Iterator[models.NodeLog]:
        """Yield the logs of all attempts that have ended, in the order they ended. `after` is the `position` of the log
        to continue after."""
        while True:
            found = self._send(calls.logs(execution, node, after, page))
            yield from found.logs
            if found.next is None:
                return
            after = found.next

    def node_input(self, execution: str, node: str, *, lineage: str | None = None) -> models.NodeInput:
        """Get the payload and the resolved parameters that a node was called with."""
        return self._send(calls.node_input(execution, node, lineage))

    def output(self, execution: str) -> Any:
        """Get the output of an ended execution; None unless it completed."""
        return self._send(calls.output(execution))

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
        return self._send(calls.value_part(execution, of, node, blob, lineage, pointer, depth, offset, limit))

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
        return self._send(
            calls.find_in_value(execution, find, of, node, blob, lineage, pointer, offset, limit)
        )

    def document(self, execution: str) -> dict[str, Any]:
        """Get an ended execution with all its node runs as one document."""
        return self._send(calls.document(execution))

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
        yield from self._stream(calls.download_path(execution, what, node, lineage))

    def blob(self, execution: str, key: str) -> Iterator[bytes]:
        """Yield a blob of an execution in chunks as they arrive. `key` is that of a blob reference."""
        yield from self._stream(calls.blob_path(execution, key))

    def _stream(self, path: str) -> Iterator[bytes]:
        try:
            with self._http.stream("GET", path) as response:
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
        return self._send(calls.recorded_test(execution, node, lineage))

    def explain(self, execution: str) -> models.Explanation:
        """Get what an execution is waiting for."""
        return self._send(calls.explain(execution))

    def waiting(
        self, *, kind: Literal["signal"] = "signal", workflow: str | None = None, page: int = 100
    ) -> Iterator[models.WaitingSignal]:
        """Yield what waits for a signal in executions that have not ended, newest executions first."""
        for found in self._pages(lambda cursor: calls.waiting(kind, workflow, page, cursor)):
            yield from found.waiting

    def waiting_signal(self, execution: str, node: str, *, item: str | None = None) -> models.WaitingSignal:
        """Get what a node waits for, in one item if it is inside a split."""
        return self._send(calls.waiting_signal(execution, node, item))

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
        return self._send(calls.signal(execution, name, value, item, key))

    def cancel(self, execution: str, reason: str = "") -> models.ActionResult:
        """Cancel an execution."""
        return self._send(calls.cancel(execution, reason))

    def pause(self, execution: str) -> models.ActionResult:
        """Pause an execution: running nodes finish, no new ones start."""
        return self._send(calls.control(execution, "pause"))

    def resume(self, execution: str) -> models.ActionResult:
        """Resume a paused execution."""
        return self._send(calls.control(execution, "resume"))

    def compare(self, execution: str, other: str) -> models.Comparison:
        """Compare two executions: groups of runs that differ in the same way."""
        return self._send(calls.compare(execution, other))

    def differences(self, execution: str, other: str) -> models.Difference:
        """Compare two executions with all runs that differ and their outputs; `compare` and `differing_runs` return
        the same in parts, for long executions."""
        return self._send(calls.differences(execution, other))

    def differing_runs(
        self, execution: str, other: str, *, node: str | None = None, page: int = 200
    ) -> Iterator[models.ComparedRunPair]:
        """Yield the runs that differ between two executions, without their outputs."""
        for found in self._pages(lambda cursor: calls.differing_runs(execution, other, node, page, cursor)):
            yield from found.runs

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
        selection = calls.bulk_selection(action, ids, filter, limit)
        return self._send(calls.bulk(selection, reason, key))

    def bulk_preview(
        self,
        action: str,
        *,
        ids: Sequence[str] | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 1_000,
    ) -> models.BulkPreview:
        """Count the executions that `bulk` would process, and those that can be changed so."""
        return self._send(calls.bulk_preview(calls.bulk_selection(action, ids, filter, limit)))

    def bulk_jobs(self, limit: int = 50) -> list[models.BulkJob]:
        """List bulk jobs, newest first."""
        found = self._send(calls.bulk_jobs(limit))
        return found.jobs

    def bulk_job(self, job: str) -> models.BulkJob:
        """Get a bulk job with its progress."""
        return self._send(calls.bulk_job(job))

    def bulk_outcomes(
        self, job: str, *, outcome: str | None = None, page: int = 200
    ) -> Iterator[models.BulkOutcome]:
        """Yield what became of each execution of a bulk job."""
        for found in self._pages(lambda cursor: calls.bulk_outcomes(job, outcome, page, cursor)):
            yield from found.outcomes

    def abort_bulk(self, job: str) -> models.BulkJob:
        """Let a bulk job process no further execution."""
        return self._send(calls.abort_bulk(job))

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
        chosen = {"split": split, "item": item, "code": code}
        return Run(self, self._send(calls.retry(execution, failed_items, key, chosen)))

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
        given = {name: value for name, value in changes.items() if value is not None}
        return Run(self, self._send(calls.rerun(execution, node, item, key, given)))

    def handle(self, execution: str) -> Run:
        """Get the handle of an execution that was started before."""
        found = self.execution(execution)
        return Run(
            self,
            models.Started(
                execution_id=found.execution_id,
                workflow_id=found.workflow_id,
                hash=found.hash,
                version=found.version,
                alias=found.alias,
                started_at=found.started_at,
                retry_of=found.retry_of,
                replayed=False,
            ),
        )

    def deploy(
        self,
        definition: dict[str, Any] | str | bytes,
        *,
        workflow: str | None = None,
        match: str | None = None,
        note: str | None = None,
        media_type: str | None = None,
    ) -> models.Deployed:
        """Store a definition as a new workflow, or as the next version of an existing one: plain data, or text, which
        is YAML unless `media_type` is `application/json`. The text and the note are kept with the version. With
        `match`, only if the latest version still has this hash, or its newest text this SHA-256."""
        if workflow is None and isinstance(definition, dict) and "id" in definition:
            workflow = str(definition["id"])
        return self._send(calls.deploy(definition, workflow, match, note, media_type))

    def source(self, workflow: str, version: str | int = "latest") -> bytes:
        """Get the text that a version was deployed with, JSON or YAML."""
        return self._send(calls.source(workflow, version))

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
        return self._send(calls.check(definition, plan, layout, direction, width, height))

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
        return self._send(calls.import_workflow(source, format, name, stubs))

    def stats(
        self, *, by: str = "status", since: str | None = None, step: str = "1h", workflow: str | None = None
    ) -> models.Stats:
        """Count the executions that ended since a time (a day ago by default) in steps of `1m` to `1d`: by `status`,
        `workflow` or `workflow,status`."""
        return self._send(calls.stats(by, since, step, workflow))

    def activity(self, workflow: str) -> models.WorkflowActivity:
        """Get the newest outcomes of a workflow and how long its executions take."""
        return self._send(calls.activity(workflow))

    def workflows(
        self, *, hidden: bool = False, activity: bool = False, page: int = 200
    ) -> Iterator[models.Workflow]:
        """Yield the deployed workflows by id. `hidden` adds archived ones, `activity` adds their newest outcomes."""
        for found in self._pages(lambda cursor: calls.workflows(hidden, activity, page, cursor)):
            yield from found.workflows

    def workflow(self, workflow: str, version: str | int | None = None) -> models.WorkflowVersion:
        """Get a version of a workflow with its definition; the latest by default."""
        return self._send(calls.workflow(workflow, version))

    def versions(self, workflow: str, *, page: int = 200) -> Iterator[models.Version]:
        """Yield the versions of a workflow, oldest first."""
        for found in self._pages(lambda cursor: calls.versions(workflow, page, cursor)):
            yield from found.versions

    def set_alias(
        self,
        workflow: str,
        alias: str,
        version: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        match: int | None = None,
    ) -> models.Alias:
        """Point an alias at a version; `weights` send a percentage of the starts to other versions. With `match`, only
        if the alias still has this revision."""
        return self._send(calls.set_alias(workflow, alias, version, weights, match))

    def aliases(self, workflow: str) -> list[models.Alias]:
        """List the aliases of a workflow by name."""
        found = self._send(calls.aliases(workflow))
        return found.aliases

    def alias(self, workflow: str, name: str) -> models.Alias:
        """Get an alias of a workflow."""
        return self._send(calls.alias(workflow, name))

    def compare_versions(
        self, workflow: str, before: str | int, after: str | int = "latest"
    ) -> models.ComparedVersions:
        """Compare two versions of a workflow, given by number or alias."""
        return self._send(calls.compare_versions(workflow, before, after))

    def restore(self, workflow: str) -> models.Deployed:
        """Restore an archived workflow."""
        return self._send(calls.restore_workflow(workflow))

    def delete(self, workflow: str) -> None:
        """Archive a workflow. Its versions and executions are kept."""
        self._send(calls.delete_workflow(workflow))

    def definition(self, hash: str) -> dict[str, Any]:
        """Get a definition by its hash."""
        return self._send(calls.definition(hash))

    def layout(
        self,
        hash: str,
        *,
        direction: Literal["right", "down"] = "right",
        width: int = 200,
        height: int = 64,
    ) -> models.Layout:
        """Get the layout of a definition, for nodes of this size."""
        return self._send(calls.layout(hash, direction, width, height))

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
        return self._send(calls.preview(execution, node, text, lineage, mode, draft))

    def dead_letters(self, *, after: str | None = None, page: int = 200) -> Iterator[models.DeadLetter]:
        """Yield the dead letters, newest first. `after` is the id of the dead letter to continue after."""
        for found in self._pages(lambda cursor: calls.dead_letters(page, cursor), after):
            yield from found.dead_letters

    def requeue(self, letter: str) -> Run:
        """Run a dead letter again in a new execution."""
        return Run(self, self._send(calls.requeue(letter)))

    def drop(self, letter: str) -> None:
        """Discard a dead letter."""
        self._send(calls.drop(letter))

    def dead_messages(self, limit: int = 50) -> list[models.DeadMessage]:
        """List messages of the queue that no worker could process, oldest first."""
        found = self._send(calls.dead_messages(limit))
        return found.dead_messages

    def dead_message(self, message: str) -> models.DeadMessageDetail:
        """Get a dead message with its body."""
        return self._send(calls.dead_message(message))

    def requeue_message(self, message: str) -> models.RequeuedMessage:
        """Send a dead message to its queue again."""
        return self._send(calls.requeue_message(message))

    def drop_message(self, message: str) -> None:
        """Discard a dead message."""
        self._send(calls.drop_message(message))

    def triggers(self, workflow: str | None = None) -> list[models.Trigger]:
        """List all triggers, or those of one workflow."""
        found = self._send(calls.triggers(workflow))
        return found.triggers

    def trigger(self, id: str) -> models.Trigger:
        """Get a trigger."""
        return self._send(calls.trigger(id))

    def enable_trigger(self, id: str, *, enabled: bool = True) -> models.Trigger:
        """Enable or disable a trigger."""
        return self._send(calls.enable_trigger(id, enabled))

    def rotate_trigger(self, id: str, *, secret: bool = False) -> models.RotatedTrigger:
        """Give a webhook a new path or, with `secret`, a new secret, which only this response contains."""
        return self._send(calls.rotate_trigger(id, secret))

    def credentials(self) -> list[models.Credential]:
        """List the credentials by name, without values."""
        found = self._send(calls.credentials())
        return found.credentials

    def credential(self, name: str) -> models.Credential:
        """Get a credential by name or id, without values."""
        return self._send(calls.credential(name))

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
        return self._send(calls.add_credential(name, type, values, hosts, insecure, grants))

    def rotate_credential(
        self,
        name: str,
        values: dict[str, Any],
        *,
        hosts: Sequence[str] | None = None,
        insecure: bool | None = None,
    ) -> models.Credential:
        """Replace values of a credential; fields that are not given keep their values."""
        return self._send(calls.rotate_credential(name, values, hosts, insecure))

    def credential_uses(self, name: str) -> list[models.CredentialUse]:
        """List the nodes that refer to a credential, in the latest versions of workflows and those with an alias."""
        found = self._send(calls.credential_uses(name))
        return found.uses

    def remove_credential(self, name: str) -> None:
        """Delete a credential."""
        self._send(calls.remove_credential(name))

    def granted(self, name: str) -> list[str]:
        """List the principals that may use a credential."""
        found = self._send(calls.grants(name))
        return found.granted

    def grant(self, name: str, whom: Sequence[str] = (), *, withdraw: Sequence[str] = ()) -> list[str]:
        """Grant and withdraw the use of a credential. Return the principals that may use it afterwards."""
        found = self._send(calls.change_grants(name, whom, withdraw))
        return found.granted

    def limits(self, workflow: str) -> models.Limits:
        """Get the start limits of a workflow."""
        return self._send(calls.limits(workflow))

    def limit(self, workflow: str, limits: models.Limits) -> models.Limits:
        """Replace all start limits of a workflow; a field that is not set removes its limit."""
        return self._send(calls.put_limits(workflow, limits))

    def limit_key(self, id: str, limits: models.Limits) -> models.Limits:
        """Replace all start limits of an API key; a field that is not set removes its limit."""
        return self._send(calls.put_key_limits(id, limits))

    def handlers(self) -> models.Handlers:
        """Get the handlers of deployed workflows that name none."""
        return self._send(calls.handlers())

    def set_handlers(
        self,
        *,
        on_failure: Mapping[str, Any] | None = None,
        on_late: Mapping[str, Any] | None = None,
        on_missing: Mapping[str, Any] | None = None,
    ) -> models.Handlers:
        """Replace the handlers of deployed workflows that name none, each given as `{"workflow": …}`."""
        return self._send(calls.put_handlers(on_failure, on_late, on_missing))

    def failed_handlers(self, *, limit: int = 100) -> list[models.FailedHandler]:
        """List the handlers that could not be started, newest first."""
        return (self._send(calls.failed_handlers(limit))).handlers

    def keys(self) -> list[models.ApiKey]:
        """List the API keys, without their secrets."""
        found = self._send(calls.keys())
        return found.keys

    def me(self) -> models.Me:
        """Get the principal of this client and its rights."""
        return self._send(calls.me())

    def create_session(self) -> models.Me:
        """Exchange the API key of this client for a session of 12 hours. From then on the client sends the cookie of
        the session in place of the key. On a server without keys nothing changes."""
        found = self._send(calls.create_session())
        if found.authentication == "session":
            del self._http.headers["Authorization"]
            # A server accepts changes in a session only from its own pages.
            self._http.headers["Origin"] = str(self._http.base_url).rstrip("/")
        return found

    def end_session(self) -> None:
        """End the session of this client."""
        self._send(calls.end_session())

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
        return self._send(calls.create_key(name, role, workflows or [], expires_in, limits))

    def revoke_key(self, id: str) -> None:
        """Revoke an API key."""
        self._send(calls.revoke_key(id))

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
        for found in self._pages(lambda cursor: calls.log(actor, action, target, after, page, cursor)):
            yield from found.entries

    def workers(self) -> list[models.Worker]:
        """List the recently active processes."""
        found = self._send(calls.workers())
        return found.workers

    def queues(self) -> list[models.Queue]:
        """List the queues with the number of waiting and claimed tokens."""
        found = self._send(calls.queues())
        return found.queues

    def timers(self, execution: str) -> list[models.Waiting]:
        """List the timers of an execution by due time."""
        found = self._send(calls.timers(execution))
        return found.timers

    def next_timer(self) -> str | None:
        """Get the due time of the next timer of all executions."""
        found = self._send(calls.next_timer())
        return found.next_due_at

    def drain_worker(self, worker: str) -> models.WorkerRequest:
        """Ask a worker to receive no more work. It finishes what it holds and then stays idle; `workers` shows it."""
        return self._send(calls.drain_worker(worker))

    def resume_worker(self, worker: str) -> models.WorkerRequest:
        """Ask a drained worker to receive work again."""
        return self._send(calls.resume_worker(worker))

    def doctor(self) -> models.DoctorReport:
        """Check the configuration of the server and its stores, as `rune doctor` does."""
        return self._send(calls.doctor())

    def settings(self) -> list[models.Setting]:
        """List the settings of the server and where each comes from. Secrets are not shown."""
        found = self._send(calls.settings())
        return found.settings

    def preview_schedule(self, *, count: int = 5, **times: Any) -> models.SchedulePreview:
        """Get the next times of a schedule with the parameters of a `schedule` node: `cron` and `timezone`, or `amount`
        and `unit`."""
        return self._send(calls.preview_schedule(times, count))

    def node_types(self) -> list[dict[str, Any]]:
        """List the node types of the server with the schemas of their parameters."""
        found: list[dict[str, Any]] = (self._send(calls.node_types()))["nodes"]
        return found

    def node_type(self, name: str) -> dict[str, Any]:
        """Get a node type by its name or an alias."""
        return self._send(calls.node_type(name))

    def credential_types(self) -> list[models.CredentialType]:
        """List the credential types with the schemas of their fields."""
        found = self._send(calls.credential_types())
        return found.credential_types

    def workflow_schema(self) -> dict[str, Any]:
        """Get the JSON Schema of workflow documents, with the node types of the server."""
        return self._send(calls.workflow_schema())

    def version(self) -> models.ServerVersion:
        """Get the version of the server."""
        return self._send(calls.server_version())
