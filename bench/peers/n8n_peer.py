"""n8n: workflows behind webhooks that answer with the last node's output, recorded in n8n's SQLite database.

n8n runs a node once per item, in memory, and records an execution when it ends; a step is not recorded separately.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import CHAIN_STEPS, arguments, measure_chains, measure_fan, measure_latency, quiet

PORT = 47_214
STARTUP_S = 100.0


def node(name: str, kind: str, version: float, parameters: dict[str, Any], place: int) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "type": f"n8n-nodes-base.{kind}",
        "typeVersion": version,
        "position": [200 * place, 0],
        "parameters": parameters,
    }


def webhook(path: str) -> dict[str, Any]:
    parameters = {"path": path, "httpMethod": "POST", "responseMode": "lastNode", "options": {}}
    return {**node("start", "webhook", 2, parameters, 0), "webhookId": path}


def increment(name: str, expression: str, place: int) -> dict[str, Any]:
    assignment = {"id": name, "name": "value", "type": "number", "value": expression}
    return node(name, "set", 3.4, {"assignments": {"assignments": [assignment]}, "options": {}}, place)


def workflow(path: str, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    names = [each["name"] for each in nodes]
    connections = {
        src: {"main": [[{"node": dst, "type": "main", "index": 0}]]} for src, dst in itertools.pairwise(names)
    }
    return {
        "id": path,
        "name": path,
        "nodes": nodes,
        "connections": connections,
        "active": True,
        "settings": {},
    }


def chain(steps: int) -> dict[str, Any]:
    path = f"chain-{steps}"
    nodes = [webhook(path), increment("n0", "={{ $json.body.value + 1 }}", 1)]
    nodes += [increment(f"n{i}", "={{ $json.value + 1 }}", i + 1) for i in range(1, steps)]
    return workflow(path, nodes)


def fan() -> dict[str, Any]:
    total = {"fieldsToSummarize": {"values": [{"aggregation": "sum", "field": "value"}]}, "options": {}}
    return workflow(
        "fan",
        [
            webhook("fan"),
            node("split", "splitOut", 1, {"fieldToSplitOut": "body.items", "options": {}}, 1),
            increment("step", "={{ $json['body.items'] + 1 }}", 2),
            node("total", "summarize", 1, total, 3),
        ],
    )


def call(path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/webhook/{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def start(program: str, folder: Path) -> subprocess.Popen[bytes]:
    """Store the workflows, start n8n and wait until its webhooks answer."""
    environment = {
        **quiet(),
        "N8N_USER_FOLDER": str(folder),
        "N8N_PORT": str(PORT),
        "N8N_PAYLOAD_SIZE_MAX": "64",
    }
    documents = folder / "workflows.json"
    documents.write_text(json.dumps([chain(1), chain(3), chain(CHAIN_STEPS), fan()]))
    subprocess.run([program, "import:workflow", f"--input={documents}"], env=environment, check=True)
    subprocess.run([program, "update:workflow", "--all", "--active=true"], env=environment, check=True)
    server = subprocess.Popen([program, "start"], env=environment, stdout=subprocess.DEVNULL)
    until = time.monotonic() + STARTUP_S
    while True:
        try:
            call("chain-1", {"value": 0})
            return server
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"the server ended with {server.returncode}") from None
            if time.monotonic() > until:
                raise RuntimeError(f"the server did not answer within {STARTUP_S:.0f} s") from None
            time.sleep(0.5)


def main() -> None:
    given = arguments()
    server = start(os.environ["PEER_N8N"], Path(given.folder))
    try:
        for steps in (1, 3):
            measure_latency(
                lambda steps: int(call(f"chain-{steps}", {"value": 0})["value"]), steps, given.samples
            )
        measure_chains(
            lambda value: int(call(f"chain-{CHAIN_STEPS}", {"value": value})["value"]), given.chains
        )
        measure_fan(lambda count: int(call("fan", {"items": list(range(count))})["sum_value"]), given.items)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
