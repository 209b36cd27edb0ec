"""An SMTP server for tests, and a run of the `smtp` node against it."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any

from rune.core.execution.outcome import Outcome
from rune.testing.mocks import MemoryBlob
from tests.support.io_nodes import KEY, local_resources, run_node, tcp_server

MAIL = {"from": "rune@example.com", "to": "ada@example.com", "subject": "Hi", "body": "Text"}


class SmtpServer:
    """An SMTP server that records its session. `replies` replaces responses by verb or by recipient."""

    def __init__(self, replies: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._replies = replies or {}
        self._tls = tls
        self.commands: list[str] = []
        self.recipients: list[str] = []
        self.raw: list[bytes] = []
        self.secure = False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.secure = writer.get_extra_info("ssl_object") is not None
        await self._reply(writer, self._replies.get("HELLO", "220 sink"))
        while line := (await reader.readline()).decode().strip():
            self.commands.append(line)
            verb = line.upper().partition(" ")[0]
            if verb == "RCPT":
                self.recipients.append(line.partition("<")[2].partition(">")[0])
                verb = self.recipients[-1]
            if verb in self._replies:
                await self._reply(writer, self._replies[verb])
            elif verb == "EHLO":
                more = "250-STARTTLS\r\n" if self._tls and not self.secure else ""
                await self._reply(writer, f"250-sink\r\n{more}250 AUTH PLAIN LOGIN")
            elif verb == "STARTTLS":
                await self._reply(writer, "220 go")
                await writer.start_tls(self._tls)  # type: ignore[arg-type]
                self.secure = True
            elif verb == "DATA":
                await self._reply(writer, "354 go on")
                self.raw.append(await reader.readuntil(b"\r\n.\r\n"))
                await self._reply(writer, "250 taken")
            elif verb == "QUIT":
                await self._reply(writer, "221 bye")
                return
            else:
                await self._reply(writer, "235 ok" if verb == "AUTH" else "250 ok")

    async def _reply(self, writer: asyncio.StreamWriter, text: str) -> None:
        writer.write(f"{text}\r\n".encode())
        await writer.drain()

    @property
    def mail(self) -> EmailMessage:
        (raw,) = self.raw
        found = email.message_from_bytes(raw.removesuffix(b".\r\n"), policy=email.policy.SMTP)
        assert isinstance(found, EmailMessage)
        return found


def send_mail(
    sink: SmtpServer,
    parameters: Mapping[str, Any] = MAIL,
    *,
    url: str = "smtp://127.0.0.1:PORT",
    tls: ssl.SSLContext | None = None,
    key: str = KEY,
    store: MemoryBlob | None = None,
) -> Outcome:
    """Run the `smtp` node against a server; PORT in `url` is replaced by its port."""

    async def scenario() -> Outcome:
        async with tcp_server(sink.handle, tls) as port:
            resources = local_resources(smtp_url=url.replace("PORT", str(port)))
            return await run_node("smtp", parameters, resources, key=key, store=store)

    return asyncio.run(scenario())
