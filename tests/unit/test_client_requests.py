"""What the methods of the client send, how long they wait for it, and which of them send it again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rune.client import Client, ClientError
from tests.lint.test_client_generated import call, variants
from tests.support.each import for_each

TIMEOUT_S = 9.0

NOT_REPEATED = {
    "abort_bulk",
    "add_credential",
    "blob",
    "bulk_preview",
    "cancel",
    "check",
    "create_key",
    "create_session",
    "download",
    "drain_worker",
    "drop",
    "drop_message",
    "import_workflow",
    "pause",
    "preview",
    "preview_schedule",
    "remove_credential",
    "requeue_message",
    "restore",
    "resume",
    "resume_worker",
    "rotate_credential",
    "rotate_trigger",
}
"""Methods whose requests may have had an effect when no response arrives, and those that yield a stream."""

STREAMS = {"watch", "follow", "changes"}


def sent_by(action: Callable[[Client], Any], status: int = 404) -> list[httpx.Request]:
    """Return what a client sends to a server that answers every request with this status."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(status)

    transport = httpx.MockTransport(answer)
    with (
        Client("http://localhost", transport=transport, timeout=TIMEOUT_S) as client,
        pytest.raises(ClientError),
    ):
        next(action(client))
    return sent


@for_each("variant", [each for each in variants() if each[0] not in STREAMS])
def test_request_is_sent_again_only_where_its_effect_occurs_once(
    variant: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, given = variant
    monkeypatch.setattr(time, "sleep", lambda seconds: None)

    sent = sent_by(lambda client: call(client, name, given), status=503)

    repeated = name not in NOT_REPEATED and variant != ("deploy", {})
    assert len(sent) == (4 if repeated else 1)
    assert len({request.headers.get("Idempotency-Key") for request in sent}) == 1
    if sent[0].method == "POST" and repeated:
        keyless = {"requeue", "enable_trigger", "grant"}
        assert ("Idempotency-Key" in sent[0].headers) == (name not in keyless)


def test_name_is_one_part_of_a_path_whatever_it_contains() -> None:
    odd = "a/b ?{}%ü"
    (request,) = sent_by(lambda client: client.node_input(odd, odd, lineage="items:1"))

    quoted = "a%2Fb%20%3F%7B%7D%25%C3%BC"
    path = f"/api/v1/executions/{quoted}/nodes/{quoted}/input?lineage=items%3A1"
    assert request.url.raw_path.decode() == path


def test_key_of_a_blob_has_the_parts_of_its_path() -> None:
    (request,) = sent_by(lambda client: client.blob("e", "out/a b"))

    assert request.url.raw_path.decode() == "/api/v1/executions/e/blobs/out/a%20b"


def test_parameters_that_are_none_are_left_to_the_server() -> None:
    (request,) = sent_by(lambda client: client.nodes("e", node=None, status="failed"))

    assert sorted(request.url.params.multi_items()) == [("limit", "200"), ("status", "failed")]


@for_each("wait", [0.0, 20.0])
def test_time_that_the_server_waits_is_added_to_the_timeout(wait: float) -> None:
    (request,) = sent_by(lambda client: client.start("hello", wait=wait))

    assert request.extensions["timeout"]["read"] == TIMEOUT_S + wait
    assert request.url.params.get("wait") == (str(wait) if wait else None)


def test_idempotency_key_of_the_caller_is_sent() -> None:
    (request,) = sent_by(lambda client: client.signal("e", "go", key="mine"))

    assert request.headers["Idempotency-Key"] == "mine"
    assert request.content == b'{"name":"go","value":null}'


def test_text_of_a_document_is_sent_as_it_is() -> None:
    (request,) = sent_by(lambda client: client.deploy("nodes: [] # none\n", workflow="w", match="tag"))

    assert request.content == b"nodes: [] # none\n"
    assert request.headers["Content-Type"] == "application/yaml"
    assert request.headers["If-Match"] == '"tag"'
