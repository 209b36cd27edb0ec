"""The canary on a fleet: secrets whose values turn up in no store, queue, log, stream, scrape or trace of a cluster.

Whoever is called repeats them as loudly as it can. Some are of the credentials that nodes use, some prove a hook's
requests, some are keys that open the API.
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
from rune.core.triggers import sign
from tests.integration.cluster.standing import stores
from tests.integration.embedded.test_canary import (
    CORE,
    PASSWORD,
    TOKEN,
    Loud,
    credentials,
    leaks,
    surroundings,
    workflow,
)
from tests.integration.rabbitmq_cluster.plain import Client, client
from tests.integration.rabbitmq_cluster.searching import (
    TAP,
    commands,
    database,
    memory,
    messages,
    tables,
    tap,
)
from tests.integration.rabbitmq_cluster.standing import declared
from tests.integration.telemetry.collector import Collector, collecting
from tests.integration.triggers.helping import hooked
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.postgres import free_port
from tests.support.services.rabbitmq import broker
from tests.unit.nodes.io.test_smtp import Sink

API = "/api/v1"
BOOTSTRAP = f"k-{CORE}-k"
BODY = b'{"order": 7}'
LOST = "lost-0001"
PATIENCE = 120.0
NODES = 2 * 13  # of the workflow that end before somebody signals


class Holding(Loud):
    """One that keeps a request until it is told to answer: what only waits is not in Redis, what is called is."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    async def __call__(self, request: web.Request) -> web.Response:
        if request.path == "/held":
            await asyncio.to_thread(self.release.wait, PATIENCE)
        return await super().__call__(request)


def held(http: int) -> dict[str, Any]:
    """The workflow, and one call more."""
    made = workflow(http, waits=True)
    parameters = {"url": f"http://127.0.0.1:{http}/held", "timeout": PATIENCE}
    made["nodes"].append(
        {"id": "held", "type": "http", "parameters": parameters, "credentials": {"name": "basic"}}
    )
    made["edges"].append({"src": "start", "dst": "held"})
    return made


class Watched:
    """A fleet, everybody who listens to it, and what came out of it so far."""

    def __init__(self, made: Fleet, collector: Collector, ports: list[int], loud: Holding) -> None:
        self.fleet = made
        self.collector = collector
        self.ports = ports
        self.loud = loud
        self.urls = [each.url for each in made.of("api")]
        self.seen: dict[str, bytes] = {}
        self.given: dict[str, str] = {"key of the credentials": made.environment["RUNE_SECRET_KEY"]}

    def note(self, name: str, data: bytes | str) -> None:
        more = data.encode() if isinstance(data, str) else data
        self.seen[name] = self.seen.get(name, b"") + more

    def found(self) -> dict[str, list[str]]:
        """Where something was, and in which form."""
        return {
            name: each for name, data in self.seen.items() if (each := leaks(data) + self._given_in(data))
        }

    def _given_in(self, data: bytes) -> list[str]:
        """Which of the secrets that servers made are in something."""
        return [name for name, value in self.given.items() if any(each in data for each in forms(value))]


def forms(value: str) -> set[bytes]:
    """How a value of any alphabet may be written."""
    inner = [base64.b64encode(b"\0" * n + value.encode())[4:-4] for n in range(3)]
    return {value.encode(), quote(value, safe="").encode(), value.encode().hex().encode(), *inner}


@contextmanager
def watched(folder: Path) -> Iterator[tuple[Watched, int, int]]:
    """Two workers, a scheduler and two servers that write logs of both kinds; and who is called."""
    loud = Holding()
    refusal = f"535 me:{PASSWORD} {base64.b64encode(f'{chr(0)}me{chr(0)}{PASSWORD}'.encode()).decode()}"
    sink = Sink({"AUTH": refusal, "MAIL": f"550 {PASSWORD}"})
    with broker().vhost() as vhost, collecting() as collector, surroundings(loud, sink) as (http, smtp):
        settings = replace(stores(folder), queue=broker().url(vhost))
        environment = {
            "RUNE_NODES": "tests.integration.embedded.canary_nodes",
            "RUNE_HTTP_ALLOW": "127.0.0.1",
            "RUNE_IN_PLACE": "false",
            "RUNE_WIRE_INLINE": "true",  # messages bring everything along that a node may see
            "RUNE_LOG_LEVEL": "debug",
            "RUNE_SLOTS": "3",  # so that there is something to do for both workers
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
            declared(settings.queue)
            yield Watched(made, collector, ports, loud), http, smtp


async def stored(all: Watched, asks: httpx.AsyncClient, http: int, smtp: int) -> None:
    """Credentials come over the API, rightly and wrongly; what is answered is looked at."""
    for name, values in credentials(http, smtp).items():
        body = {"name": name, "type": name.removesuffix("-body"), "values": values}
        answer = await asks.post(f"{API}/credentials", json=body)
        assert answer.status_code == 201, answer.text
        all.note("answers", answer.content)
    wrong: list[Any] = [
        {"name": "basic", "type": "basic", "values": {"username": "me", "password": PASSWORD}},
        {"name": "x", "type": "bearer", "values": {"tocken": PASSWORD}},
        {"name": "x", "type": "bearer", "values": {"token": [PASSWORD]}},
        {"name": "x", "type": "bearer", "values": PASSWORD},
        {"name": "x", "type": "bearer", "values": {"token": TOKEN}, "more": TOKEN},
    ]
    for body in wrong:
        answer = await asks.post(f"{API}/credentials", json=body)
        assert 400 <= answer.status_code < 500, answer.text
        all.note("answers", answer.content)
    answer = await asks.post(f"{API}/credentials", content=f'{{"values": "{TOKEN}'.encode())
    assert answer.status_code == 422, answer.text
    all.note("answers", answer.content)
    answer = await asks.patch(f"{API}/credentials/header", json={"values": {"value": TOKEN}})
    assert answer.status_code == 200, answer.text
    all.note("answers", answer.content)


async def proved(all: Watched, asks: AsyncClient) -> list[str]:
    """Hooks whose requests are proved by a credential, by a secret of their own, by a header; what they started."""
    started = []
    await asks.deploy(hooked(id="signed", auth="hmac", credentials="header"))
    await asks.deploy(hooked(id="own", auth="hmac"))
    await asks.deploy(hooked(id="named", auth="header", credentials="bearer"))
    (own,) = await asks.triggers("own")
    made = (await asks.rotate_trigger(own.id, secret=True)).new_secret
    assert made is not None
    all.given["secret of a hook"] = made
    moment = str(int(time.time()))
    proofs = {
        "signed": {"X-Rune-Timestamp": moment, "X-Rune-Signature": sign(TOKEN, moment, BODY)},
        "own": {"X-Rune-Timestamp": moment, "X-Rune-Signature": sign(made, moment, BODY)},
        "named": {"Authorization": f"Bearer {TOKEN}"},
    }
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
        for name, proof in proofs.items():
            (trigger,) = await asks.triggers(name)
            assert trigger.webhook is not None
            url = f"{all.urls[0]}{trigger.webhook.path}"
            for status, headers in ((401, {"Authorization": f"Bearer {TOKEN}x"}), (202, proof)):
                given = {"Content-Type": "application/json", "X-Api-Key": quote(PASSWORD), **headers}
                answer = await http.post(url, content=BODY, headers=given)
                assert answer.status_code == status, answer.text
                all.note("answers", answer.content)
            started.append(answer.json()["execution_id"])
    return started


async def streamed(all: Watched, name: str, path: str, key: str) -> None:
    """A stream of events, byte by byte."""
    async with httpx.AsyncClient(timeout=None, trust_env=False) as http:
        headers = {"Authorization": f"Bearer {key}"}
        async with http.stream("GET", f"{all.urls[1]}{API}{path}", headers=headers) as answer:
            assert answer.status_code == 200
            async for chunk in answer.aiter_raw():
                all.note(name, chunk)


async def socketed(all: Watched, execution: str, key: str) -> None:
    address = f"{all.urls[0].replace('http', 'ws')}{API}/executions/{execution}/events"
    async with connect(address, additional_headers={"Authorization": f"Bearer {key}"}) as socket:
        async for text in socket:
            all.note("websocket", text)


async def look(all: Watched, when: str) -> None:
    """What the stores hold now."""
    all.note(f"postgres {when}", await asyncio.to_thread(database, all.fleet.settings.journal))
    for name, value in (await memory()).items():
        all.note(f"redis {when}", name.encode() + b" " + value + b"\n")


async def scraped(all: Watched) -> None:
    """What every process says of itself."""
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
        for url in (*(f"http://127.0.0.1:{port}" for port in all.ports), *all.urls):
            headers = {"Authorization": f"Bearer {BOOTSTRAP}"} if url in all.urls else {}
            answer = await http.get(f"{url}/metrics", headers=headers)
            assert answer.status_code == 200
            all.note(f"metrics of {url}", answer.content)


async def asked(all: Watched, asks: httpx.AsyncClient, executions: list[str]) -> None:
    """Whatever the API has to tell."""
    views = ("", "/input", "/output", "/document", "/nodes", "/history", "/explain", "/timers", "/rollups")
    paths = [f"/executions/{each}{view}" for each in executions for view in views]
    paths += ["/credentials", "/credentials/basic", "/triggers", "/keys", "/executions", "/dead-letters"]
    for path in paths:
        answer = await asks.get(f"{API}{path}")
        assert answer.status_code == 200, f"{path}: {answer.text}"
        all.note("answers", answer.content)
    entries = await asks.get(f"{API}/log?limit=1000")
    all.note("log of changes", entries.content)
    refused = await asks.get(f"{API}/executions", headers={"Authorization": f"Bearer {TOKEN}"})
    assert refused.status_code == 401
    all.note("answers", refused.content)


async def loudly(all: Watched, http: int, smtp: int) -> dict[str, Any]:
    """Everything that is done with secrets, with everybody listening."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(AsyncClient(all.urls[0], key=BOOTSTRAP, timeout=PATIENCE))
        made = await admin.create_key("ada", "admin")
        all.given["key of the API"] = made.key
        headers = {"Authorization": f"Bearer {made.key}"}
        asks = await stack.enter_async_context(
            httpx.AsyncClient(base_url=all.urls[1], headers=headers, timeout=PATIENCE, trust_env=False)
        )
        plain = await stack.enter_async_context(client(all.fleet.settings.queue))
        await plain.overhear()
        await stored(all, asks, http, smtp)
        fleetwide = asyncio.create_task(streamed(all, "stream of the fleet", "/events", made.key))
        hooked_up = await proved(all, admin)
        await admin.deploy(held(http))
        execution = (await admin.start("canary")).execution_id
        listeners = [
            asyncio.create_task(streamed(all, "stream", f"/executions/{execution}/events", made.key)),
            asyncio.create_task(socketed(all, execution, made.key)),
        ]
        while await _ended(admin, execution) < NODES:
            with suppress(
                TimeoutError
            ):  # what is counted is the journal's, and a message may be there before it
                await asyncio.wait_for(plain.came(), 0.1)
        await look(all, "while it ran")
        all.loud.release.set()
        await admin.signal(execution, "never", TOKEN[:2])
        for each in (execution, *hooked_up):
            assert (await admin.wait(each, PATIENCE)).status == "completed"
        await asyncio.gather(*listeners)
        await plain.completion(execution, NODES)
        await buried(all, plain, execution)
        await scraped(all)
        await asked(all, asks, [execution, *hooked_up])
        fleetwide.cancel()
        await asyncio.wait({fleetwide})
        all.note("statuses", json.dumps(plain.statuses(execution)))
        return await admin.document(execution)


async def _ended(asks: AsyncClient, execution: str) -> int:
    quiet = ("start", "nap")
    return len([each async for each in asks.nodes(execution) if each.node_id not in quiet])


async def buried(all: Watched, plain: Client, execution: str) -> None:
    """A message with all that those of this execution bring along, which nobody can handle: a dead letter."""
    message = next(each for each in plain.overheard(execution) if each["current_node"] == "after-fails")
    del message["token"]
    await plain.publish({**message, "current_node": "nowhere", "execution_id": LOST})
    all.note("dead letter", (await plain.dead_letter(LOST))[1])


async def rest(all: Watched) -> None:
    """What is left when everybody is gone."""
    await look(all, "at the end")
    for name, each in (await messages(all.fleet.settings.queue)).items():
        all.note(f"queue {name}", b"\n".join(each))


def _was_loud(all: Watched, told: dict[str, Any], rows: dict[str, int]) -> None:
    """The test would find nothing if nothing had been said, or if it looked in the wrong place."""
    heard = "\n".join(all.loud.heard)
    assert base64.b64encode(f"me:{PASSWORD}".encode()).decode() in heard
    assert f"Bearer {TOKEN}" in heard
    nodes = {each["node_id"]: each for each in told["nodes"]}
    assert (nodes["fails"]["error"] or {})["code"] == "HTTP_STATUS"
    assert nodes["raises"]["error"]["message"].count("***") == 1
    assert min(rows[name] for name in ("execution", "fact", "credential")) > 0, rows
    execution = told["execution_id"].encode()
    told_of_it = [name for name, data in all.seen.items() if execution in data]
    assert set(told_of_it) >= {
        "postgres while it ran",
        "redis while it ran",
        "postgres at the end",
        "commands to redis",
        f"queue {TAP}",
        "stream",
        "stream of the fleet",
        "websocket",
        "statuses",
        "traces",
        "log of workers",
    }, told_of_it
    assert b"HTTP_STATUS" in all.seen[f"queue {TAP}"]
    assert b"HTTP_STATUS" in all.seen["dead letter"]
    assert b"HTTP_STATUS" in all.seen["postgres at the end"]  # it is in packed rows only
    assert b"the password is ***" in all.seen["log of workers"]
    assert b"credential.add" in all.seen["log of changes"]
    assert sum(name.startswith("metrics of") for name in all.seen) == 5


def test_h_i7_no_secret_is_seen_anywhere_in_a_cluster(tmp_path: Path) -> None:
    async def go() -> dict[str, Any]:
        async with asyncio.timeout(2 * PATIENCE):
            return await loudly(all, http, smtp)

    with watched(tmp_path) as (all, http, smtp), commands() as heard:
        assert tap(all.fleet.settings.queue) >= 8
        told = asyncio.run(go())
        rows = tables(all.fleet.settings.journal)
        for each in all.fleet.processes:
            assert each.stop() == 0, each.said()[-2000:]
        asyncio.run(rest(all))
    all.note("commands to redis", bytes(heard.data))
    for each in all.fleet.processes:
        all.note(f"log of {each.role}s", each.said())
    all.note("traces", b"\n".join(all.collector.raw))
    assert all.found() == {}
    _was_loud(all, told, rows)
