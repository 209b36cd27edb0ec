"""The handlers of the guide send the mail and call the webhook that the guide promises, against real servers."""

from __future__ import annotations

import email
import email.policy
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from rune.build import Workflow
from tests.lint.tree import ROOT
from tests.support.api_server import RunningServer, run
from tests.support.documents import document, node
from tests.support.io_nodes import http_server, tcp_server
from tests.support.smtp_server import SmtpServer
from tests.support.waiting import until

GUIDE = ROOT / "docs/guides/operate/tell-people.md"
PUBLIC = "https://rune.example.com"


def guide_document(name: str, **replaced: str) -> dict[str, Any]:
    """Return a document of the guide."""
    found = re.search(
        rf"^```yaml file={name}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    text = found[1]
    for old, new in replaced.items():
        assert ADDRESSES[old] in text
        text = text.replace(ADDRESSES[old], new)
    made: dict[str, Any] = Workflow.load(text).to_dict()
    return made


ADDRESSES = {"webhook": "https://events.example.com"}


class Webhook:
    """A server that keeps the requests that it gets."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, Any]]] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(
            (request.path, request.headers.get("Authorization", ""), json.loads(await request.read()))
        )
        return web.Response(status=202)


@asynccontextmanager
async def servers() -> AsyncIterator[tuple[SmtpServer, int, Webhook, int]]:
    mail, webhook = SmtpServer(), Webhook()
    async with tcp_server(mail.handle) as mail_port, http_server(webhook.handle) as webhook_port:
        yield mail, mail_port, webhook, webhook_port


def watched(id: str, *nodes: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Return a workflow of an input and at most one node behind it."""
    edges = [f"in>{each['id']}" for each in nodes]
    return document([node("in", "input"), *nodes], *edges, id=id, settings=settings)


def texts(mail: SmtpServer) -> dict[str, str]:
    """Return the bodies of the mails by subject."""
    found = [
        email.message_from_bytes(each.removesuffix(b".\r\n"), policy=email.policy.SMTP) for each in mail.raw
    ]
    bodies = {str(each["Subject"]): each.get_payload(decode=True) for each in found}
    return {subject: body.decode() for subject, body in bodies.items() if isinstance(body, bytes)}


def test_handlers_of_the_guide_tell_people(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        async with servers() as (mail, mail_port, webhook, webhook_port):
            client = server.client
            sender = {
                "host": "127.0.0.1",
                "port": mail_port,
                "security": "none",
                "username": "rune",
                "password": "geheim-4711",
            }
            await client.add_credential("mail", "smtp", sender, insecure=True, grants=["handler:*"])
            await client.add_credential(
                "alerts",
                "bearer",
                {"token": "token-4711"},
                hosts=["127.0.0.1"],
                insecure=True,
                grants=["handler:*"],
            )
            await server.deploy(
                guide_document("mail-ops.yaml"),
                guide_document("page-ops.yaml", webhook=f"http://127.0.0.1:{webhook_port}"),
            )
            for each in ("mail-ops", "page-ops"):
                stop = node("stop", "fail", {"message": "no stock for {{ $trigger.n }}", "code": "NO_STOCK"})
                slow = node("slow", "wait", {"resume": "signal", "name": "go"})
                await server.deploy(
                    watched(f"order-{each}", stop, on_failure=each),
                    watched(f"import-{each}", slow, expect_within=1, on_late=each),
                    watched(f"nightly-{each}", expect_every=1, on_missing=each),
                )
                await server.ended(f"order-{each}", {"n": 7})
                await client.start(f"import-{each}")
            kinds = {"order": "failure", "import": "late", "nightly": "missing"}
            subjects = {f"{workflow}-mail-ops: {kind}" for workflow, kind in kinds.items()}
            await until(lambda: texts(mail).keys() >= subjects, "a mail of each kind")
            sent = texts(mail)
            assert sent.keys() == subjects
            assert sent["order-mail-ops: failure"].startswith(
                "no stock for 7\r\n\r\nhttps://rune.example.com/exec"
            )
            assert "It is still running." in sent["import-mail-ops: late"]
            missing = sent["nightly-mail-ops: missing"]
            assert "no execution of `nightly-mail-ops` has completed since" in missing
            assert f"{PUBLIC}/workflows/nightly-mail-ops" in missing
            assert set(mail.recipients) == {"ops@example.com"}

            def called() -> dict[str, dict[str, Any]]:
                return {each["text"]: each for _, _, each in webhook.requests}

            paged = {
                "order-page-ops is halted": ("critical", "NO_STOCK"),
                "import-page-ops is running": ("warning", None),
                "nightly-page-ops is missing": ("critical", "MISSING"),
            }
            await until(lambda: called().keys() >= paged.keys(), "a call of each kind")
            assert {text: (each["severity"], each["code"]) for text, each in called().items()} == paged
            assert {(path, token) for path, token, _ in webhook.requests} == {
                ("/alerts", "Bearer token-4711")
            }
            keys = [each["dedup_key"] for _, _, each in webhook.requests]
            assert len(keys) == len(set(keys))
            handlers = {each.execution_id async for each in client.executions(workflow="page-ops")}
            assert set(keys) <= handlers

    run(tmp_path, work, public_url=PUBLIC, http_allow=("127.0.0.1",))
