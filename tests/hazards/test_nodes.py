"""Hazards H4 to H6: the smtp, datetime and log nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.execution.outcome import Failure, Outcome
from rune.testing.harness import run_document
from tests.support.io_nodes import local_resources, run_node, tcp_server
from tests.support.smtp_server import MAIL, SmtpServer, send_mail
from tests.support.workflows import node_entry, of_type, workflow


def _code(outcome: Outcome) -> str:
    assert isinstance(outcome, Failure), outcome
    return outcome.error.code


def test_h_h4_line_break_adds_no_header_or_recipient() -> None:
    # fault: h4-headers: the subject is put into the mail unchanged
    for subject in ("Hi\r\nBcc: victim@example.com", "=?utf-8?q?Hi=0d=0aBcc:_victim@example.com?="):
        sink = SmtpServer()
        send_mail(sink, {**MAIL, "subject": subject})
        assert sink.recipients == ["ada@example.com"]
        assert sink.mail["Bcc"] is None


def test_h_h4_silent_mail_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # fault: h4-silence: the session as a whole has no time limit
    monkeypatch.setattr("rune.nodes.io.smtp.DELIVERY_TIMEOUT_S", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def go() -> Outcome:
        async with tcp_server(silent) as port:
            return await run_node("smtp", MAIL, local_resources(smtp_url=f"smtp://127.0.0.1:{port}"))

    assert _code(asyncio.run(go())) == "SMTP_TIMEOUT"


def test_h_h4_smtps_starts_with_tls_handshake() -> None:
    # fault: h4-tls: `smtps` is treated like `smtp`
    first = bytearray()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first.extend(await reader.read(1))

    async def go() -> Outcome:
        async with tcp_server(listens) as port:
            return await run_node("smtp", MAIL, local_resources(smtp_url=f"smtps://127.0.0.1:{port}"))

    assert _code(asyncio.run(go())) == "SMTP_CONNECT"
    assert first == b"\x16"  # a TLS handshake, before any greeting


def test_h_h5_numeric_date_is_unix_time() -> None:
    # fault: h5: a value that is not text counts as absent
    result = run_document(
        workflow("start>a", a=of_type("datetime", operation="format", date=86_400, format="%Y-%m-%d"))
    )

    assert node_entry(result, "a")["output"]["result"] == "1970-01-02"


@pytest.mark.parametrize("message", [5, 1.5, True, None, [1, "x"], {"a": {"b": []}}])
def test_h_h6_any_value_can_be_logged(message: Any) -> None:
    # fault: h6: the message is concatenated without a conversion to text
    result = run_document(workflow("start>a", a=of_type("log", message=message)))

    assert result["status"] == "completed"
