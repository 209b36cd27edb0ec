"""The runner: resolves the parameters of a token's node and runs it. Whatever happens, the answer is an outcome."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from rune.core.outcome import Error, Failure, Outcome
from rune.core.plan import NodePlan, Plan
from rune.core.token import Token, token_name
from rune.errors import RuneError
from rune.ids import idempotency_key
from rune.nodes.base import Call, RunnableType, failure_of
from rune.nodes.redaction import NAMES_ONLY
from rune.nodes.registry import Registry, execute, execute_async, typed
from rune.nodes.world import World
from rune.ports.state import Claim
from rune.runtime.book import Book, NotLoaded, Page
from rune.runtime.children import Children
from rune.runtime.leases import Leases
from rune.runtime.permitted import Permits
from rune.runtime.reporter import Reporter, Told
from rune.runtime.witness import Witness

TIMED_OUT = Error("TIMEOUT", "the node took longer than its timeout", engine=True)
LEASE_LOST = Error(
    "LEASE_LOST", "the node was stopped: its execution has ended, or somebody else has its token"
)
MAX_PLANS = 256


class Post:
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


class Runner:
    """Runs nodes for one worker."""

    def __init__(
        self,
        registry: Registry,
        leases: Leases,
        children: Children,
        permits: Permits,
        witness: Witness,
        world: World,
        told: Told | None = None,
    ) -> None:
        self._registry = registry
        self._told = told
        self._children = children
        self._leases = leases
        self._world = world
        self._permits = permits
        self._witness = witness
        self._posts: OrderedDict[str, list[Post | None]] = OrderedDict()

    def _post(self, plan: Plan, index: int) -> Post:
        posts = self._posts.get(plan.hash)
        if posts is None:
            posts = self._posts[plan.hash] = [None] * len(plan.nodes)
            if len(self._posts) > MAX_PLANS:
                self._posts.popitem(last=False)
        post = posts[index]
        if post is None:
            node = plan.nodes[index]
            post = posts[index] = Post(node, self._registry[node.node.type])
        return post

    async def run(self, book: Book, page: Page, token: Token, claim: Claim) -> Outcome:
        """A value that is not in memory is fetched, and the resolving begins anew; no effect was made yet."""
        try:
            post = self._post(book.plan, token.node)
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
            except NotLoaded as missing:
                await book.fetch(missing.what, page)
        try:
            outcome = await self._followed(post, call, book.accepted.id, token)
            if call.usage is not None:
                return call.usage.ended(outcome)
            return NAMES_ONLY.outcome(outcome) if type(outcome) is Failure else outcome
        except NotLoaded as missing:
            # The effect may have been made: to fetch and run again is not ours to decide.
            return failure_of(
                RuneError(f"the node read {missing.what} without its type saying so", code="UNDECLARED_READ")
            )
        finally:
            if call.usage is not None:
                call.usage.close()

    async def _followed(self, post: Post, call: Call[Any], execution: str, token: Token) -> Outcome:
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

    async def _with_effects(self, post: Post, call: Call[Any]) -> Outcome:
        timeout = post.node.node.timeout
        if timeout is None:
            return await execute_async(post.kind, call) if post.asynchronous else execute(post.kind, call)
        try:
            async with asyncio.timeout(timeout):
                return await execute_async(post.kind, call)
        except TimeoutError:
            return Failure(TIMED_OUT)

    def _call(self, post: Post, book: Book, page: Page, token: Token, claim: Claim) -> Call[Any] | Failure:
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
        call: Call[Any] = Call(
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
            call.traceparent = self._witness.outgoing(book.accepted, book.plan, token)
            call.credentials = node.node.credentials
            if call.credentials is not None:
                call.secret = self._permits.of(self._world.secret, book.accepted)
            if self._told is not None:
                call.progress = Reporter(self._told, book.accepted.id, token)
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
