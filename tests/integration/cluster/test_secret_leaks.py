"""Secrets do not appear in any store, queue, log, event stream, metric or trace of a cluster.

The servers that nodes call return the secrets in their responses. The secrets are values of credentials, secrets of
webhooks, and API keys.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from aiohttp import web
from msgspec.structs import replace
from websockets.asyncio.client import connect

from rune.bootstrap import fresh_key
from rune.client import AsyncClient
from rune.core.webhooks import sign
from tests.integration.cluster.store_dumps import (
    TAP,
    bind_tap,
    count_rows,
    dump_database,
    dump_redis,
    record_commands,
    take_messages,
)
from tests.support.amqp_client import Client, open_client
from tests.support.backends import stores
from tests.support.clusters import wait_until_declared
from tests.support.credential_canary import (
    CORE,
    PASSWORD,
    TOKEN,
    EchoServer,
    credentials,
    echo_servers,
    leaks,
    workflow,
)
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.postgres import free_port
from tests.support.services.rabbitmq import broker
from tests.support.smtp_server import SmtpServer
from tests.support.trace_collector import Collector, running_collector
from tests.support.trigger_workflows import webhook_workflow

API = "/api/v1"
BOOTSTRAP = f"k-{CORE}-k"
BODY = b'{"order": 7}'
LOST = "lost-0001"
TIMEOUT_S = 120.0
NODES = 2 * 13  # nodes of the workflow that end before the signal


class HoldingServer(EchoServer):
    """Holds one request until it is released: an execution that only waits would not be in Redis."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    async def __call__(self, request: web.Request) -> web.Response:
        if request.path == "/held":
            await asyncio.to_thread(self.release.wait, TIMEOUT_S)
        return await super().__call__(request)


def held_workflow(http: int) -> dict[str, Any]:
    """Build the workflow with one more call, which the server holds."""
    made = workflow(http, waits=True)
    parameters = {"url": f"http://127.0.0.1:{http}/held", "timeout": TIMEOUT_S}
    made["nodes"].append(
        {"id": "held", "type": "http", "parameters": parameters, "credentials": {"name": "basic"}}
    )
    made["edges"].append({"src": "start", "dst": "held"})
    return made


class ObservedCluster:
    """A cluster and all output of it that was collected."""

    def __init__(self, made: Fleet, collector: Collector, ports: list[int], server: HoldingServer) -> None:
        self.fleet = made
        self.collector = collector
        self.ports = ports
        self.server = server
        self.urls = [each.url for each in made.of("api")]
        self.seen: dict[str, bytes] = {}
        self.given: dict[str, str] = {"key of the credentials": made.environment["RUNE_SECRET_KEY"]}

    def record(self, name: str, data: bytes | str) -> None:
        more = data.encode() if isinstance(data, str) else data
        self.seen[name] = self.seen.get(name, b"") + more

    def leaked(self) -> dict[str, list[str]]:
        """Return the sources in which a secret appears, and in which form."""
        return {
            name: each for name, data in self.seen.items() if (each := leaks(data) + self._generated_in(data))
        }

    def _generated_in(self, data: bytes) -> list[str]:
        """Return the generated secrets that appear in the data."""
        return [name for name, value in self.given.items() if any(each in data for each in encodings(value))]


def encodings(value: str) -> set[bytes]:
    """Return the encodings in which a value may appear."""
    inner = [base64.b64encode(b"\0" * n + value.encode())[4:-4] for n in range(3)]
    return {value.encode(), quote(value, safe="").encode(), value.encode().hex().encode(), *inner}


@contextmanager
def observed_cluster(folder: Path) -> Iterator[tuple[ObservedCluster, int, int]]:
    """Start two workers, a scheduler and two API servers with both log formats, and the servers that nodes call."""
    server = HoldingServer()
    refusal = f"535 me:{PASSWORD} {base64.b64encode(f'{chr(0)}me{chr(0)}{PASSWORD}'.encode()).decode()}"
    sink = SmtpServer({"AUTH": refusal, "MAIL": f"550 {PASSWORD}"})
    with (
        broker().vhost() as vhost,
        running_collector() as collector,
        echo_servers(server, sink) as (http, smtp),
    ):
        settings = replace(stores(folder), queue=broker().url(vhost))
        environment = {
            "RUNE_NODES": "tests.support.canary_nodes",
            "RUNE_HTTP_ALLOW": "127.0.0.1",
            "RUNE_IN_PLACE": "false",
            "RUNE_WIRE_INLINE": "true",  # messages contain everything that a node may read
            "RUNE_LOG_LEVEL": "debug",
            "RUNE_SLOTS": "3",  # so that both workers run nodes
            "RUNE_API_KEY": BOOTSTRAP,
            "RUNE_SECRET_KEY": fresh_key(),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        with fleet(folder, settings, workers=0, schedulers=0, environment=environment) as made:
            ports = [free_port() for _ in range(3)]
            made.start("worker", "--health-port", str(ports[0]), RUNE_LOG="json")
            made.start("worker", "--health-port", str(ports[1]), RUNE_LOG="text")
            made.start("scheduler", "--health-port", str(ports[2]), RUNE_LOG="json")
            made.start("api", "--port", "0", RUNE_LOG="json")
            made.start("api", "--port", "0", RUNE_LOG="text")
            for each in made.processes:
                each.wait_ready()
            wait_until_declared(settings)
            yield ObservedCluster(made, collector, ports, server), http, smtp


async def store_credentials(observed: ObservedCluster, api: httpx.AsyncClient, http: int, smtp: int) -> None:
    """Send valid and invalid credentials to the API and record its responses."""
    for name, values in credentials(http, smtp).items():
        bounds = {"hosts": ["*"], "insecure": True, "grants": ["everyone"]}
        body = {"name": name, "type": name.removesuffix("-body"), "values": values, **bounds}
        response = await api.post(f"{API}/credentials", json=body)
        assert response.status_code == 201, response.text
        observed.record("responses", response.content)
    wrong: list[Any] = [
        {"name": "basic", "type": "basic", "values": {"username": "me", "password": PASSWORD}},
        {"name": "x", "type": "bearer", "values": {"tocken": PASSWORD}},
        {"name": "x", "type": "bearer", "values": {"token": [PASSWORD]}},
        {"name": "x", "type": "bearer", "values": PASSWORD},
        {"name": "x", "type": "bearer", "values": {"token": TOKEN}, "more": TOKEN},
    ]
    for body in wrong:
        response = await api.post(f"{API}/credentials", json=body)
        assert 400 <= response.status_code < 500, response.text
        observed.record("responses", response.content)
    response = await api.post(f"{API}/credentials", content=f'{{"values": "{TOKEN}'.encode())
    assert response.status_code == 422, response.text
    observed.record("responses", response.content)
    response = await api.patch(f"{API}/credentials/header", json={"values": {"value": TOKEN}})
    assert response.status_code == 200, response.text
    observed.record("responses", response.content)


async def call_webhooks(observed: ObservedCluster, api: AsyncClient) -> list[str]:
    """Call webhooks that authenticate by credential, own secret and header; return the started executions."""
    started = []
    await api.deploy(webhook_workflow(id="signed", auth="hmac", credentials="header"))
    await api.deploy(webhook_workflow(id="own", auth="hmac"))
    await api.deploy(webhook_workflow(id="named", auth="header", credentials="bearer"))
    (own,) = await api.triggers("own")
    made = (await api.rotate_trigger(own.id, secret=True)).new_secret
    assert made is not None
    observed.given["secret of a hook"] = made
    moment = str(int(time.time()))
    proofs = {
        "signed": {"X-Rune-Timestamp": moment, "X-Rune-Signature": sign(TOKEN, moment, BODY)},
        "own": {"X-Rune-Timestamp": moment, "X-Rune-Signature": sign(made, moment, BODY)},
        "named": {"Authorization": f"Bearer {TOKEN}"},
    }
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as http:
        for name, proof in proofs.items():
            (trigger,) = await api.triggers(name)
            assert trigger.webhook is not None
            url = f"{observed.urls[0]}{trigger.webhook.path}"
            for status, headers in ((401, {"Authorization": f"Bearer {TOKEN}x"}), (202, proof)):
                given = {"Content-Type": "application/json", "X-Api-Key": quote(PASSWORD), **headers}
                response = await http.post(url, content=BODY, headers=given)
                assert response.status_code == status, response.text
                observed.record("responses", response.content)
            started.append(response.json()["execution_id"])
    return started


async def record_stream(observed: ObservedCluster, name: str, path: str, key: str) -> None:
    """Record an event stream byte by byte."""
    async with httpx.AsyncClient(timeout=None, trust_env=False) as http:
        headers = {"Authorization": f"Bearer {key}"}
        async with http.stream("GET", f"{observed.urls[1]}{API}{path}", headers=headers) as response:
            assert response.status_code == 200
            async for chunk in response.aiter_raw():
                observed.record(name, chunk)


async def record_websocket(observed: ObservedCluster, execution: str, key: str) -> None:
    address = f"{observed.urls[0].replace('http', 'ws')}{API}/executions/{execution}/events"
    async with connect(address, additional_headers={"Authorization": f"Bearer {key}"}) as socket:
        async for text in socket:
            observed.record("websocket", text)


async def record_stores(observed: ObservedCluster, when: str) -> None:
    """Record the current contents of the stores."""
    observed.record(
        f"postgres {when}", await asyncio.to_thread(dump_database, observed.fleet.settings.journal)
    )
    for name, value in (await dump_redis()).items():
        observed.record(f"redis {when}", name.encode() + b" " + value + b"\n")


async def record_metrics(observed: ObservedCluster) -> None:
    """Record the metrics of every process."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as http:
        for url in (*(f"http://127.0.0.1:{port}" for port in observed.ports), *observed.urls):
            headers = {"Authorization": f"Bearer {BOOTSTRAP}"} if url in observed.urls else {}
            response = await http.get(f"{url}/metrics", headers=headers)
            assert response.status_code == 200
            observed.record(f"metrics of {url}", response.content)


async def record_api(observed: ObservedCluster, api: httpx.AsyncClient, executions: list[str]) -> None:
    """Record the responses of the API."""
    views = ("", "/input", "/output", "/document", "/nodes", "/history", "/explain", "/timers", "/rollups")
    paths = [f"/executions/{each}{view}" for each in executions for view in views]
    paths += ["/credentials", "/credentials/basic", "/triggers", "/keys", "/executions", "/dead-letters"]
    for path in paths:
        response = await api.get(f"{API}{path}")
        assert response.status_code == 200, f"{path}: {response.text}"
        observed.record("responses", response.content)
    entries = await api.get(f"{API}/log?limit=1000")
    observed.record("log of changes", entries.content)
    rejected = await api.get(f"{API}/executions", headers={"Authorization": f"Bearer {TOKEN}"})
    assert rejected.status_code == 401
    observed.record("responses", rejected.content)


async def use_secrets(observed: ObservedCluster, http: int, smtp: int) -> dict[str, Any]:
    """Use the secrets in every way while all output is recorded."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(
            AsyncClient(observed.urls[0], key=BOOTSTRAP, timeout=TIMEOUT_S)
        )
        made = await admin.create_key("ada", "admin")
        observed.given["key of the API"] = made.key
        headers = {"Authorization": f"Bearer {made.key}"}
        api = await stack.enter_async_context(
            httpx.AsyncClient(base_url=observed.urls[1], headers=headers, timeout=TIMEOUT_S, trust_env=False)
        )
        client = await stack.enter_async_context(open_client(observed.fleet.settings.queue, copies=True))
        await client.copy_work()
        await store_credentials(observed, api, http, smtp)
        fleetwide = asyncio.create_task(record_stream(observed, "stream of the cluster", "/events", made.key))
        started_by_webhook = await call_webhooks(observed, admin)
        await admin.deploy(held_workflow(http))
        execution = (await admin.start("canary")).execution_id
        listeners = [
            asyncio.create_task(
                record_stream(observed, "stream", f"/executions/{execution}/events", made.key)
            ),
            asyncio.create_task(record_websocket(observed, execution, made.key)),
        ]
        while await _count_ended(admin, execution) < NODES:
            with suppress(TimeoutError):  # the journal is counted, and a message may arrive before its row
                await asyncio.wait_for(client.wait_for_message(), 0.1)
        await record_stores(observed, "while it ran")
        observed.server.release.set()
        await admin.signal(execution, "never", TOKEN[:2])
        for each in (execution, *started_by_webhook):
            assert (await admin.wait(each, TIMEOUT_S)).status == "completed"
        await asyncio.gather(*listeners)
        await client.wait_for_completion(execution, NODES)
        await record_dead_letter(observed, client, execution)
        await record_metrics(observed)
        await record_api(observed, api, [execution, *started_by_webhook])
        fleetwide.cancel()
        await asyncio.wait({fleetwide})
        observed.record("statuses", json.dumps(client.statuses(execution)))
        return await admin.document(execution)


async def _count_ended(api: AsyncClient, execution: str) -> int:
    quiet = ("start", "nap")
    return len([each async for each in api.nodes(execution) if each.node_id not in quiet])


async def record_dead_letter(observed: ObservedCluster, client: Client, execution: str) -> None:
    """Publish a copy of an inline message for an unknown node and record its dead letter."""
    message = next(each for each in client.work_messages(execution) if each["current_node"] == "after-fails")
    del message["token"]
    await client.publish({**message, "current_node": "nowhere", "execution_id": LOST})
    observed.record("dead letter", (await client.take_dead_letter(LOST))[1])


async def record_rest(observed: ObservedCluster) -> None:
    """Record what is stored after all processes have ended."""
    await record_stores(observed, "at the end")
    for name, each in (await take_messages(observed.fleet.settings.queue)).items():
        observed.record(f"queue {name}", b"\n".join(each))


def _check_coverage(observed: ObservedCluster, document: dict[str, Any], rows: dict[str, int]) -> None:
    """Check that the secrets were used and that every source was recorded; otherwise the test would prove nothing."""
    requests = "\n".join(observed.server.requests)
    assert base64.b64encode(f"me:{PASSWORD}".encode()).decode() in requests
    assert f"Bearer {TOKEN}" in requests
    nodes = {each["node_id"]: each for each in document["nodes"]}
    assert (nodes["fails"]["error"] or {})["code"] == "HTTP_STATUS"
    assert nodes["raises"]["error"]["message"].count("***") == 1
    assert min(rows[name] for name in ("execution", "fact", "credential")) > 0, rows
    execution = document["execution_id"].encode()
    mentioning = [name for name, data in observed.seen.items() if execution in data]
    assert set(mentioning) >= {
        "postgres while it ran",
        "redis while it ran",
        "postgres at the end",
        "commands to redis",
        f"queue {TAP}",
        "stream",
        "stream of the cluster",
        "websocket",
        "statuses",
        "traces",
        "log of workers",
    }, mentioning
    assert b"HTTP_STATUS" in observed.seen[f"queue {TAP}"]
    assert b"HTTP_STATUS" in observed.seen["dead letter"]
    assert b"HTTP_STATUS" in observed.seen["postgres at the end"]  # only in compressed rows
    assert b"the password is ***" in observed.seen["log of workers"]
    assert b"credential.add" in observed.seen["log of changes"]
    assert sum(name.startswith("metrics of") for name in observed.seen) == 5


def test_h_i7_secrets_do_not_leak_from_cluster(tmp_path: Path) -> None:
    async def go() -> dict[str, Any]:
        async with asyncio.timeout(2 * TIMEOUT_S):
            return await use_secrets(observed, http, smtp)

    with observed_cluster(tmp_path) as (observed, http, smtp), record_commands() as commands:
        assert bind_tap(observed.fleet.settings.queue) >= 8
        document = asyncio.run(go())
        rows = count_rows(observed.fleet.settings.journal)
        for each in observed.fleet.processes:
            assert each.stop() == 0, each.output()[-2000:]
        asyncio.run(record_rest(observed))
    observed.record("commands to redis", bytes(commands.data))
    for each in observed.fleet.processes:
        observed.record(f"log of {each.role}s", each.output())
    observed.record("traces", b"\n".join(observed.collector.raw))
    assert observed.leaked() == {}
    _check_coverage(observed, document, rows)
