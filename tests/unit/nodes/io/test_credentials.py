"""Nodes with credentials: authentication, host binding, OAuth tokens and redaction."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import pytest
from aiohttp import web

from rune.core.execution.outcome import Outcome
from rune.errors import RuneError
from rune.nodes.redaction import SECRETS_IN_USE, Redactor
from rune.ports.credentials import Credential, CredentialUnreadableError, EncryptionKeyError
from rune.testing.mocks import MemoryBlob
from tests.support.io_nodes import HttpHandler, http_server, local_resources, tcp_server
from tests.support.smtp_server import MAIL, SmtpServer
from tests.unit.nodes.io.credential_store import (
    CANARY,
    NO_CREDENTIAL,
    TOKEN,
    FakeCredentialStore,
    credential,
    run_with_credential,
)
from tests.unit.nodes.runner import error, output


class RecordingServer:
    """An HTTP server that sends the given responses, then echoes, and records its requests."""

    def __init__(self, *answers: Callable[[web.Request], Awaitable[web.Response]]) -> None:
        self._answers = list(answers)
        self.requests: list[dict[str, str]] = []
        self.paths: list[str] = []

    async def __call__(self, request: web.Request) -> web.Response:
        self.requests.append({name.lower(): text for name, text in request.headers.items()})
        self.paths.append(request.raw_path)
        if self._answers:
            return await self._answers.pop(0)(request)
        return web.json_response({"headers": self.requests[-1], "path": request.raw_path})


def respond(
    status: int = 200, body: Any = None, **headers: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(
            body, status=status, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    return answer


def send_request(
    handler: HttpHandler,
    credentials: FakeCredentialStore,
    path: str = "/",
    reference: Mapping[str, Any] | None = None,
    store: MemoryBlob | None = None,
    **parameters: Any,
) -> Outcome:
    async def scenario() -> Outcome:
        resources = local_resources(credentials=credentials)
        try:
            async with http_server(handler) as port:
                url = f"http://127.0.0.1:{port}{path}"
                return await run_with_credential(
                    "http", {"url": url, **parameters}, resources, reference, store
                )
        finally:
            await resources.close()

    return asyncio.run(scenario())


def test_basic_credential_sets_authorization() -> None:
    server = RecordingServer()
    output(
        send_request(server, FakeCredentialStore(credential("basic", {"username": "mé", "password": CANARY})))
    )

    assert (
        server.requests[0]["authorization"] == "Basic " + base64.b64encode(f"mé:{CANARY}".encode()).decode()
    )


def test_bearer_header_and_api_key_set_headers() -> None:
    bearer, header, key = RecordingServer(), RecordingServer(), RecordingServer()
    send_request(bearer, FakeCredentialStore(credential("bearer", {"token": TOKEN})))
    send_request(header, FakeCredentialStore(credential("header", {"name": "X-Shop", "value": TOKEN})))
    send_request(key, FakeCredentialStore(credential("api_key", {"key": TOKEN})))

    assert bearer.requests[0]["authorization"] == f"Bearer {TOKEN}"
    assert header.requests[0]["x-shop"] == TOKEN
    assert key.requests[0]["x-api-key"] == TOKEN


def test_query_key_is_sent_to_every_page_and_redirect() -> None:
    next_page = respond(200, [1], Link='</two>; rel="next"')
    server = RecordingServer(next_page, respond(302, Location="/three?x=1"), respond(200, [2]))
    credentials = FakeCredentialStore(credential("api_key", {"key": CANARY, "name": "k", "place": "query"}))

    assert output(send_request(server, credentials, "/one?k=mine&y=2", follow_next=True))["body"] == [1, 2]
    encoded = "k=kanari-9%2Ff3%22%2B%C3%BC%20d0c7"
    assert server.paths == [f"/one?y=2&{encoded}", f"/two?{encoded}", f"/three?x=1&{encoded}"]


@pytest.mark.parametrize("insecure", [True, None])
def test_insecure_or_older_credential_is_sent_without_tls(insecure: bool | None) -> None:
    server = RecordingServer()
    send_request(server, FakeCredentialStore(credential("bearer", {"token": TOKEN}, insecure=insecure)))

    assert server.requests[0]["authorization"] == f"Bearer {TOKEN}"


def test_credential_is_not_sent_without_tls() -> None:
    server = RecordingServer()
    store = FakeCredentialStore(credential("bearer", {"token": TOKEN}, insecure=False))

    failure = error(send_request(server, store))

    assert failure.code == "CREDENTIAL_FORBIDDEN"
    assert "verified certificate" in failure.message
    assert server.requests == []


def test_credential_is_not_sent_with_unverified_certificate() -> None:
    resources = local_resources(
        credentials=FakeCredentialStore(credential("bearer", {"token": TOKEN}, insecure=False))
    )
    parameters = {"url": "https://127.0.0.1:9/", "ignore_ssl": True}

    assert (
        error(asyncio.run(run_with_credential("http", parameters, resources))).code == "CREDENTIAL_FORBIDDEN"
    )


def test_client_secret_is_not_sent_to_token_url_without_tls() -> None:
    server = RecordingServer()

    async def scenario() -> Outcome:
        async with http_server(server) as port:
            fields = {"token_url": f"http://127.0.0.1:{port}/", "client_id": "me", "client_secret": TOKEN}
            store = FakeCredentialStore(credential("oauth2", fields, insecure=False))
            return await run_with_credential(
                "http", {"url": "https://127.0.0.1:9/"}, local_resources(credentials=store)
            )

    assert error(asyncio.run(scenario())).code == "CREDENTIAL_FORBIDDEN"
    assert server.requests == []


@pytest.mark.parametrize("hosts", [("*",), ("127.0.0.1",)])
def test_any_host_is_spelled_out(hosts: tuple[str, ...]) -> None:
    server = RecordingServer()
    send_request(server, FakeCredentialStore(credential("bearer", {"token": TOKEN}, hosts=hosts)))

    assert len(server.requests) == 1


def test_credential_overrides_header_parameter() -> None:
    server = RecordingServer()
    send_request(
        server, FakeCredentialStore(credential("bearer", {"token": TOKEN})), headers={"Authorization": "mine"}
    )

    assert server.requests[0]["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("basic", {"username": "me", "password": TOKEN}),
        ("bearer", {"token": TOKEN}),
        ("header", {"name": "X-Shop", "value": TOKEN}),
        ("api_key", {"key": TOKEN, "name": "X-Ordinary"}),
        ("api_key", {"key": TOKEN, "name": "k", "place": "query"}),
    ],
)
def test_credential_is_not_sent_to_other_origin(type: str, values: dict[str, Any]) -> None:
    other = RecordingServer()

    async def scenario() -> Outcome:
        resources = local_resources(credentials=FakeCredentialStore(credential(type, values)))
        async with http_server(other) as there:
            first = RecordingServer(respond(302, Location=f"http://127.0.0.1:{there}/away"))
            async with http_server(first) as here:
                outcome = await run_with_credential("http", {"url": f"http://127.0.0.1:{here}/"}, resources)
        await resources.close()
        return outcome

    output(asyncio.run(scenario()))
    shown = json.dumps(other.requests) + other.paths[0]
    assert TOKEN not in shown
    assert base64.b64encode(f"me:{TOKEN}".encode()).decode() not in shown


def test_redirect_with_credential_to_other_origin_fails() -> None:
    async def away(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": f"http://127.0.0.1:9/?{request.query_string}"})

    credentials = FakeCredentialStore(credential("api_key", {"key": CANARY, "name": "k", "place": "query"}))

    found = error(send_request(RecordingServer(away), credentials))
    assert (found.code, "kanari" in found.message) == ("HTTP_BLOCKED", False)  # the secret contains a space
    credentials = FakeCredentialStore(
        credential("api_key", {"key": f"{TOKEN}/+", "name": "k", "place": "query"})
    )
    found = error(send_request(RecordingServer(away), credentials))
    assert (found.code, "kanari" in found.message) == ("HTTP_REDIRECT", False)


@pytest.mark.parametrize(
    ("hosts", "allowed"),
    [
        (("127.0.0.1",), True),
        (("shop.example", "127.0.0.1"), True),
        (("shop.example",), False),
        (("*.0.0.1",), True),
        (("*.127.0.0.1",), False),
        ((), True),
    ],
)
def test_bound_credential_is_sent_to_its_hosts_only(hosts: tuple[str, ...], allowed: bool) -> None:
    server = RecordingServer()
    outcome = send_request(server, FakeCredentialStore(credential("bearer", {"token": TOKEN}, hosts=hosts)))

    if allowed:
        output(outcome)
    else:
        assert error(outcome).code == "CREDENTIAL_FORBIDDEN"
        assert server.requests == []


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("shop.example", True),
        ("SHOP.example.", True),
        ("api.shop.example", False),
        ("a.b.example", True),
        ("x.a.b.example", True),
        ("b.example", False),
        ("evilb.example", False),
        ("shop.example.evil", False),
    ],
)
def test_hosts_match_names_and_subdomains(host: str, fits: bool) -> None:
    bound = credential("bearer", {"token": TOKEN}, hosts=("shop.example", "*.b.example"))

    assert bound.fits(host) is fits


BEARER = credential("bearer", {"token": TOKEN})


@pytest.mark.parametrize(
    ("credentials", "reference", "code"),
    [
        (FakeCredentialStore(), {"name": "shop"}, "CREDENTIAL_MISSING"),
        (FakeCredentialStore(BEARER), {"name": "shopp"}, "CREDENTIAL_MISSING"),
        (FakeCredentialStore(BEARER), {"id": "shop"}, "CREDENTIAL_MISSING"),
        (FakeCredentialStore(BEARER), {"name": BEARER.id}, "CREDENTIAL_MISSING"),
        (FakeCredentialStore(BEARER), {"name": "other", "id": BEARER.id}, "CREDENTIAL_MISSING"),
        (FakeCredentialStore(BEARER), {"name": "shop", "type": "basic"}, "CREDENTIAL_FORBIDDEN"),
        (
            FakeCredentialStore(credential("smtp", {"host": "x", "password": TOKEN})),
            {"name": "shop"},
            "CREDENTIAL_FORBIDDEN",
        ),
        (FakeCredentialStore(credential("custom", {"a": TOKEN})), {"name": "shop"}, "CREDENTIAL_FORBIDDEN"),
        (
            FakeCredentialStore(error=CredentialUnreadableError("altered")),
            {"name": "shop"},
            "CREDENTIAL_UNREADABLE",
        ),
        (FakeCredentialStore(error=EncryptionKeyError("no key")), {"name": "shop"}, "CREDENTIAL_UNREADABLE"),
    ],
)
def test_unusable_credential_fails_before_request(
    credentials: FakeCredentialStore, reference: dict[str, Any], code: str
) -> None:
    server = RecordingServer()

    assert error(send_request(server, credentials, reference=reference)).code == code
    assert server.requests == []


def test_reference_by_id_and_type_is_resolved() -> None:
    for reference in ({"id": BEARER.id}, {"name": "shop", "id": BEARER.id, "type": "bearer"}):
        output(send_request(RecordingServer(), FakeCredentialStore(BEARER), reference=reference))


def test_credential_is_resolved_once_per_run() -> None:
    credentials = FakeCredentialStore(BEARER)
    send_request(RecordingServer(respond(200, [1], Link='</two>; rel="next"')), credentials, follow_next=True)
    assert credentials.resolve_count == 1
    send_request(RecordingServer(), credentials)
    assert credentials.resolve_count == 2


def is_redacted(value: Any, *secrets: str) -> bool:
    text = msgspec.json.encode(value).decode()
    return not any(Redactor([each]).finds(text) for each in secrets)


def test_echoed_credential_is_redacted() -> None:
    credentials = FakeCredentialStore(credential("basic", {"username": "me", "password": CANARY}))

    async def echo(request: web.Request) -> web.Response:
        body = f"you sent {request.headers['Authorization']}, that is {CANARY}, or {json.dumps(CANARY)}"
        return web.Response(text=body, headers={"X-Echo": request.headers["Authorization"]}, status=418)

    outcome = send_request(echo, credentials)
    assert output(outcome)["headers"]["x-echo"] == "Basic ***"
    failed = send_request(echo, credentials, raise_on_status="4xx")
    assert error(failed).code == "HTTP_STATUS"
    assert is_redacted(outcome, CANARY, f"me:{CANARY}")
    assert is_redacted(failed, CANARY, f"me:{CANARY}")


def test_credential_in_blob_is_redacted() -> None:
    store = MemoryBlob()

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=b"\0\xff" + request.headers["Authorization"].encode() + b"\0")

    output(send_request(echo, FakeCredentialStore(BEARER), store=store, response="blob"))
    assert TOKEN.encode() not in repr(vars(store)).encode()
    assert "***" in repr(vars(store))


def test_secret_is_released_after_run() -> None:
    send_request(RecordingServer(), FakeCredentialStore(BEARER))

    assert SECRETS_IN_USE.text(TOKEN) == TOKEN


def oauth(**more: Any) -> Credential:
    return credential("oauth2", {"token_url": "URL", "client_id": "me", "client_secret": CANARY, **more})


def run_with_oauth(
    tokens: RecordingServer,
    api: RecordingServer,
    times: int = 1,
    *,
    credential: Credential | None = None,
    **parameters: Any,
) -> list[Outcome]:
    """Run `http` nodes with an OAuth credential whose tokens come from the first server."""

    async def scenario() -> list[Outcome]:
        async with http_server(tokens) as id, http_server(api) as port:
            url = f"http://127.0.0.1:{id}/token"
            credentials = FakeCredentialStore(with_token_url(credential or oauth(), url))
            resources = local_resources(credentials=credentials)
            request = {"url": f"http://127.0.0.1:{port}/", **parameters}
            outcomes = [await run_with_credential("http", request, resources) for _ in range(times)]
            await resources.close()
            return outcomes

    return asyncio.run(scenario())


def with_token_url(found: Credential, url: str) -> Credential:
    return msgspec.structs.replace(found, fields=msgspec.structs.replace(found.fields, token_url=url))


def token_response(
    token: str, seconds: Any = 3600, **more: Any
) -> Callable[[web.Request], Awaitable[web.Response]]:
    return respond(200, {"access_token": token, "token_type": "bearer", "expires_in": seconds, **more})


def test_oauth_token_is_reused() -> None:
    tokens, api = RecordingServer(token_response("token-number-1")), RecordingServer()
    for outcome in run_with_oauth(tokens, api, 3):
        assert output(outcome)["body"]["headers"]["authorization"] == "Bearer ***"

    assert [each["authorization"] for each in api.requests] == ["Bearer token-number-1"] * 3
    assert len(tokens.requests) == 1


@pytest.mark.parametrize(("seconds", "fetched"), [(0, 3), ("3600", 1), (61, 1)])
def test_expired_oauth_token_is_fetched_again(seconds: Any, fetched: int) -> None:
    tokens = RecordingServer(*(token_response(f"token-number-{number}", seconds) for number in range(3)))
    run_with_oauth(tokens, RecordingServer(), 3)

    assert len(tokens.requests) == fetched


def test_oauth_client_is_sent_in_header_or_body() -> None:
    forms: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        forms.append({name: str(text) for name, text in (await request.post()).items()})
        return web.json_response({"access_token": "token-number-1"})

    header, body = RecordingServer(answer), RecordingServer(answer)
    run_with_oauth(header, RecordingServer(), credential=oauth(scope="a b", audience="shop"))
    run_with_oauth(body, RecordingServer(), credential=oauth(send_as="body"))

    assert forms[0] == {"grant_type": "client_credentials", "scope": "a b", "audience": "shop"}
    assert header.requests[0]["authorization"].startswith("Basic ")
    assert forms[1] == {"grant_type": "client_credentials", "client_id": "me", "client_secret": CANARY}
    assert "authorization" not in body.requests[0]


def test_rejected_token_is_renewed_once() -> None:
    tokens = RecordingServer(token_response("token-number-1"), token_response("token-number-2"))
    api = RecordingServer(respond(401), respond(200, "fine"))

    (outcome,) = run_with_oauth(tokens, api, method="POST", body={"a": 1})
    assert output(outcome)["body"] == "fine"
    assert [each["authorization"][-1] for each in api.requests] == ["1", "2"]
    assert api.requests[0]["idempotency-key"] == api.requests[1]["idempotency-key"]


def test_rejected_token_is_not_renewed_twice() -> None:
    tokens = RecordingServer(
        token_response("token-number-1"), token_response("token-number-2"), token_response("token-number-3")
    )
    api = RecordingServer(*[respond(401)] * 3)

    (outcome,) = run_with_oauth(tokens, api)
    assert output(outcome)["status"] == 401
    assert (len(api.requests), len(tokens.requests)) == (2, 2)


def test_401_does_not_retry_static_credential() -> None:
    server = RecordingServer(respond(401), respond(200))

    assert output(send_request(server, FakeCredentialStore(BEARER)))["status"] == 401
    assert len(server.requests) == 1


def test_concurrent_runs_fetch_one_token() -> None:
    tokens, api = RecordingServer(token_response("token-number-1")), RecordingServer()

    async def scenario() -> None:
        async with http_server(tokens) as id, http_server(api) as port:
            resources = local_resources(
                credentials=FakeCredentialStore(with_token_url(oauth(), f"http://127.0.0.1:{id}/"))
            )
            request = {"url": f"http://127.0.0.1:{port}/"}
            await asyncio.gather(*(run_with_credential("http", request, resources) for _ in range(20)))
            await resources.close()

    asyncio.run(scenario())
    assert (len(tokens.requests), len(api.requests)) == (1, 20)


def test_rotated_credential_fetches_new_token() -> None:
    tokens, api = (
        RecordingServer(token_response("token-number-1"), token_response("token-number-2")),
        RecordingServer(),
    )

    async def scenario() -> None:
        async with http_server(tokens) as id, http_server(api) as port:
            credentials = FakeCredentialStore(with_token_url(oauth(), f"http://127.0.0.1:{id}/"))
            resources = local_resources(credentials=credentials)
            for version in (1, 2):
                credentials.credentials[0] = msgspec.structs.replace(
                    credentials.credentials[0], version=version
                )
                await run_with_credential("http", {"url": f"http://127.0.0.1:{port}/"}, resources)
            await resources.close()

    asyncio.run(scenario())
    assert [each["authorization"][-1] for each in api.requests] == ["1", "2"]


@pytest.mark.parametrize(
    "answer",
    [
        respond(401, {"error": "invalid_client", "error_description": CANARY}),
        respond(500, CANARY),
        respond(302, Location="/elsewhere"),
        respond(200, {"token": "x"}),
        respond(200, [CANARY]),
        respond(200, {"access_token": ""}),
        respond(200, {"access_token": "a\r\nX-Evil: 1"}),
        respond(200, {"access_token": "x", "token_type": "mac"}),
        respond(200, {"access_token": "x" * 300_000}),
    ],
    ids=range(9),
)
def test_failed_token_request_fails_node_without_secret(
    answer: Callable[[web.Request], Awaitable[web.Response]],
) -> None:
    api = RecordingServer()
    (outcome,) = run_with_oauth(RecordingServer(answer), api)

    assert error(outcome).code in ("CREDENTIAL_TOKEN", "HTTP_TOO_LARGE")
    assert api.requests == []
    assert is_redacted(outcome, CANARY)


def test_token_url_is_checked_by_address_guard() -> None:
    found = credential(
        "oauth2",
        {"token_url": "http://169.254.169.254/latest", "client_id": "me", "client_secret": TOKEN},
    )

    assert error(send_request(RecordingServer(), FakeCredentialStore(found))).code == "HTTP_BLOCKED"


def send_with_credential(
    sink: SmtpServer, parameters: Mapping[str, Any] = MAIL, hosts: Any = (), **values: Any
) -> Outcome:
    async def scenario() -> Outcome:
        async with tcp_server(sink.handle) as port:
            fields = {"host": "127.0.0.1", "port": port, "security": "none", **values}
            resources = local_resources(
                credentials=FakeCredentialStore(credential("smtp", fields, hosts=hosts))
            )
            return await run_with_credential("smtp", parameters, resources)

    return asyncio.run(scenario())


def test_smtp_credential_sets_server_login_and_sender() -> None:
    sink = SmtpServer()
    login = {"username": "me", "password": CANARY, "sender": "Shop <shop@example.com>"}
    output(send_with_credential(sink, {**MAIL, "from": None}, **login))

    plain = base64.b64encode(f"\0me\0{CANARY}".encode()).decode()
    assert f"AUTH PLAIN {plain}" in sink.commands
    assert sink.mail["From"] == "Shop <shop@example.com>"


def test_rejected_smtp_login_hides_secret() -> None:
    plain = base64.b64encode(f"\0me\0{CANARY}".encode()).decode()
    for reply in (f"535 no, {plain} is wrong", f"554 {CANARY}"):
        outcome = send_with_credential(
            SmtpServer({"AUTH": reply, "MAIL": f"550 {CANARY}"}), username="me", password=CANARY
        )
        assert error(outcome).code in ("SMTP_AUTH", "SMTP_REJECTED")
        assert is_redacted(outcome, CANARY, f"\0me\0{CANARY}")


def test_smtp_credential_bound_to_other_host_is_forbidden() -> None:
    sink = SmtpServer()

    assert error(send_with_credential(sink, hosts=("mail.example",))).code == "CREDENTIAL_FORBIDDEN"
    assert sink.commands == []


@pytest.mark.parametrize("insecure", [False, None])
def test_unencrypted_remote_smtp_login_is_forbidden(insecure: bool | None) -> None:
    fields = {"host": "mail.example", "security": "none", "username": "me", "password": CANARY}
    resources = local_resources(
        credentials=FakeCredentialStore(credential("smtp", fields, insecure=insecure))
    )

    assert error(asyncio.run(run_with_credential("smtp", MAIL, resources))).code == "CREDENTIAL_FORBIDDEN"


def test_smtp_credential_with_starttls_requires_tls() -> None:
    sink = SmtpServer()
    outcome = send_with_credential(sink, security="starttls", username="me", password=CANARY)

    assert error(outcome).code == "SMTP_CONNECT"
    assert not any("AUTH" in line for line in sink.commands)


def test_bearer_credential_is_forbidden_for_smtp() -> None:
    resources = local_resources(credentials=FakeCredentialStore(BEARER), smtp_url="smtp://127.0.0.1:1")

    assert error(asyncio.run(run_with_credential("smtp", MAIL, resources))).code == "CREDENTIAL_FORBIDDEN"


def test_password_of_smtp_url_is_redacted() -> None:
    async def scenario() -> Outcome:
        async with tcp_server(SmtpServer({"MAIL": "550 hunter2hunter2 again?"}).handle) as port:
            resources = local_resources(smtp_url=f"smtp://me:hunter2hunter2@127.0.0.1:{port}")
            return await run_with_credential("smtp", MAIL, resources, NO_CREDENTIAL)

    found = error(asyncio.run(scenario()))
    assert (found.code, "hunter2" in found.message) == ("SMTP_REJECTED", False)


def test_unknown_store_error_is_unreadable_credential() -> None:
    assert (
        error(send_request(RecordingServer(), FakeCredentialStore(error=RuneError("odd")))).code
        == "CREDENTIAL_UNREADABLE"
    )
