"""The examples of the reference of the API, with curl and with the Python client, work against a server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.redis.encoding import KeySpace
from rune.client import Client, NotFound, Refusal
from rune.client.models import Limits
from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.server.app import document
from rune.settings import Settings
from tests.support import waiting
from tests.support.api_server import RunningServer, in_thread
from tests.support.backends import redis_command, stores
from tests.support.cli_process import TIMEOUT_S, Rune
from tests.support.up_process import UpProcess
from tools.docs.api import Operation, examples, operations_of

pytestmark = pytest.mark.long

KEY = "the-key-of-the-examples-0123456789"
ORDERS = """\
id: orders
nodes:
  - {id: in, type: input}
  - {id: note, type: log, parameters: {message: "begun"}}
  - {id: users, type: split, parameters: {input_array: "{{ range(6) }}"}}
  - {id: fetch, type: edit, parameters: {mode: keep_only, assignments: [{name: body, value: [1, 2]}]}}
  - {id: price, type: noop}
  - {id: tell, type: log, parameters: {message: "told"}}
  - {id: all, type: aggregator}
  - {id: lines, type: split, parameters: {input_array: "{{ range(3) }}"}}
  - {id: late, type: fail, parameters: {message: late, code: HTTP_TIMEOUT}}
  - {id: rest, type: aggregator}
edges:
  - {src: in, dst: note}
  - {src: note, dst: users}
  - {src: users, dst: fetch}
  - {src: fetch, dst: price}
  - {src: price, dst: tell}
  - {src: tell, dst: all}
  - {src: note, dst: lines}
  - {src: lines, dst: late}
  - {src: late, dst: rest}
"""
WAITS: dict[str, Any] = {
    "id": "waits",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "ask", "type": "wait", "parameters": {"resume": "signal", "name": "approved"}},
    ],
    "edges": [{"src": "in", "dst": "ask"}],
}
HOOK: dict[str, Any] = {
    "id": "hook",
    "nodes": [{"id": "in", "type": "webhook", "parameters": {"auth": "hmac"}}],
    "edges": [],
}
ON_CLUSTER = {
    "get_blob",
    "requeue_dead_letter",
    "discard_dead_letter",
    "get_dead_message",
    "discard_dead_message",
    "requeue_dead_message",
    "drain_worker",
    "resume_worker",
}
"""Examples of what only a cluster has, or only an engine that something has happened to."""
SPARE = 6
MALFORMED = b'{"execution_id":"x\xff%d"}'


class Place:
    """A server with workflows and executions, and values for the variables of the examples."""

    def __init__(self, url: str, client: Client, folder: Path) -> None:
        self.url = url
        self.client = client
        self.folder = folder
        self._number = 0

    def variables(self, operation: Operation) -> dict[str, str]:
        """Return a value for each parameter of the path; what the operation removes is made anew."""
        self._number += 1
        _, path, each = operation
        made = {name: self._value(name, path, each["operationId"]) for name in re.findall(r"\{(\w+)\}", path)}
        if each["operationId"] == "add_credential":
            self._forget_credential()
        return made

    def _value(self, name: str, path: str, operation: str) -> str:
        client = self.client
        if name == "execution":
            started = re.search(r"/(cancel|pause|resume|signals)$|^/api/v1/waiting/", path)
            return client.start("waits").execution_id if started else "x01"
        if name == "node":
            return "ask" if "/waiting/" in path else "lines" if "/splits/" in path else "note"
        if name == "workflow":
            return self._workflow(operation)
        if name == "credential":
            made = client.add_credential(
                f"c{self._number}", "bearer", {"token": "x"}, hosts=["shop.example"], grants=["everyone"]
            )
            return made.name
        if name == "id":
            return client.create_key(f"k{self._number}", "viewer").id
        if name == "trigger":
            return client.triggers("hook")[0].id
        if name == "job":
            return client.bulk("cancel", ids=["x01"]).id
        if name == "hash":
            return client.execution("x01").hash
        return {"other": "x02", "attempt": "1", "version": "1", "alias": "stable", "type": "http"}.get(
            name, "absent"
        )

    def _workflow(self, operation: str) -> str:
        if operation == "update_workflow":
            return "hello"
        if operation not in ("delete_workflow", "restore_workflow"):
            return "orders"
        made = self.client.deploy({**WAITS, "id": f"w{self._number}"}).workflow_id
        if operation == "restore_workflow":
            self.client.delete(made)
        return made

    def _forget_credential(self) -> None:
        if any(each.name == "shop" for each in self.client.credentials()):
            self.client.remove_credential("shop")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Start executions again and again, for whoever waits for the next change."""
        done = threading.Event()

        def change() -> None:
            with Client(self.url, key=KEY) as client:
                while not done.wait(0.2):
                    client.start("waits")

        thread = threading.Thread(target=change)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "orders.yaml").write_text(ORDERS, encoding="utf-8")
    # Keys make no difference to executions that are read, so that these need none.
    rune = Rune(tmp_path / "home")
    for id in ("x01", "x02"):
        rune("run", str(tmp_path / "orders.yaml"), "--id", id)
    up = UpProcess(tmp_path / "home", RUNE_API_KEY=KEY)
    try:
        url = up.start("--no-examples")
        with Client(url, key=KEY, timeout=TIMEOUT_S) as client:
            for version in range(3):
                client.deploy(ORDERS.replace("begun", f"begun {version}"), workflow="orders")
            client.set_alias("orders", "stable", 1)
            client.deploy(WAITS)
            client.deploy({**WAITS, "id": "tell-ops"})
            client.deploy(HOOK)
            yield Place(url, client, tmp_path)
    finally:
        up.stop(signal.SIGKILL)


async def _fill_cluster(server: RunningServer, settings: Settings) -> None:
    """Give up executions, store a blob, and send messages that no worker can read."""
    await server.deploy(WAITS)
    backend = server.engine.backend
    given_up = FinishExecution("failed", Error("DEAD_LETTERED", "given up"))
    for _ in range(SPARE):
        started = await server.client.start("waits")
        await server.engine.finisher.finish(started.execution_id, given_up, backend.clock.now())
        await backend.blob.put(f"{started.execution_id}/files/report", b"%PDF")
    stream = KeySpace(settings.prefix).stream(3, "default", "normal")
    for number in range(SPARE):
        await redis_command("XADD", stream, "*", "x", "any", "t", MALFORMED % number)  # type: ignore[arg-type]

    async def read() -> bool:
        return len(await server.client.dead_messages()) == SPARE

    await waiting.until(read, "the worker has read the messages", TIMEOUT_S)


def _values_on_cluster(client: Client, path: str) -> dict[str, str]:
    """Return values for the variables of an example. Its letter or message may be gone afterwards."""
    values: dict[str, Callable[[], str]] = {
        "execution": lambda: next(client.executions(workflow="waits")).execution_id,
        "key": lambda: "files/report",
        "letter": lambda: next(client.dead_letters()).id,
        "message": lambda: client.dead_messages()[0].id,
        "worker": lambda: client.workers()[0].id,
    }
    return {name: values[name]() for name in re.findall(r"\{(\w+)\}", path)}


def _curl(command: str, variables: dict[str, str], url: str, folder: Path, operation: str) -> str:
    """Run a request and return the status of its response."""
    seconds = 1 if operation == "follow_executions" else TIMEOUT_S  # the stream of changes has no end
    options = {"header": f"Authorization: Bearer {KEY}", "output": "/dev/null", "write-out": "%{http_code}"}
    lines = [f'{name} = "{value}"' for name, value in options.items()]
    (folder / ".curlrc").write_text("\n".join([*lines, "silent", f"max-time = {seconds}"]))
    environment = {**os.environ, **variables, "RUNE_URL": url, "CURL_HOME": str(folder)}
    done = subprocess.run(
        ["bash", "-c", command],
        env={**environment, "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _python(call: str, variables: dict[str, str], url: str) -> str:
    """Evaluate a call of the client and return what it raised, if anything."""
    with Client(url, key=KEY, timeout=TIMEOUT_S) as client:
        try:
            eval(call, {"client": client, "Limits": Limits}, dict(variables))
        except (NotFound, Refusal) as error:
            return f"{type(error).__name__}: {error}"
    return ""


def test_examples_of_the_api_work(place: Place) -> None:
    unexpected: dict[str, Any] = {}
    operations = operations_of(document())
    # Others start what it creates.
    operations.sort(key=lambda each: each[2]["operationId"] != "create_workflow")
    for operation in operations:
        name = operation[2]["operationId"]
        for shell, call in () if name in ON_CLUSTER else examples(operation):
            status = _curl(shell, place.variables(operation), place.url, place.folder, name)
            with place.changing() if name == "follow_executions" else nullcontext():
                raised = _python(call, place.variables(operation), place.url)
            if status[:1] != "2" or raised:
                unexpected[name] = (shell, status, call, raised)

    assert unexpected == {}


def test_examples_of_the_api_work_on_a_cluster(tmp_path: Path) -> None:
    settings = replace(stores(tmp_path), nodes=(), grace=1.0, heartbeat=0.2)
    operations = [each for each in operations_of(document()) if each[2]["operationId"] in ON_CLUSTER]
    unexpected: dict[str, Any] = {}
    with (
        in_thread(tmp_path, lambda server: _fill_cluster(server, settings), on=settings, key=KEY) as url,
        Client(url, key=KEY, timeout=TIMEOUT_S) as client,
    ):
        for operation in operations:
            name = operation[2]["operationId"]
            for shell, call in examples(operation):
                status = _curl(shell, _values_on_cluster(client, operation[1]), url, tmp_path, name)
                raised = _python(call, _values_on_cluster(client, operation[1]), url)
                if status[:1] != "2" or raised:
                    unexpected[name] = (shell, status, call, raised)

    assert unexpected == {}
    assert {each[2]["operationId"] for each in operations} == ON_CLUSTER
