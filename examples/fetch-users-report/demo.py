"""Run the example against a local web service and a local mail server.

python examples/fetch-users-report/demo.py
"""

from __future__ import annotations

import email
import email.policy
import json
import os
import pathlib
import socketserver
import subprocess
import sys
import tempfile
import threading
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ["Ada", "Bob", "Carl", "Dora", "Eve", "Finn", "Gina"]
PAGE = 3


class Shop(BaseHTTPRequestHandler):
    """Serves `/users`, three per page, and `/users/<id>/orders`. The first request for Bob's orders returns a 5xx."""

    protocol_version = "HTTP/1.1"
    busy: ClassVar[set[str]] = {"/users/1/orders"}

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path in self.busy:
            self.busy.discard(path)
            return self._answer(503, {"error": "busy"}, {"Retry-After": "0"})
        if path == "/users":
            return self._answer(200, _users(int(query.removeprefix("from=") or 0)))
        number = int(path.split("/")[2])
        return self._answer(200, [{"order": at, "total": 10.25 * (number + at)} for at in range(number)])

    def _answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: `rune run` prints the progress."""


def _users(first: int) -> dict[str, Any]:
    last = min(first + PAGE, len(NAMES))
    users = [{"id": number, "name": NAMES[number]} for number in range(first, last)]
    return {"users": users, "paging": {"next": f"/users?from={last}" if last < len(NAMES) else None}}


class Sink(socketserver.StreamRequestHandler):
    """A mail server that accepts every mail and stores it."""

    mails: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        self.wfile.write(b"220 sink\r\n")
        while line := self.rfile.readline():
            verb = line.strip().upper().partition(b" ")[0]
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                self.mails.append(b"".join(iter(self._line, b".\r\n")))
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            if verb == b"QUIT":
                return

    def _line(self) -> bytes:
        line = self.rfile.readline()
        return line[1:] if line.startswith(b"..") else line


def run(shop: str, sink: str) -> int:
    """Run `rune run` with both servers permitted."""
    with tempfile.TemporaryDirectory(prefix="rune-demo-") as home:
        environment = {
            **os.environ,
            "RUNE_HOME": os.environ.get("RUNE_HOME", home),
            "RUNE_HTTP_ALLOW": "127.0.0.1",
            "RUNE_SMTP_URL": sink,
        }
        given = json.dumps({"base_url": shop, "to": "Boss <boss@shop.example>"})
        command = [sys.executable, "-m", "rune.cli.main", "run", str(HERE), "--input", given]
        return subprocess.run(command, env=environment, check=False).returncode


def show(raw: bytes) -> None:
    """Return the mail as its reader sees it."""
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(mail, EmailMessage)
    for name in ("From", "To", "Subject"):
        print(f"{name}: {mail[name]}")
    body = mail.get_body(("plain",))
    print("\n" + (body.get_content() if body is not None else ""))
    for part in mail.iter_attachments():
        print(f"[{part.get_filename()}]\n{part.get_content()}")


def main() -> int:
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Shop) as shop,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Sink) as sink,
    ):
        for server in (shop, sink):
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
        code = run(f"http://127.0.0.1:{shop.server_address[1]}", f"smtp://127.0.0.1:{sink.server_address[1]}")
        for server in (shop, sink):
            server.shutdown()
    for raw in Sink.mails:
        print()
        show(raw)
    return code


if __name__ == "__main__":
    sys.exit(main())
