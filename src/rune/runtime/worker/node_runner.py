"""Runs the node of a token: resolves its parameters, enforces timeout and lease, turns every ending into an outcome.

Also decides which credentials an execution may use, each time one is resolved, and reports progress while a node runs.
A pinned node is not called: its run returns the output that the definition gives.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Coroutine
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from rune.core.execution.outcome import Error, Failure, FanOut, Outcome, Output
from rune.core.execution.token import Token, idempotency_key, token_name
from rune.core.expr import Meter
from rune.core.expr.budget import METER, UNMETERED
from rune.core.limits import LIMITS, Limits
from rune.core.permissions import permits
from rune.core.plan.model import NodePlan, Plan
from rune.errors import LimitExceededError, RuneError
from rune.nodes.attempt_log import AttemptLog
from rune.nodes.base import NodeCall, Resources, RunnableType, check_json, failure_of
from rune.nodes.credentials import CredentialResolver
from rune.nodes.foreign_errors import failure_in_time
from rune.nodes.redaction import NAMES_ONLY, SECRETS_IN_USE
from rune.nodes.registry import Registry, execute, execute_async, typed
from rune.nodes.schema import Model
from rune.ports.credentials import Credential, CredentialDeniedError, CredentialGrants
from rune.ports.journal import ExecutionRecord
from rune.ports.state import Claim
from rune.ports.workflows import WorkflowStore
from rune.runtime.execution_data import ExecutionData
from rune.runtime.lifecycle.children import Children
from rune.runtime.live import ProgressCallback, RunningNodes
from rune.runtime.value_reader import ValueReader
from rune.runtime.value_refs import ValueNotLoaded
from rune.runtime.worker.attempt_logs import AttemptLogs
from rune.runtime.worker.evaluator import Evaluator, NeedsThread
from rune.runtime.worker.leases import Leases
from rune.telemetry.counters import Instrumentation

MAX_PREPARED_PLANS = 256
REPORT_INTERVAL_S = 0.1  # between two progress reports of one run
MAX_TEXT_CHARS = 200
PARAMETER_LIMITS = Limits(json_depth=2 * LIMITS.json_depth)
"""Limits of the parameters of a node with effects, which it writes out: each may be as deep as an output."""

TIMED_OUT = Error("TIMEOUT", "the node took longer than its timeout", engine=True)
LEASE_LOST = Error(
    "LEASE_LOST", "the node was stopped: its execution has ended, or another worker has claimed its token"
)


class NodeRunner:
    """Runs nodes for one worker."""

    def __init__(
        self,
        registry: Registry,
        leases: Leases,
        children: Children,
        policy: CredentialPolicy,
        instrumentation: Instrumentation,
        resources: Resources,
        evaluator: Evaluator,
        running: RunningNodes,
        logs: AttemptLogs,
    ) -> None:
        self._registry = registry
        self._running = running
        self._logs = logs
        self._children = children
        self._leases = leases
        self._resources = resources
        self._evaluator = evaluator
        self._policy = policy
        self._instrumentation = instrumentation
        self._prepared: OrderedDict[str, list[PreparedNode | None]] = OrderedDict()

    def _prepare(self, plan: Plan, index: int) -> PreparedNode:
        nodes = self._prepared.get(plan.hash)
        if nodes is None:
            nodes = self._prepared[plan.hash] = [None] * len(plan.nodes)
            if len(self._prepared) > MAX_PREPARED_PLANS:
                self._prepared.popitem(last=False)
        prepared = nodes[index]
        if prepared is None:
            node = plan.nodes[index]
            kind = pinned_kind(node) if node.node.pin is not None else self._registry[node.node.type]
            prepared = nodes[index] = PreparedNode(node, kind)
        return prepared

    def run(
        self, data: ExecutionData, reader: ValueReader, token: Token, claim: Claim, now: int
    ) -> Coroutine[Any, Any, Outcome]:
        """Run the node of a token, which begins `now`. A value that is not in memory is loaded and its parameters are
        resolved again, which is safe because no effect has run yet."""
        try:
            prepared = self._prepare(data.plan, token.node)
        except RuneError as error:
            return _failed(error)
        if prepared.reports:
            return self._run_logged(prepared, data, reader, token, claim, now)
        return self._run(prepared, data, reader, token, claim, now, None)

    def run_pure(
        self, data: ExecutionData, reader: ValueReader, token: Token, claim: Claim, now: int
    ) -> Outcome | None:
        """Run a pure node at once; None if it has to be run by `run`, because it logs or needs a thread. Raise
        ValueNotLoaded for a value that is not in memory."""
        try:
            prepared = self._prepare(data.plan, token.node)
        except RuneError:
            return None
        if prepared.reports or not prepared.node.pure:
            return None
        meter = self._evaluator.inline()
        allowance = meter.left
        try:
            outcome = self._resolve(prepared, data, reader, token, claim, now, None, meter)
        except NeedsThread:
            return None
        if meter.left < allowance:
            self._evaluator.settle(meter, allowance)
        return None if isinstance(outcome, NodeCall) else outcome

    async def _run_logged(
        self,
        prepared: PreparedNode,
        data: ExecutionData,
        reader: ValueReader,
        token: Token,
        claim: Claim,
        now: int,
    ) -> Outcome:
        """Run a node that may log, and store what it logged before its result is recorded."""
        log = self._logs.open(data.accepted.id, data.plan, token, again=claim.again or token.resumed)
        try:
            outcome = await self._run(prepared, data, reader, token, claim, now, log)
        finally:
            await self._logs.close(data.accepted.id, data.plan, token, log)
        if log:
            self._logs.logged.add((data.accepted.id, token.node, token.path))
        return outcome

    async def _run(
        self,
        prepared: PreparedNode,
        data: ExecutionData,
        reader: ValueReader,
        token: Token,
        claim: Claim,
        now: int,
        log: AttemptLog | None,
    ) -> Outcome:
        meter = self._evaluator.inline() if prepared.evaluates else UNMETERED
        allowance = meter.left
        in_thread = False
        while True:
            try:
                if in_thread:
                    run = partial(self._resolve, prepared, data, reader, token, claim, now, log)
                    call = await self._evaluator.in_thread(run)
                else:
                    call = self._resolve(prepared, data, reader, token, claim, now, log, meter)
                if not isinstance(call, NodeCall):
                    if meter.left < allowance:
                        self._evaluator.settle(meter, allowance)
                    return call
                break
            except ValueNotLoaded as missing:
                await data.load(missing.what, reader)
            except NeedsThread:
                in_thread = True
        self._equip(call, prepared, data, token, claim)
        try:
            outcome = (
                execute(prepared.kind, call)
                if prepared.immediate
                else await self._run_with_lease(prepared, call, data.accepted.id, token)
            )
            if call.usage is not None:
                return call.usage.close_run(outcome)
            return _without_secrets(outcome)
        except ValueNotLoaded as missing:
            # The effect may have run already, so the value cannot be loaded and the node run again.
            message = f"the node read {missing.what}, which its type does not declare"
            return failure_of(RuneError(message, code="UNDECLARED_READ"))
        finally:
            if call.usage is not None:
                if log is not None:
                    log.redactor = call.usage.redactor
                call.usage.close()

    async def _run_with_lease(
        self, prepared: PreparedNode, call: NodeCall[Any], execution: str, token: Token
    ) -> Outcome:
        """Run a node and cancel it if its lease is lost."""
        if not prepared.asynchronous:
            return await self._run_with_timeout(prepared, call)
        key = self._leases.attach_task(execution, token)
        lost = False
        try:
            return await self._run_with_timeout(prepared, call)
        except asyncio.CancelledError:
            lost = self._leases.detach_task(key)
            if not lost:
                raise
            return Failure(LEASE_LOST)
        finally:
            if not lost:
                self._leases.detach_task(key)

    async def _run_with_timeout(self, prepared: PreparedNode, call: NodeCall[Any]) -> Outcome:
        timeout = prepared.node.node.timeout
        if timeout is None:
            return await execute_async(prepared.kind, call)
        try:
            async with asyncio.timeout(timeout) as scope:
                outcome = await execute_async(prepared.kind, call)
        except TimeoutError:
            return Failure(TIMED_OUT)
        # A node can ignore its cancellation, or not let the event loop cancel it in time.
        due = scope.when()
        late = due is not None and asyncio.get_running_loop().time() > due
        return Failure(TIMED_OUT) if late else outcome

    def _resolve(
        self,
        prepared: PreparedNode,
        data: ExecutionData,
        reader: ValueReader,
        token: Token,
        claim: Claim,
        now: int,
        log: AttemptLog | None,
        meter: Meter,
    ) -> NodeCall[Any] | Outcome:
        """Resolve the parameters of a node, in the event loop or in a thread. Return its call; if the node is pure, run
        it and return the outcome. A pure node with impure parameters is run as well: `now()` and `uuid()` repeat."""
        node = prepared.node
        name = prepared.name(token, data.plan)
        scope = reader.scope(token, now / 1000, name)
        if prepared.evaluates:
            scope[METER] = meter
        parameters = prepared.parameters
        try:
            if prepared.reads_payload and not node.pure:
                _ = scope["$json"]
            if parameters is None:
                values = node.parameters.resolve(scope)
                if not node.pure:
                    check_json(values, PARAMETER_LIMITS, meter, what="parameters")
                parameters = typed(prepared.kind, values)
        except RuneError as error:
            return _without_secrets(failure_of(error))
        call: NodeCall[Any] = NodeCall(
            parameters,
            scope,
            now=now,
            node=node.id,
            elements=node.parameters.elements,
            attempt=token.attempt,
            resumed=token.resumed,
        )
        if log is not None:
            log.clear()  # of a run that was interrupted
            call.write_line = log.write
        if prepared.joins:
            call.arrivals = lambda: reader.arrivals(token)
            call.entries = lambda: reader.entries(token)
        if node.type.suspends:
            call.timer_id = f"wait:{name}"
            call.due = now if claim.due is None else claim.due
        if token.signal is not None:
            call.signal = reader.signal(token.signal)
        if node.pure or prepared.repeatable:
            return _without_secrets(execute(prepared.kind, call, failure_in_thread))
        # From here on nothing is moved to a thread: the effect would run twice.
        scope.pop(METER, None)
        return call

    def _equip(
        self, call: NodeCall[Any], prepared: PreparedNode, data: ExecutionData, token: Token, claim: Claim
    ) -> None:
        """Give the call of a node with effects what it works with, after a last look at its lease."""
        node = prepared.node
        if not node.pure:
            self._leases.check(data.accepted.id, token)
            call.resources = self._resources
            call.blobs = data.blobs
            if self._instrumentation.tracer is not None:
                call.traceparent = self._instrumentation.outgoing_trace(data.accepted, data.plan, token)
            call.credentials = node.node.credentials
            if call.credentials is not None:
                call.secret = self._policy.restrict(self._resources.credentials, data.accepted)
            if prepared.reports:
                call.progress = ProgressReporter(self._running.progressed, data.accepted.id, token)
        if not node.pure and node.node.idempotency_key:
            name = prepared.name(token, data.plan)
            call.idempotency_key = idempotency_key(data.accepted.root or data.accepted.id, name)
        if node.type.launches:
            call.launch = partial(self._children.launch, data, token, claim)


class PreparedNode:
    """A node of a plan with everything that is the same in all of its runs."""

    __slots__ = (
        "asynchronous",
        "evaluates",
        "immediate",
        "joins",
        "kind",
        "named",
        "node",
        "parameters",
        "reads_payload",
        "repeatable",
        "reports",
        "root_name",
    )

    def __init__(self, node: NodePlan, kind: RunnableType) -> None:
        self.node = node
        self.kind = kind
        self.reports = kind.reports
        self.joins = node.is_join or node.merges or node.joins_items
        self.asynchronous = iscoroutinefunction(kind.run)
        self.repeatable = not (
            self.asynchronous
            or node.type.launches
            or node.type.suspends
            or node.node.credentials is not None
            or node.type.effectful(node.node.parameters)
        )
        self.reads_payload = node.type.reads_payload(node.node.parameters)
        self.root_name = f"{node.id}@/"
        self.named = not node.pure or node.type.suspends or not node.parameters.pure
        # Parameters without expressions are converted once, not in every run.
        self.parameters: Any = None if node.parameters.dynamic else typed(kind, node.parameters.fixed)
        # A node with effects evaluates nothing by itself before it runs, so that constant parameters need no meter.
        self.evaluates = node.pure or self.repeatable or self.parameters is None
        # Nothing can interrupt a synchronous node, neither a timeout nor the loss of its lease.
        self.immediate = not self.asynchronous and node.node.timeout is None

    def name(self, token: Token, plan: Plan) -> str:
        """Return the name of a token of this node; empty if nothing needs it."""
        if not self.named:
            return ""
        return token_name(token.node, token.path, plan.ids) if token.path else self.root_name


class CredentialPolicy:
    """Decides which credentials an execution may use."""

    def __init__(self, grants: CredentialGrants, workflows: WorkflowStore) -> None:
        self._grants = grants
        self._workflows = workflows

    def restrict(
        self, resolver: CredentialResolver | None, execution: ExecutionRecord
    ) -> AuthorizedCredentials | None:
        """Limit a resolver to the credentials that the execution may use."""
        return None if resolver is None else AuthorizedCredentials(resolver, self, execution)

    async def check(self, credential: Credential, execution: ExecutionRecord) -> None:
        """Raise CredentialDeniedError if the credential is granted neither to the principal that started the execution
        nor to its workflow."""
        grants = await self._grants.of(credential.id)
        principal, workflow = execution.principal, execution.workflow
        if permits(grants, principal, workflow, stored=False):
            return
        # A grant to a workflow covers only its deployed versions: any principal may run a document under that name.
        by_workflow = permits(grants, principal, workflow, stored=True)
        if by_workflow and await self._is_deployed(workflow, execution.hash):
            return
        raise CredentialDeniedError(
            f"the credential `{credential.name}` is not granted to `{principal}`, which started this execution"
        )

    async def _is_deployed(self, workflow: str, hash: str) -> bool:
        return any(version.hash == hash for version in await self._workflows.versions(workflow))


class AuthorizedCredentials:
    """Resolves credentials for one execution and rejects those it may not use."""

    def __init__(
        self, resolver: CredentialResolver, policy: CredentialPolicy, execution: ExecutionRecord
    ) -> None:
        self._resolver = resolver
        self._policy = policy
        self._execution = execution

    async def resolve(self, reference: str) -> Credential | None:
        credential = await self._resolver.resolve(reference)
        if credential is not None:
            await self._policy.check(credential, self._execution)
        return credential


class ProgressReporter:
    """Reports the progress of one run of a node; callable from any thread.

    Progress is not stored. A report within REPORT_INTERVAL_S of the previous one is dropped.
    """

    __slots__ = ("_callback", "_execution", "_loop", "_next", "_token")

    def __init__(self, callback: ProgressCallback, execution: str, token: Token) -> None:
        self._callback = callback
        self._execution = execution
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._next = 0.0

    def __call__(self, progress: float | str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + REPORT_INTERVAL_S
        text = SECRETS_IN_USE.text(as_text(progress))
        # The loop may be closed already: a node in a thread outlives it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._callback, self._execution, self._token, text)


def _without_secrets(outcome: Outcome) -> Outcome:
    """Redact the error of a run that used no credential."""
    return NAMES_ONLY.outcome(outcome) if type(outcome) is Failure else outcome


def failure_in_thread(error: BaseException) -> Failure:
    """Return the outcome of a pure node that raised. Its exception may take long to be read, so that in the event loop
    the node is started again in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return failure_in_time(error)
    raise NeedsThread


async def _failed(error: RuneError) -> Outcome:
    return failure_of(error)


def as_text(progress: float | str) -> str:
    """Render a fraction as a percentage, and text on one line."""
    if isinstance(progress, str):
        return " ".join(progress.split())[:MAX_TEXT_CHARS]
    if not math.isfinite(progress):
        return ""
    return f"{min(max(progress, 0.0), 1.0):.0%}"


class Parameters(Model, kw_only=True, frozen=True):
    """A pinned node has no parameters: those of its type are not resolved."""


def pinned_kind(node: NodePlan) -> RunnableType:
    """Return the type that runs in place of the type of a pinned node."""
    pin = node.node.pin
    assert pin is not None
    output, outlet = pin.output, pin.outlet

    def fan_out(call: NodeCall[Any]) -> Outcome:
        if len(output) > call.limits.items:
            raise LimitExceededError("items of a split", call.limits.items, len(output))
        return FanOut(len(output), output)

    def give(call: NodeCall[Any]) -> Outcome:
        return Output(output, outlet)

    return RunnableType(node.type, Parameters, fan_out if node.fans_out else give, builds=False)
