"""A server answers while clients send large starts, whatever they contain, and limits what it holds of them."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from rune.core.limits import LIMITS
from rune.server.bodies import MAX_BYTES_IN_FLIGHT
from tests.acceptance.api.test_hostile_expressions import Pings, definition, url

pytestmark = pytest.mark.long

__all__ = ["url"]

DEFINITION = json.dumps(definition("$trigger.n")).encode()
CLIENTS = 4


def post(url: str, input: bytes) -> tuple[int, dict[str, Any], dict[str, str]]:
    body = b'{"definition":' + DEFINITION + b',"input":' + input + b"}"
    request = urllib.request.Request(
        f"{url}/api/v1/executions?wait=0", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), dict(error.headers)


def test_start_of_ten_megabytes_is_accepted(url: str) -> None:
    status, started, _ = post(url, b'{"n":1,"text":"' + b"x" * 10_000_000 + b'"}')
    assert status == 202
    with urllib.request.urlopen(f"{url}/api/v1/executions/{started['execution_id']}/input") as answer:
        assert len(answer.read()) == 10_000_017


@pytest.mark.parametrize("size", [LIMITS.payload_bytes - 100, 20_000_000], ids=["within", "above"])
def test_health_is_answered_while_clients_post_millions_of_lists(url: str, size: int) -> None:
    input = b"[" + b"[]," * (size // 3) + b"[]]"
    answers: list[tuple[int, dict[str, Any], dict[str, str]]] = []
    with Pings(url) as pings:
        threads = [
            threading.Thread(target=lambda: answers.append(_refused(url, input))) for _ in range(CLIENTS)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    for status, document, headers in answers:
        limit = {413: "exceeds", 422: f"{LIMITS.payload_containers:,}", 503: f"{MAX_BYTES_IN_FLIGHT:,}"}[
            status
        ]
        assert limit in str(document)
        assert (status == 503) == ("retry-after" in {each.lower() for each in headers})
    assert len(answers) == CLIENTS
    assert pings.longest < Pings.allowed()


def _refused(url: str, input: bytes) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Post a body that the server may refuse before it has read all of it."""
    try:
        return post(url, input)
    except (urllib.error.URLError, ConnectionError):
        return 413, {"detail": "exceeds: the connection was closed"}, {}
