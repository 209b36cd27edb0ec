"""`smtp` against real servers: what a mail becomes, and what cannot be made of it."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from rune.core.execution.outcome import Outcome
from rune.errors import NodeFailure
from rune.nodes.blobs import Blobs
from rune.nodes.io.smtp import Parameters, compose, server
from rune.testing.nodes import MemoryBlob
from tests.unit.nodes.io.calling import KEY, call, listening, local_world
from tests.unit.nodes.running import error, output

MAIL = {"from": "rune@example.com", "to": "ada@example.com", "subject": "Hi", "body": "Text"}
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


class Sink:
    """A mail server. `replies` are what it says instead, by verb or by recipient."""

    def __init__(self, replies: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._replies = replies or {}
        self._tls = tls
        self.said: list[str] = []
        self.recipients: list[str] = []
        self.raw: list[bytes] = []
        self.secure = False

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.secure = writer.get_extra_info("ssl_object") is not None
        await self._say(writer, self._replies.get("HELLO", "220 sink"))
        while line := (await reader.readline()).decode().strip():
            self.said.append(line)
            verb = line.upper().partition(" ")[0]
            if verb == "RCPT":
                self.recipients.append(line.partition("<")[2].partition(">")[0])
                verb = self.recipients[-1]
            if verb in self._replies:
                await self._say(writer, self._replies[verb])
            elif verb == "EHLO":
                more = "250-STARTTLS\r\n" if self._tls and not self.secure else ""
                await self._say(writer, f"250-sink\r\n{more}250 AUTH PLAIN LOGIN")
            elif verb == "STARTTLS":
                await self._say(writer, "220 go")
                await writer.start_tls(self._tls)  # type: ignore[arg-type]
                self.secure = True
            elif verb == "DATA":
                await self._say(writer, "354 go on")
                self.raw.append(await reader.readuntil(b"\r\n.\r\n"))
                await self._say(writer, "250 taken")
            elif verb == "QUIT":
                await self._say(writer, "221 bye")
                return
            else:
                await self._say(writer, "235 ok" if verb == "AUTH" else "250 ok")

    async def _say(self, writer: asyncio.StreamWriter, text: str) -> None:
        writer.write(f"{text}\r\n".encode())
        await writer.drain()

    @property
    def mail(self) -> EmailMessage:
        (raw,) = self.raw
        found = email.message_from_bytes(raw.removesuffix(b".\r\n"), policy=email.policy.SMTP)
        assert isinstance(found, EmailMessage)
        return found


def send(
    sink: Sink,
    parameters: Mapping[str, Any] = MAIL,
    *,
    url: str = "smtp://127.0.0.1:PORT",
    tls: ssl.SSLContext | None = None,
    key: str = KEY,
    store: MemoryBlob | None = None,
) -> Outcome:
    async def scenario() -> Outcome:
        async with listening(sink.talk, tls) as port:
            world = local_world(smtp_url=url.replace("PORT", str(port)))
            return await call("smtp", parameters, world, key=key, store=store)

    return asyncio.run(scenario())


def test_a_mail_arrives_as_it_was_meant() -> None:
    sink = Sink()
    mail = {
        "from": "Rune Ü <rune@example.com>",
        "to": ["Ada <ada@example.com>", "bob@example.com, carl@Bücher.example"],
        "cc": "dora@example.com",
        "bcc": "eve@example.com",
        "subject": "Grüße",
        "body": "Zeile 1\n.\nZeile 3 ü",
        "html": "<p>Hallo</p>",
    }

    made = output(send(sink, mail))

    everybody = ["ada@example.com", "bob@example.com", "carl@xn--bcher-kva.example", "dora@example.com"]
    assert made["accepted"] == sink.recipients == [*everybody, "eve@example.com"]
    assert (made["sent"], made["rejected"]) == (True, [])
    assert sink.mail["Subject"] == "Grüße"
    assert sink.mail["From"] == "Rune Ü <rune@example.com>"
    assert sink.mail["Message-ID"] == made["message_id"]
    assert b"eve@" not in sink.raw[0]
    plain, html = sink.mail.iter_parts()
    assert isinstance(plain, EmailMessage)
    assert plain.get_content().splitlines() == ["Zeile 1", "..", "Zeile 3 ü"]  # the dot is doubled on the way
    assert html.get_content_type() == "text/html"


def test_the_body_may_be_html_or_data() -> None:
    page, data = Sink(), Sink()
    send(page, {**MAIL, "body": "<p>x</p>", "html": True})
    send(data, {**MAIL, "body": {"a": 1}, "subject": 5})

    assert page.mail.get_content_type() == "text/html"
    assert '"a": 1' in data.mail.get_content()
    assert data.mail["Subject"] == "5"


def test_a_mail_sent_again_is_the_same_mail() -> None:
    first, again, other, none = (output(send(Sink(), key=each))["message_id"] for each in ("k", "k", "l", ""))

    assert first == again
    assert len({first, other, none}) == 3
    assert first.endswith("@example.com>")


EVIL = [
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


@pytest.mark.parametrize("text", EVIL)
def test_a_subject_is_one_header(text: str) -> None:
    sink = Sink()
    output(send(sink, {**MAIL, "subject": text}))

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
def test_what_is_no_address_is_refused(field: str, text: str) -> None:
    sink = Sink()

    assert error(send(sink, {**MAIL, field: text})).code == "SMTP_BAD_ADDRESS"
    assert sink.said == []


@pytest.mark.parametrize(
    "change",
    [
        {"from": None},
        {"from": "a@example.com, b@example.com"},
        {"to": ""},
        {"to": []},
        {"to": [f"a{number}@example.com" for number in range(101)]},
    ],
    ids=["no sender", "two senders", "nobody", "nobody at all", "everybody"],
)
def test_who_sends_and_who_receives_is_bounded(change: dict[str, Any]) -> None:
    assert error(send(Sink(), {**MAIL, **change})).code == "SMTP_BAD_ADDRESS"


def put(store: MemoryBlob, data: bytes, *about: str, execution: str = "x1") -> dict[str, Any]:
    return asyncio.run(Blobs(store, execution).put(data, *about))


def attached(sink: Sink) -> list[tuple[str | None, str, bytes]]:
    return [
        (part.get_filename(), part.get_content_type(), part.get_payload(decode=True))  # type: ignore[misc]
        for part in sink.mail.iter_attachments()
    ]


def test_attachments_come_from_text_data_and_blobs() -> None:
    sink, store = Sink(), MemoryBlob()
    picture = put(store, b"\x00\xff" * 5000, "bild ü.png", "image/png")
    attachments = [
        {"filename": "a.txt", "content": "Grüße\n.\nEnde"},
        {"filename": "b.json", "content": {"n": 1}},
        {"filename": "c.bin", "content": "AAEC", "encoding": "base64"},
        picture,
        {"filename": "d.png", "content": picture},
        {**picture, "filename": "e.bin", "content_type": "application/x-own"},
    ]

    output(send(sink, {**MAIL, "html": "<p>x</p>", "attachments": attachments}, store=store))

    assert attached(sink) == [
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
def test_an_attachment_is_never_a_part_of_the_mail_itself(kind: str) -> None:
    sink = Sink()
    attachment = {"filename": "a", "content": "Subject: x\r\n\r\ny", "content_type": kind}

    output(send(sink, {**MAIL, "attachments": [attachment]}))

    ((_, content_type, data),) = attached(sink)
    assert content_type in ("application/octet-stream", "text/plain")
    assert data == b"Subject: x\r\n\r\ny"
    assert (sink.mail["Evil"], sink.mail["Subject"]) == (None, "Hi")


@pytest.mark.parametrize(
    "name",
    ["a\r\nBcc: eve@example.com", "../../x", "=?utf-8?q?a=0d=0aBcc:_e@e.com?=", '"; x="', "\x00", "ü" * 300],
)
def test_no_name_of_a_file_breaks_out(name: str) -> None:
    sink = Sink()

    output(send(sink, {**MAIL, "attachments": [{"filename": name, "content": "x"}]}))

    ((shown, _, data),) = attached(sink)
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
def test_attachments_that_cannot_be_sent(attachment: dict[str, Any], code: str) -> None:
    sink = Sink()

    assert error(send(sink, {**MAIL, "attachments": [attachment]})).code == code
    assert sink.said == []


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
def test_a_server_that_says_no(replies: dict[str, str], code: str) -> None:
    assert error(send(Sink(replies))).code == code


def test_some_may_get_it_and_some_not() -> None:
    mail = {**MAIL, "to": "ada@example.com, bob@example.com"}

    made = output(send(Sink({"bob@example.com": "550 unknown"}), mail))

    assert made["accepted"] == ["ada@example.com"]
    assert made["rejected"] == [{"address": "bob@example.com", "code": 550, "message": "unknown"}]


def test_a_login_that_fails_shows_no_password() -> None:
    found = error(send(Sink({"AUTH": "535 no"}), url="smtp://me:hunter2@127.0.0.1:PORT"))

    assert found.code == "SMTP_AUTH"
    assert "hunter2" not in found.message


def test_no_server_and_nobody_there() -> None:
    assert error(send(Sink(), url="")).code == "SMTP_NO_SERVER"
    assert error(send(Sink(), url="http://127.0.0.1:PORT")).code == "SMTP_NO_SERVER"
    assert error(send(Sink(), url="smtp://127.0.0.1:1")).code == "SMTP_CONNECT"


def test_a_silent_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.nodes.io.smtp.DELIVERY_TIMEOUT_S", 0.1)

    class Silent(Sink):
        async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

    assert error(send(Silent())).code == "SMTP_TIMEOUT"


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
def test_tls_unless_it_is_this_machine(url: str, security: str, port: int) -> None:
    found = server(url)

    assert (found.security, found.port) == (security, port)


@pytest.mark.parametrize("scheme", ["smtps", "smtp+starttls"])
def test_mail_over_tls(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    implicit = context if scheme == "smtps" else None
    url = f"{scheme}://me:secret@127.0.0.1:PORT"

    assert error(send(Sink(tls=context), url=url, tls=implicit)).code == "SMTP_CONNECT"

    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    sink = Sink(tls=context)
    assert output(send(sink, url=url, tls=implicit))["sent"] is True
    assert sink.secure


def test_a_server_without_tls_gets_no_password() -> None:
    sink = Sink()

    assert error(send(sink, url="smtp+starttls://me:secret@127.0.0.1:PORT")).code == "SMTP_CONNECT"
    assert not any("AUTH" in line for line in sink.said)


ODD = st.text(st.sampled_from(list('a@e.,;:<>()[]"\\ \r\n\t=?utf-8q0dä_\x85\u2028')), max_size=40) | st.text(
    max_size=20
)


@given(ODD, ODD, ODD)
def test_no_text_makes_a_header(subject: str, name: str, body: str) -> None:
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
