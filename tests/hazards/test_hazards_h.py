"""Hazards H: nodes."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
from aiohttp import web

from rune.core.execution.outcome import Failure, Outcome, Output
from rune.nodes.resources import Resources
from tests.acceptance.cli.process import PATIENCE, Rune, until
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.stubs import surroundings
from tests.hazards.building import entry, kind, ran, workflow
from tests.unit.core.documents import document, keep, node
from tests.unit.nodes.io.calling import call, listening, local_world, serving
from tests.unit.nodes.io.test_http import answering, ask, echo
from tests.unit.nodes.io.test_http_hostile import Names, Site
from tests.unit.nodes.io.test_smtp import MAIL, Sink, send


def _code(outcome: Outcome) -> str:
    assert isinstance(outcome, Failure), outcome
    return outcome.error.code


def test_h_h1_numbers_and_booleans_in_query_and_headers_are_sent() -> None:
    # fault: h1: values of a query that are no text are left out
    outcome = ask(echo, query={"page": 2, "all": True}, headers={"X-Count": 3, "X-Ratio": 0.5})

    assert isinstance(outcome, Output)
    seen = outcome.value["body"]
    assert seen["path"] == "/?page=2&all=true"
    assert (seen["headers"]["x-count"], seen["headers"]["x-ratio"]) == ("3", "0.5")


def test_h_h3_an_answer_has_a_largest_size() -> None:
    # fault: h3-size: nobody looks at the size of a body
    assert _code(ask(answering(b"x" * 2_000_000), max_bytes=1_000_000)) == "HTTP_TOO_LARGE"
    assert _code(ask(answering(b"x" * (10 * 1024 * 1024 + 1)))) == "HTTP_TOO_LARGE"


def test_h_h3_calls_share_a_pool() -> None:
    # fault: h3-pool: every call opens a client of its own
    ports: set[int] = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.Response(text="x")

    async def scenario() -> None:
        world = local_world()
        async with serving(answer) as port:
            for _ in range(5):
                await call("http", {"url": f"http://127.0.0.1:{port}/"}, world)
            await world.close()

    asyncio.run(scenario())
    assert len(ports) == 1


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://0x7f.1/", "http://[::1]/"]
)
def test_h_h3_private_addresses_are_not_called(url: str) -> None:
    # fault: h3-private: every host counts as named on the allow list
    told = ran(workflow("start>a", a=kind("http", url=url)))

    assert entry(told, "a")["error"]["code"] == "HTTP_BLOCKED"


def test_h_h3_nor_through_a_redirect() -> None:
    # fault: h3-redirect: an address is not checked before it is called
    site = Site((302, "http://127.0.0.2:PORT/"))

    assert _code(site.ask()) == "HTTP_BLOCKED"
    assert len(site.seen) == 1


def test_h_h3_nor_through_a_name_that_changes_its_address() -> None:
    # fault: h3-rebinding: of the addresses of a name only the first is looked at, and a connection at all not
    site, names = Site(), Names(["93.184.216.34", "127.0.0.1"], ["127.0.0.1"])

    async def scenario() -> Outcome:
        world = Resources(resolve=names)
        async with serving(site.answer) as port:
            outcome = await call("http", {"url": f"http://rebinding.example:{port}/"}, world)
            await world.close()
        return outcome

    assert _code(asyncio.run(scenario())) == "HTTP_BLOCKED"
    assert (names.asked, site.seen) == (["rebinding.example"], [])


def test_h_h4_a_line_break_adds_no_header_and_no_recipient() -> None:
    # fault: h4-headers: the subject goes into the mail as it is
    for subject in ("Hi\r\nBcc: victim@example.com", "=?utf-8?q?Hi=0d=0aBcc:_victim@example.com?="):
        sink = Sink()
        send(sink, {**MAIL, "subject": subject})
        assert sink.recipients == ["ada@example.com"]
        assert sink.mail["Bcc"] is None


def test_h_h4_a_silent_mail_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # fault: h4-silence: the session as a whole has no time limit
    monkeypatch.setattr("rune.nodes.io.smtp.DELIVERY_TIMEOUT_S", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def scenario() -> Outcome:
        async with listening(silent) as port:
            return await call("smtp", MAIL, local_world(smtp_url=f"smtp://127.0.0.1:{port}"))

    assert _code(asyncio.run(scenario())) == "SMTP_TIMEOUT"


def test_h_h4_implicit_tls_is_spoken() -> None:
    # fault: h4-tls: `smtps` is treated like `smtp`
    first = bytearray()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first.extend(await reader.read(1))

    async def scenario() -> Outcome:
        async with listening(listens) as port:
            return await call("smtp", MAIL, local_world(smtp_url=f"smtps://127.0.0.1:{port}"))

    assert _code(asyncio.run(scenario())) == "SMTP_CONNECT"
    assert first == b"\x16"  # the client begins a TLS handshake, before any greeting


def test_h_h5_a_number_is_the_date_it_says() -> None:
    # fault: h5: what is no text counts as absent
    told = ran(workflow("start>a", a=kind("datetime", operation="format", date=86_400, format="%Y-%m-%d")))

    assert entry(told, "a")["output"]["result"] == "1970-01-02"


@pytest.mark.parametrize("message", [5, 1.5, True, None, [1, "x"], {"a": {"b": []}}])
def test_h_h6_anything_can_be_logged(message: Any) -> None:
    # fault: h6: the message is joined to text without being made one
    told = ran(workflow("start>a", a=kind("log", message=message)))

    assert told["status"] == "completed"


SLOW = document(
    [node("start", "input"), node("call", "http", parameters={"url": "{{base_url}}/slow"}), keep("after", 1)],
    "start>call",
    "call>after",
    id="slow",
)


@pytest.mark.parametrize(
    ("grace", "first_ms", "calls"), [("30", 700, 1), ("0.1", 20_000, 2)], ids=["it finishes", "it is left"]
)
def test_h_c7_sigterm_during_a_request_fails_no_node(
    grace: str, first_ms: int, calls: int, tmp_path: pathlib.Path
) -> None:
    # fault: c7-sigterm: a request that is cancelled is reported as failed
    routes = ({"path": "/slow", "json": {}, "delay_ms": first_ms, "times": 1}, {"path": "/slow", "json": {}})
    case = Case("slow", "", (), {}, SLOW, http=routes)
    rune = Rune(tmp_path / "home", RUNE_HTTP_ALLOW="127.0.0.1", RUNE_GRACE=grace)
    with surroundings(case) as around:
        file = tmp_path / "slow.json"
        file.write_text(case.workflow_source(around.base_url))
        with rune.begin("run", str(file), "--key", "k") as process:
            until(lambda: around.http.calls.get("/slow"), "the request is under way")
            process.terminate()
            process.communicate(timeout=PATIENCE)
        told = rune.json("run", str(file), "--key", "k")

    assert process.returncode == 143
    assert told["status"] == "completed"
    assert (entry(told, "call")["status"], entry(told, "call")["attempts"]) == ("success", 1)
    assert around.http.calls["/slow"].count == calls
