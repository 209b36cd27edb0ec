"""The cluster backend: PostgreSQL stores, Redis coordinates, Redis Streams or RabbitMQ deliver.

At the start a server waits until its stores can be used. Processes and stores are usually started together, in any
order, and the schema is migrated at the same time. A process that gave up at the first failure would depend on a
supervisor to restart it until the order happens to be right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from rune.adapters.blobs.open_blob import open_blob
from rune.adapters.postgres.access import (
    PostgresApiKeys,
    PostgresAuditLog,
    PostgresCredentials,
    PostgresGrants,
    PostgresSessions,
    PostgresStartLimits,
)
from rune.adapters.postgres.block_marks import PostgresBlockMarks
from rune.adapters.postgres.database import Database
from rune.adapters.postgres.expectations import PostgresExpectations
from rune.adapters.postgres.journal import PostgresJournal
from rune.adapters.postgres.schema import grant
from rune.adapters.postgres.schema import migrate as migrate_database
from rune.adapters.postgres.stores import (
    ClusterIdentity,
    PostgresBulkJobs,
    PostgresCounts,
    PostgresHooks,
    PostgresStores,
    cluster_identity,
    create_identity,
    postgres,
    settle_partitions,
)
from rune.adapters.postgres.workflows import PostgresTriggers
from rune.adapters.rabbitmq.dead_letters import DeadLetters
from rune.adapters.rabbitmq.topology import Topology
from rune.adapters.redis.client import check_identity, library, load_functions
from rune.adapters.redis.cluster import open_client
from rune.adapters.redis.dead_letters import RedisDeadLetters
from rune.adapters.redis.encoding import PARTITIONS, KeySpace
from rune.adapters.redis.queue import RedisQueue
from rune.adapters.redis.state import RedisState, SendConfirmations
from rune.adapters.redis.stores import RedisStores, note_persistence, stored_identity
from rune.bootstrap.components import Access, credential_service, keys, new_engine
from rune.bootstrap.rabbitmq import RabbitComponents
from rune.core.node_type import Catalogue
from rune.errors import RuneError
from rune.nodes.registry import Registry, full_registry, standard_catalogue
from rune.ports.clock import Clock, SystemClock
from rune.ports.journal import BlobStore, StoreDamagedError, StoreUnavailableError
from rune.ports.processes import OpenKeepalive, ProcessInfo, RunningQuery
from rune.ports.queue import DeadLetterQueue, Queue
from rune.ports.retention import RetentionResult, Rule
from rune.ports.state import State
from rune.runtime.backend import Backend
from rune.runtime.components import Services
from rune.runtime.engine import ROLES, Engine
from rune.runtime.execution_data import ExecutionDataCache
from rune.runtime.live import RunningNodes
from rune.runtime.live_follower import LiveFollower
from rune.runtime.maintenance.heartbeat import this_process
from rune.runtime.plan_cache import PlanCache, QueueRouter
from rune.runtime.queries.reader import ExecutionReader
from rune.runtime.services.credentials import CredentialService
from rune.runtime.state_wrapper import ExecutionObserver, ObservedState
from rune.settings import Settings, SettingsError
from rune.telemetry.counters import Counters

log = logging.getLogger("rune.startup")

MIN_DELAY_S, MAX_DELAY_S = 0.1, 3.0
LOG_PERIOD_S = 10.0


@asynccontextmanager
async def running_engine(
    settings: Settings,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    observer: ExecutionObserver | None = None,
    roles: frozenset[str] = ROLES,
) -> AsyncIterator[Engine]:
    """Run an engine of the cluster while the block runs."""
    registry = registry or full_registry(settings.nodes)
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        await _ensure_schema(settings)
        opened = await stack.enter_async_context(
            postgres(settings.journal, outside=_external_blobs(settings))
        )
        identity = _checked(settings, await create_identity(opened.database))
        partitions = settings.partitions or identity.partitions or PARTITIONS
        stores = RedisStores(
            settings.state,
            prefix=settings.prefix,
            partitions=partitions,
            journal=identity.journal,
            database=identity.database,
        )
        # What a process without a role does needs PostgreSQL alone, or fails by itself while Redis is away.
        await stack.enter_async_context(stores.running(clock, required=bool(roles)))
        if identity.partitions is None:
            await settle_partitions(opened.database, partitions)
        member = this_process(
            tuple(sorted(roles)), settings.queues, settings.slots, tuple(sorted(registry.catalogue))
        )
        member = replace(member, heartbeat_s=settings.heartbeat, expiry_s=settings.heartbeat_timeout)
        advice = "" if roles else "set RUNE_NODES=MODULE as the workers have"
        plans = PlanCache(opened.journal, registry.catalogue, advice=advice)
        data_cache = ExecutionDataCache(opened.journal, opened.blob, plans, clock)
        readable = PlanCache(opened.journal, registry.catalogue, reading=True)
        router = QueueRouter(data_cache, ExecutionDataCache(opened.journal, opened.blob, readable, clock))
        process = _Process(
            settings, opened, stores, clock, registry, member, plans, data_cache, router, Counters()
        )
        delivery = _with_broker(process) if settings.brokered else _with_streams(process)
        backend = _backend(process, delivery, observer)
        engine = new_engine(
            settings, backend, plans, registry, observer, member, data_cache, process.counters
        )
        broker = delivery.broker
        if broker is not None:
            broker.connect(engine)
        stack.push_async_callback(engine.backend.queue.close)
        if broker is not None:
            await stack.enter_async_context(broker.running(roles))
        await stack.enter_async_context(engine.running(grace=settings.grace, roles=roles))
        yield engine


async def wait_for_stores(settings: Settings) -> None:
    """Wait until PostgreSQL and Redis can be used by this version, for at most `start_timeout` seconds."""
    deadline = time.monotonic() + settings.start_timeout
    await wait_for_store("PostgreSQL", lambda: _ensure_schema(settings), deadline)
    await wait_for_store("Redis", lambda: _check_functions(settings), deadline)


async def _check_functions(settings: Settings) -> None:
    """Call a function of Redis. One that is missing is loaded if Redis has none at all."""
    stores = await looking_at_redis(settings)
    try:
        await stores.connect()
        await note_persistence(stores.client)
    finally:
        await stores.client.close()


async def _ensure_schema(settings: Settings) -> None:
    """Create the schema in an empty database; an existing schema is only changed by `rune migrate`."""
    database = Database(settings.journal, size=1)
    try:
        await database.open()
        await database.close()
    except StoreUnavailableError as away:
        if away.code != "EMPTY_STORE":
            raise
        await migrate_database(settings.journal)


_identities: dict[str, ClusterIdentity] = {}
"""What tells clusters from others, by the address of the database. It never changes."""


async def known_identity(settings: Settings) -> ClusterIdentity | None:
    """Return what tells the cluster of the database from others; None if the database cannot say: it is away, or has
    an older schema."""
    known = _identities.get(settings.journal)
    if known is not None:
        return known
    database = Database(settings.journal, size=1, read_only=True)
    try:
        await database.open()
        try:
            found = await cluster_identity(database)
        finally:
            await database.close()
    except RuneError as error:
        return ClusterIdentity("", None) if error.code == "EMPTY_STORE" else None
    if found.journal and found.partitions is not None:
        _identities[settings.journal] = found
    return found


async def check_same_cluster(settings: Settings) -> ClusterIdentity | None:
    """Raise if Redis has the state of another cluster than that of the database, or if the settings name another number
    of partitions. Return what tells the cluster from others, if the database can say it."""
    client = open_client(settings.state)
    try:
        # Read before that of the database, which is created first.
        stored = await stored_identity(client, KeySpace(settings.prefix))
    finally:
        await client.close()
    identity = await known_identity(settings)
    if identity is not None:
        _checked(settings, identity)
        check_identity(stored, identity.journal, identity.database)
    return identity


async def looking_at_redis(settings: Settings) -> RedisStores:
    """Return the stores of Redis for a process that changes nothing there."""
    identity = await check_same_cluster(settings) or ClusterIdentity("", None)
    return RedisStores(
        settings.state,
        prefix=settings.prefix,
        partitions=identity.partitions or settings.partitions,
        journal=identity.journal,
        database=identity.database,
        looking=True,
    )


def _checked(settings: Settings, found: ClusterIdentity) -> ClusterIdentity:
    """Raise if the settings name another number of partitions than the cluster has."""
    if settings.partitions is not None and found.partitions not in (None, settings.partitions):
        raise SettingsError(
            f"RUNE_PARTITIONS is {settings.partitions}, and this cluster has {found.partitions} partitions since its"
            " first start: unset it"
        )
    return found


def _external_blobs(settings: Settings) -> BlobStore | None:
    return None if settings.blob == "embedded" else open_blob(settings.blob)


class _Process(NamedTuple):
    """What the components of one process are built from."""

    settings: Settings
    opened: PostgresStores
    stores: RedisStores
    clock: Clock
    registry: Registry
    member: ProcessInfo
    plans: PlanCache
    data_cache: ExecutionDataCache
    router: QueueRouter
    counters: Counters

    def state(self, confirmations: SendConfirmations, queue: RedisQueue | None = None) -> RedisState:
        """Return the state of this process. With a queue of Redis it sends tokens itself."""
        return self.stores.state(
            self.opened.journal,
            self.plans.plan,
            queue=queue,
            running_executions=partial(_list_running, self.opened.journal),
            confirmations=confirmations,
            find=self.data_cache.find,
        )


class _Delivery(NamedTuple):
    """What delivers tokens and holds the state of executions: Redis alone, or with RabbitMQ."""

    queue: Queue
    state: State
    redis_state: RedisState
    keepalive: OpenKeepalive
    broker: RabbitComponents | None = None


def _with_broker(process: _Process) -> _Delivery:
    stores, confirmations = process.stores, process.stores.confirmations()
    broker = RabbitComponents(
        process.settings,
        process.member,
        process.router,
        process.data_cache,
        process.clock,
        confirmations,
        process.counters,
    )
    state = process.state(confirmations)
    keepalive = partial(stores.keepalive, process.member.name)
    return _Delivery(broker.queue, broker.wrap_state(state, stores), state, keepalive, broker)


def _with_streams(process: _Process) -> _Delivery:
    stores, confirmations = process.stores, process.stores.confirmations()
    name, queues = process.member.name, process.settings.queues
    queue = stores.queue(
        name,
        queues,
        route=process.router.queue_of,
        on_sent=confirmations.add,
        renews=False,  # the keepalive thread renews what the queue delivers
    )
    state = process.state(confirmations, queue)
    return _Delivery(queue, state, state, partial(stores.keepalive, name, queues, queue))


async def _list_running(journal: PostgresJournal, after: str, limit: int) -> Sequence[tuple[str, int | None]]:
    """Return running executions by id, with the time until which some token waits."""
    return [(each.id, each.due) for each in await journal.running(after, limit)]


def _backend(process: _Process, delivery: _Delivery, observer: ExecutionObserver | None) -> Backend:
    settings, opened, stores = process.settings, process.opened, process.stores
    state, broker = delivery.state, delivery.broker
    return Backend(
        journal=opened.journal,
        state=ObservedState(state, observer) if observer is not None else state,
        queue=delivery.queue,
        blob=opened.blob,
        workflows=opened.workflows,
        retention=opened.retention,
        credentials=PostgresCredentials(opened.database, keys(settings)),
        clock=process.clock,
        triggers=PostgresTriggers(opened.database),
        expectations=PostgresExpectations(opened.database),
        admission=delivery.redis_state,
        outbox=opened.outbox,
        processes=stores.processes,
        delivered=dict if broker is None else lambda: broker.queue.delivered,
        notifier=stores.notifier,
        live=stores.live,
        keepalive=delivery.keepalive,
        events=None if broker is None else broker.events,
        max_message=settings.wire_bytes if settings.wire_inline else None,
        completions=settings.statuses != "off",
        dead_messages=_dead_messages(settings, stores),
        event_consumer=broker.event_consumer if broker is not None and settings.consume_statuses else None,
        keys=PostgresApiKeys(opened.database),
        sessions=PostgresSessions(opened.database),
        grants=PostgresGrants(opened.database),
        log=PostgresAuditLog(opened.database),
        limits=PostgresStartLimits(opened.database),
        bulk=PostgresBulkJobs(opened.database),
        counts=PostgresCounts(opened.database),
        hooks=PostgresHooks(opened.database),
        block_marks=PostgresBlockMarks(opened.database, settings.journal, process.member.name),
    )


def _dead_messages(settings: Settings, stores: RedisStores) -> DeadLetterQueue:
    if not settings.brokered:
        return RedisDeadLetters(stores.client, stores.keys)
    return DeadLetters(settings.queue, Topology(settings.queue_prefix, settings.queues, settings.queue_kind))


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Open the services; every process of a cluster may call them."""
    async with running_engine(settings, roles=frozenset()) as engine:
        yield engine.services


@asynccontextmanager
async def open_engine(settings: Settings) -> AsyncIterator[tuple[Engine, Services]]:
    """Open an engine that runs nothing, and its services."""
    async with running_engine(settings, roles=frozenset()) as engine:
        yield engine, engine.services


@asynccontextmanager
async def _open_read_only(settings: Settings) -> AsyncIterator[PostgresStores]:
    async with postgres(settings.journal, outside=_external_blobs(settings), read_only=True) as opened:
        _checked(settings, await cluster_identity(opened.database))
        yield opened


@asynccontextmanager
async def open_reader(
    settings: Settings, catalogue: Catalogue | None = None
) -> AsyncIterator[ExecutionReader]:
    """Open read-only access."""
    async with _open_read_only(settings) as opened:
        plans = PlanCache(opened.journal, catalogue or standard_catalogue(), reading=True)
        yield ExecutionReader(
            opened.index, opened.journal, opened.blob, plans, opened.database, opened.workflows
        )


@asynccontextmanager
async def open_live(settings: Settings) -> AsyncIterator[RunningQuery]:
    """Open a query to the workers."""
    stores = await looking_at_redis(settings)
    follower = LiveFollower(RunningNodes(""), stores.live, stores.processes)
    try:
        yield follower.running
    finally:
        await follower.close()
        await stores.client.close()


@asynccontextmanager
async def open_credentials(settings: Settings) -> AsyncIterator[CredentialService]:
    """Open read-only access to the credentials, without their values."""
    async with _open_read_only(settings) as opened:
        database = opened.database
        credentials = PostgresCredentials(database, keys(settings))
        yield credential_service(credentials, PostgresGrants(database), PostgresAuditLog(database))


@asynccontextmanager
async def open_access(settings: Settings) -> AsyncIterator[Access]:
    """Open read-only access to API keys, grants, limits, triggers and the audit log."""
    async with _open_read_only(settings) as opened:
        database = opened.database
        yield Access(
            PostgresApiKeys(database),
            PostgresGrants(database),
            PostgresAuditLog(database),
            PostgresStartLimits(database),
            PostgresTriggers(database),
        )


async def preview(settings: Settings, rules: Sequence[Rule], now: int) -> RetentionResult:
    """Return what the retention rules would delete now."""
    async with _open_read_only(settings) as opened:
        return await opened.retention.preview(rules, now)


async def check_vacuum(settings: Settings) -> None:
    """Raise unless the user may compact the tables."""
    async with _open_read_only(settings) as opened:
        await opened.retention.check_vacuum()


async def vacuum(settings: Settings) -> tuple[int, int]:
    """Compact the tables; return their size before and after."""
    async with postgres(settings.journal) as opened:
        _checked(settings, await cluster_identity(opened.database))
        return await opened.retention.vacuum()


async def list_processes(settings: Settings) -> list[ProcessInfo]:
    """Return the active processes of the cluster."""
    stores = await looking_at_redis(settings)
    try:
        return await stores.processes.list()
    finally:
        await stores.client.close()


async def migrate(settings: Settings) -> list[str]:
    """Migrate the database to the version of this program and load its functions into Redis; return the applied
    steps. Nothing is changed if Redis has the state of another cluster than that of the database."""
    await check_same_cluster(settings)
    steps = await migrate_database(settings.journal)
    client = open_client(settings.state)
    functions = library(settings.prefix)
    try:
        loaded = await load_functions(client, functions)
    finally:
        await client.close()
    return [*steps, f"functions of Redis ({functions.name})"] if loaded else steps


async def grant_roles(settings: Settings) -> list[str]:
    """Grant the database roles their permissions; return their names."""
    return await grant(settings.journal)


async def wait_for_store(name: str, check: Callable[[], Awaitable[None]], deadline: float) -> None:
    """Call `check` until it succeeds. After the deadline (monotonic), raise its error.

    Only an unavailable store is waited for: one that is unreachable, starting or being migrated.
    """
    delay = MIN_DELAY_S
    said_at, said = 0.0, ""
    began = time.monotonic()
    while True:
        try:
            await check()
            break
        except StoreDamagedError:
            raise
        except StoreUnavailableError as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            if error.message != said or time.monotonic() - said_at >= LOG_PERIOD_S:
                log.warning("waiting for %s, up to %.0f s longer: %s", name, left, error.message)
                said_at, said = time.monotonic(), error.message
        await asyncio.sleep(min(delay, max(left, 0.0)))
        delay = min(2 * delay, MAX_DELAY_S)
    if said:
        log.info("%s is available after %.1f s", name, time.monotonic() - began)
