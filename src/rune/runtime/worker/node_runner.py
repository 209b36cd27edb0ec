"""Permits: which credentials an execution may use, decided each time one is asked for.

A reporter tells whoever looks on how far a node is. Nothing is written down, and too much is left out.

The runner: resolves the parameters of a token's node and runs it. Whatever happens, the answer is an outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from rune.core.execution.outcome import Error, Failure, Outcome
from rune.core.execution.token import Token, token_name
from rune.core.permissions import permits
from rune.core.plan.model import NodePlan, Plan
from rune.errors import RuneError
from rune.ids import idempotency_key
from rune.nodes.base import NodeCall, RunnableType, failure_of
from rune.nodes.credentials import CredentialResolver
from rune.nodes.redaction import NAMES_ONLY, SECRETS_IN_USE
from rune.nodes.registry import Registry, execute, execute_async, typed
from rune.nodes.resources import Resources
from rune.ports.credentials import Credential, CredentialDeniedError, CredentialGrants
from rune.ports.journal import ExecutionRecord
from rune.ports.state import Claim
from rune.ports.workflows import WorkflowStore
from rune.runtime.instrumentation import Instrumentation
from rune.runtime.lifecycle.children import Children
from rune.runtime.values import ExecutionData, ValueNotLoaded, ValueReader
from rune.runtime.worker.leases import Leases


class CredentialPolicy:
    """Knows who may use which credential."""

    def __init__(self, grants: CredentialGrants, library: WorkflowStore) -> None:
        self._grants = grants
        self._library = library

    def of(
        self, secret: CredentialResolver | None, execution: ExecutionRecord
    ) -> AuthorizedCredentials | None:
        """The credentials as an execution may use them."""
        return None if secret is None else AuthorizedCredentials(secret, self, execution)

    async def check(self, credential: Credential, execution: ExecutionRecord) -> None:
        """Refuse an execution whose principal was not granted the credential."""
        grants = await self._grants.of(credential.id)
        asks, workflow = execution.principal, execution.workflow
        if permits(grants, asks, workflow, stored=False):
            return
        by_workflow = permits(grants, asks, workflow, stored=True)
        if by_workflow and await self._is_stored(workflow, execution.hash):
            return
        raise CredentialDeniedError(
            f"`{asks}`, who started this, was not granted the credential `{credential.name}`"
        )

    async def _is_stored(self, workflow: str, hash: str) -> bool:
        return any(each.hash == hash for each in await self._library.versions(workflow))


class AuthorizedCredentials:
    """The credentials of everybody, of which one execution is given its own."""

    def __init__(
        self, secret: CredentialResolver, permits: CredentialPolicy, execution: ExecutionRecord
    ) -> None:
        self._secret = secret
        self._permits = permits
        self._execution = execution

    async def resolve(self, reference: str) -> Credential | None:
        """A credential with its values, if the execution may use it."""
        found = await self._secret.resolve(reference)
        if found is not None:
            await self._permits.check(found, self._execution)
        return found


REPORT_INTERVAL_S = 0.1  # s between two reports of one run
MAX_TEXT_CHARS = 200

ProgressCallback = Callable[[str, Token, str], None]


class ProgressReporter:
    """Of one run of a node. It may be called from any thread."""

    __slots__ = ("_execution", "_loop", "_next", "_token", "_told")

    def __init__(self, told: ProgressCallback, execution: str, token: Token) -> None:
        self._told = told
        self._execution = execution
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._next = 0.0

    def __call__(self, what: float | str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + REPORT_INTERVAL_S
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody looks on any more
            self._loop.call_soon_threadsafe(
                self._told, self._execution, self._token, SECRETS_IN_USE.text(as_text(what))
            )


def as_text(what: float | str) -> str:
    """A share as a percentage, words on one line."""
    if isinstance(what, str):
        return " ".join(what.split())[:MAX_TEXT_CHARS]
    if not math.isfinite(what):
        return ""
    return f"{min(max(what, 0.0), 1.0):.0%}"


TIMED_OUT = Error("TIMEOUT", "the node took longer than its timeout", engine=True)
LEASE_LOST = Error(
    "LEASE_LOST", "the node was stopped: its execution has ended, or somebody else has its token"
)
MAX_PREPARED_PLANS = 256


class PreparedNode:
    """Where a node of a plan is run: everything that is the same in every run of it."""

    __slots__ = ("asynchronous", "joins", "kind", "named", "node", "parameters", "reads_payload", "root_name")

    def __init__(self, node: NodePlan, kind: RunnableType) -> None:
        self.node = node
        self.kind = kind
        self.joins = node.is_join or node.merges or node.joins_items
        self.asynchronous = iscoroutinefunction(kind.run)
        self.reads_payload = node.type.reads_payload(node.node.parameters)
        self.root_name = f"{node.id}@/"
        self.named = not node.pure or node.type.suspends or not node.parameters.pure
        # Parameters without expressions are typed once, not once a run.
        self.parameters: Any = None if node.parameters.dynamic else typed(kind, node.parameters.fixed)


class NodeRunner:
    """Runs nodes for one worker."""

    def __init__(
        self,
        registry: Registry,
        leases: Leases,
        children: Children,
        permits: CredentialPolicy,
        witness: Instrumentation,
        world: Resources,
        told: ProgressCallback | None = None,
    ) -> None:
        self._registry = registry
        self._told = told
        self._children = children
        self._leases = leases
        self._world = world
        self._permits = permits
        self._witness = witness
        self._posts: OrderedDict[str, list[PreparedNode | None]] = OrderedDict()

    def _prepare(self, plan: Plan, index: int) -> PreparedNode:
        posts = self._posts.get(plan.hash)
        if posts is None:
            posts = self._posts[plan.hash] = [None] * len(plan.nodes)
            if len(self._posts) > MAX_PREPARED_PLANS:
                self._posts.popitem(last=False)
        post = posts[index]
        if post is None:
            node = plan.nodes[index]
            post = posts[index] = PreparedNode(node, self._registry[node.node.type])
        return post

    async def run(self, book: ExecutionData, page: ValueReader, token: Token, claim: Claim) -> Outcome:
        """A value that is not in memory is fetched, and the resolving begins anew; no effect was made yet."""
        try:
            post = self._prepare(book.plan, token.node)
        except RuneError as error:
            return failure_of(error)
        while True:
            try:
                call = self._call(post, book, page, token, claim)
                if isinstance(call, Failure):
                    return call
                if post.node.pure:
                    return execute(post.kind, call)
                if post.reads_payload:
                    _ = call.payload
                break
            except ValueNotLoaded as missing:
                await book.load(missing.what, page)
        try:
            outcome = await self._run_with_lease(post, call, book.accepted.id, token)
            if call.usage is not None:
                return call.usage.close_run(outcome)
            return NAMES_ONLY.outcome(outcome) if type(outcome) is Failure else outcome
        except ValueNotLoaded as missing:
            # The effect may have been made: to fetch and run again is not ours to decide.
            return failure_of(
                RuneError(f"the node read {missing.what} without its type saying so", code="UNDECLARED_READ")
            )
        finally:
            if call.usage is not None:
                call.usage.close()

    async def _run_with_lease(
        self, post: PreparedNode, call: NodeCall[Any], execution: str, token: Token
    ) -> Outcome:
        """Run a node that is stopped when its lease is lost."""
        if not post.asynchronous:
            return await self._with_effects(post, call)
        key = self._leases.follow(execution, token)
        lost = False
        try:
            return await self._with_effects(post, call)
        except asyncio.CancelledError:
            lost = self._leases.left(key)
            if not lost:
                raise
            return Failure(LEASE_LOST)
        finally:
            if not lost:
                self._leases.left(key)

    async def _with_effects(self, post: PreparedNode, call: NodeCall[Any]) -> Outcome:
        timeout = post.node.node.timeout
        if timeout is None:
            return await execute_async(post.kind, call) if post.asynchronous else execute(post.kind, call)
        try:
            async with asyncio.timeout(timeout):
                return await execute_async(post.kind, call)
        except TimeoutError:
            return Failure(TIMED_OUT)

    def _call(
        self, post: PreparedNode, book: ExecutionData, page: ValueReader, token: Token, claim: Claim
    ) -> NodeCall[Any] | Failure:
        node = post.node
        name = ""
        if post.named:
            name = token_name(token.node, token.path, book.plan.ids) if token.path else post.root_name
        scope = page.scope(token, claim.now / 1000, name)
        parameters = post.parameters
        if parameters is None:
            try:
                parameters = typed(post.kind, node.parameters.resolve(scope))
            except RuneError as error:
                return failure_of(error)
        call: NodeCall[Any] = NodeCall(
            parameters,
            scope,
            now=claim.now,
            node=node.id,
            elements=node.parameters.elements,
            attempt=token.attempt,
            resumed=token.resumed,
        )
        if post.joins:
            call.arrivals = lambda: page.arrivals(token)
            call.entries = lambda: page.entries(token)
        if not node.pure:
            call.world = self._world
            call.blobs = book.blobs
            call.traceparent = self._witness.outgoing_trace(book.accepted, book.plan, token)
            call.credentials = node.node.credentials
            if call.credentials is not None:
                call.secret = self._permits.of(self._world.secret, book.accepted)
            if self._told is not None:
                call.progress = ProgressReporter(self._told, book.accepted.id, token)
        if not node.pure and node.node.idempotency_key:
            call.idempotency_key = idempotency_key(book.accepted.root or book.accepted.id, name)
        if node.type.suspends:
            call.timer_id = f"wait:{name}"
            call.due = claim.now if claim.due is None else claim.due
        if token.signal is not None:
            call.signal = page.signal(token.signal)
        if node.type.launches:
            call.launch = partial(self._children.launch, book, token, claim)
        return call
