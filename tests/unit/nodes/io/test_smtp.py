"""The `smtp` node: messages, addresses, attachments, security and failures."""

from __future__ import annotations

import asyncio
import ssl
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from rune.errors import NodeFailure
from rune.nodes.io.smtp import Parameters, compose, server
from rune.testing.mocks import MemoryBlob
from tests.support.io_nodes import put_blob
from tests.support.smtp_server import MAIL, SmtpServer, send_mail
from tests.unit.nodes.runner import error, output

HEADERS = {
    "from",
    "to",
    "subject",
    "date",
    "message-id",
    "content-type",
    "content-transfer-encoding",
    "mime-version",
}


def test_mail_is_delivered_with_headers_and_parts() -> None:
    sink = SmtpServer()
    mail = {
        "from": "Rune Ü <rune@example.com>",
        "to": ["Ada <ada@example.com>", "bob@example.com, carl@Bücher.example"],
        "cc": "dora@example.com",
        "bcc": "eve@example.com",
        "subject": "Grüße",
        "body": "Zeile 1\n.\nZeile 3 ü",
        "html": "<p>Hallo</p>",
    }

    result = output(send_mail(sink, mail))

    visible_recipients = [
        "ada@example.com",
        "bob@example.com",
        "carl@xn--bcher-kva.example",
        "dora@example.com",
    ]
    assert result["accepted"] == sink.recipients == [*visible_recipients, "eve@example.com"]
    assert (result["sent"], result["rejected"]) == (True, [])
    assert sink.mail["Subject"] == "Grüße"
    assert sink.mail["From"] == "Rune Ü <rune@example.com>"
    assert sink.mail["Message-ID"] == result["message_id"]
    assert b"eve@" not in sink.raw[0]
    plain, html = sink.mail.iter_parts()
    assert isinstance(plain, EmailMessage)
    assert plain.get_content().splitlines() == ["Zeile 1", "..", "Zeile 3 ü"]  # SMTP doubles a leading dot
    assert html.get_content_type() == "text/html"


def test_body_may_be_html_or_json() -> None:
    page, data = SmtpServer(), SmtpServer()
    send_mail(page, {**MAIL, "body": "<p>x</p>", "html": True})
    send_mail(data, {**MAIL, "body": {"a": 1}, "subject": 5})

    assert page.mail.get_content_type() == "text/html"
    assert '"a": 1' in data.mail.get_content()
    assert data.mail["Subject"] == "5"


def test_message_id_depends_on_idempotency_key() -> None:
    first, repeated, other, none = (
        output(send_mail(SmtpServer(), key=each))["message_id"] for each in ("k", "k", "l", "")
    )

    assert first == repeated
    assert len({first, other, none}) == 3
    assert first.endswith("@example.com>")


INJECTIONS = [
    "x\r\nBcc: victim@example.com",
    "x\nBcc: victim@example.com",
    "x\rBcc: victim@example.com",
    "x\r\n\r\nBody",
    "x\u2028Bcc: victim@example.com",
    "x\x85Bcc: victim@example.com",
    "x\x0bBcc: v@example.com\x0c\x00",
    "=?utf-8?q?x=0d=0aBcc:_victim@example.com?=",
    "x" * 2000 + "\r\nBcc: victim@example.com",
    "ü" * 500 + "\r\nBcc: victim@example.com",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_subject_cannot_inject_headers(text: str) -> None:
    sink = SmtpServer()
    output(send_mail(sink, {**MAIL, "subject": text}))

    assert sink.recipients == ["ada@example.com"]
    assert sorted(name.lower() for name in sink.mail) == sorted(HEADERS)
    assert sink.mail.get_content().strip() == "Text"


@pytest.mark.parametrize("field", ["from", "to", "cc", "bcc"])
@pytest.mark.parametrize(
    "text",
    [
        "a@example.com\r\nBcc: victim@example.com",
        "a@example.com\nRCPT TO:<victim@example.com>",
        '"x\r\nBcc: victim@example.com" <a@example.com>',
        "a@example.com>\r\nDATA",
        "=?utf-8?q?x=0d=0aBcc:_victim@example.com?= <a@example.com>",
        "=?utf-8?q?x=0b?= <a@example.com>",
        "=?utf-8?q?=3D=3Futf-8=3Fq=3Fx=3D0d=3D0aBcc:v=3F=3D?= <a@example.com>",
        "=?utf-8?q?a=0d=0a?=@example.com",
        "a@exam\x00ple.com",
        "nobody",
        "@example.com",
        "a@",
        "a@@example.com",
        "a b@example.com",
        "a@example.com b@example.com",
        "<a@example.com",
        "a@-example.com",
        "a@[127.0.0.1]",
        "a@example..com",
        "ü@example.com",
        '"a b"@example.com',
        "a" * 65 + "@example.com",
        "group: a@example.com",
        "a@example.com> SIZE=1",
    ],
)
def test_invalid_address_fails_before_connection(field: str, text: str) -> None:
    sink = SmtpServer()

    assert error(send_mail(sink, {**MAIL, field: text})).code == "SMTP_BAD_ADDRESS"
    assert sink.commands == []


@pytest.mark.parametrize(
    "change",
    [
        {"from": None},
        {"from": "a@example.com, b@example.com"},
        {"to": ""},
        {"to": []},
        {"to": [f"a{number}@example.com" for number in range(101)]},
    ],
    ids=["no sender", "two senders", "empty recipient", "no recipients", "too many recipients"],
)
def test_number_of_senders_and_recipients_is_limited(change: dict[str, Any]) -> None:
    assert error(send_mail(SmtpServer(), {**MAIL, **change})).code == "SMTP_BAD_ADDRESS"


def attachments_of(sink: SmtpServer) -> list[tuple[str | None, str, bytes]]:
    return [
        (part.get_filename(), part.get_content_type(), part.get_payload(decode=True))  # type: ignore[misc]
        for part in sink.mail.iter_attachments()
    ]


def test_attachments_from_text_data_and_blobs() -> None:
    sink, store = SmtpServer(), MemoryBlob()
    picture = put_blob(store, b"\x00\xff" * 5000, "bild ü.png", "image/png")
    attachments = [
        {"filename": "a.txt", "content": "Grüße\n.\nEnde"},
        {"filename": "b.json", "content": {"n": 1}},
        {"filename": "c.bin", "content": "AAEC", "encoding": "base64"},
        picture,
        {"filename": "d.png", "content": picture},
        {**picture, "filename": "e.bin", "content_type": "application/x-own"},
    ]

    output(send_mail(sink, {**MAIL, "html": "<p>x</p>", "attachments": attachments}, store=store))

    assert attachments_of(sink) == [
        ("a.txt", "text/plain", "Grüße\n.\nEnde".encode()),
        ("b.json", "application/json", b'{"n":1}'),
        ("c.bin", "application/octet-stream", b"\x00\x01\x02"),
        ("bild ü.png", "image/png", b"\x00\xff" * 5000),
        ("d.png", "image/png", b"\x00\xff" * 5000),
        ("e.bin", "application/x-own", b"\x00\xff" * 5000),
    ]
    assert sink.mail.get_body(("html",)) is not None
    assert sink.mail.get_body(("plain",)) is not None


@pytest.mark.parametrize(
    "kind", ["message/rfc822", "multipart/mixed", "text/html\r\nEvil: 1", "nonsense", ""]
)
def test_attachment_content_type_cannot_change_structure(kind: str) -> None:
    sink = SmtpServer()
    attachment = {"filename": "a", "content": "Subject: x\r\n\r\ny", "content_type": kind}

    output(send_mail(sink, {**MAIL, "attachments": [attachment]}))

    ((_, content_type, data),) = attachments_of(sink)
    assert content_type in ("application/octet-stream", "text/plain")
    assert data == b"Subject: x\r\n\r\ny"
    assert (sink.mail["Evil"], sink.mail["Subject"]) == (None, "Hi")


@pytest.mark.parametrize(
    "name",
    ["a\r\nBcc: eve@example.com", "../../x", "=?utf-8?q?a=0d=0aBcc:_e@e.com?=", '"; x="', "\x00", "ü" * 300],
)
def test_attachment_name_cannot_inject_headers(name: str) -> None:
    sink = SmtpServer()

    output(send_mail(sink, {**MAIL, "attachments": [{"filename": name, "content": "x"}]}))

    ((shown, _, data),) = attachments_of(sink)
    assert data == b"x"
    assert not set(shown or "") & set("/\\\r\n\0")
    assert (sink.mail["Bcc"], sink.recipients) == (None, ["ada@example.com"])


@pytest.mark.parametrize(
    ("attachment", "code"),
    [
        ({"filename": "a", "content": "x" * (25 * 1024 * 1024 + 1)}, "SMTP_TOO_LARGE"),
        ({"blob": f"x1/files/{'0' * 64}", "size": 26 * 1024 * 1024}, "SMTP_TOO_LARGE"),
        ({"blob": f"x1/files/{'0' * 64}", "size": 5}, "BLOB_UNKNOWN"),
        ({"blob": f"x2/files/{'0' * 64}", "size": 5}, "BLOB_UNKNOWN"),
        ({"blob": "x1/other", "size": 5}, "BAD_PARAMETER"),
        ({"blob": f"x1/files/{'0' * 64}", "size": 5, "content": "x"}, "BAD_PARAMETER"),
        ({"filename": "a", "content": "!", "encoding": "base64"}, "BAD_PARAMETER"),
    ],
    ids=range(7),
)
def test_invalid_attachment_fails_before_connection(attachment: dict[str, Any], code: str) -> None:
    sink = SmtpServer()

    assert error(send_mail(sink, {**MAIL, "attachments": [attachment]})).code == code
    assert sink.commands == []


@pytest.mark.parametrize(
    ("replies", "code"),
    [
        ({"HELLO": "554 no"}, "SMTP_CONNECT"),
        ({"HELLO": "nonsense"}, "SMTP_REJECTED"),
        ({"MAIL": "550 not you"}, "SMTP_REJECTED"),
        ({"ada@example.com": "550 unknown"}, "SMTP_REJECTED"),
        ({"DATA": "554 spam"}, "SMTP_REJECTED"),
        ({"EHLO": "500 what", "HELO": "500 what"}, "SMTP_REJECTED"),
    ],
)
def test_rejecting_server_fails_with_code(replies: dict[str, str], code: str) -> None:
    assert error(send_mail(SmtpServer(replies))).code == code


def test_partly_rejected_recipients_are_listed() -> None:
    mail = {**MAIL, "to": "ada@example.com, bob@example.com"}

    result = output(send_mail(SmtpServer({"bob@example.com": "550 unknown"}), mail))

    assert result["accepted"] == ["ada@example.com"]
    assert result["rejected"] == [{"address": "bob@example.com", "code": 550, "message": "unknown"}]


def test_failed_login_hides_password() -> None:
    found = error(send_mail(SmtpServer({"AUTH": "535 no"}), url="smtp://me:hunter2@127.0.0.1:PORT"))

    assert found.code == "SMTP_AUTH"
    assert "hunter2" not in found.message


def test_missing_and_unreachable_server_fail() -> None:
    assert error(send_mail(SmtpServer(), url="")).code == "SMTP_NO_SERVER"
    assert error(send_mail(SmtpServer(), url="http://127.0.0.1:PORT")).code == "SMTP_NO_SERVER"
    assert error(send_mail(SmtpServer(), url="smtp://127.0.0.1:1")).code == "SMTP_CONNECT"


def test_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.nodes.io.smtp.DELIVERY_TIMEOUT_S", 0.1)

    class Silent(SmtpServer):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

    assert error(send_mail(Silent())).code == "SMTP_TIMEOUT"


@pytest.mark.parametrize(
    ("url", "security", "port"),
    [
        ("smtp://127.0.0.1", "none", 25),
        ("smtp://localhost:2525", "none", 2525),
        ("smtp://[::1]", "none", 25),
        ("smtp://mail.example.com", "starttls", 587),
        ("smtp://127.0.0.1.example.com", "starttls", 587),
        ("smtp+starttls://127.0.0.1", "starttls", 587),
        ("smtps://mail.example.com", "tls", 465),
    ],
)
def test_url_selects_security_and_port(url: str, security: str, port: int) -> None:
    found = server(url)

    assert (found.security, found.port) == (security, port)


@pytest.mark.parametrize("scheme", ["smtps", "smtp+starttls"])
def test_mail_over_tls_requires_trusted_certificate(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    implicit = context if scheme == "smtps" else None
    url = f"{scheme}://me:secret@127.0.0.1:PORT"

    assert error(send_mail(SmtpServer(tls=context), url=url, tls=implicit)).code == "SMTP_CONNECT"

    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    sink = SmtpServer(tls=context)
    assert output(send_mail(sink, url=url, tls=implicit))["sent"] is True
    assert sink.secure


def test_password_is_not_sent_without_tls() -> None:
    sink = SmtpServer()

    assert error(send_mail(sink, url="smtp+starttls://me:secret@127.0.0.1:PORT")).code == "SMTP_CONNECT"
    assert not any("AUTH" in line for line in sink.commands)


ODD_TEXT = st.text(
    st.sampled_from(list('a@e.,;:<>()[]"\\ \r\n\t=?utf-8q0dä_\x85\u2028')), max_size=40
) | st.text(max_size=20)


@given(ODD_TEXT, ODD_TEXT, ODD_TEXT)
def test_no_text_can_inject_header(subject: str, name: str, body: str) -> None:
    parameters = Parameters(
        from_=f"{name} <rune@example.com>", to=[f"{name} <ada@example.com>"], subject=subject, body=body
    )
    try:
        mail = compose(parameters, key="k", now=0)
    except NodeFailure:
        return

    head = mail.raw.split(b"\r\n\r\n")[0].decode("ascii").split("\r\n")
    assert sorted(line.partition(":")[0].lower() for line in head if line[0] not in " \t") == sorted(HEADERS)
    assert mail.sender == "rune@example.com"
    assert "rune@example.com" not in mail.recipients
