"""Credentials in use: what is sent, to whom, what is refused, and what is left behind."""

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
from rune.testing.nodes import MemoryBlob
from tests.unit.nodes.io.calling import Handler, listening, local_world, serving
from tests.unit.nodes.io.secrets import CANARY, NONE, TOKEN, Drawer, credential, use
from tests.unit.nodes.io.test_smtp import MAIL, Sink
from tests.unit.nodes.running import error, output


class Server:
    """Answers from a list, or echoes, and remembers what came."""

    def __init__(self, *answers: Callable[[web.Request], Awaitable[web.Response]]) -> None:
        self._answers = list(answers)
        self.seen: list[dict[str, str]] = []
        self.paths: list[str] = []

    async def __call__(self, request: web.Request) -> web.Response:
        self.seen.append({name.lower(): text for name, text in request.headers.items()})
        self.paths.append(request.raw_path)
        if self._answers:
            return await self._answers.pop(0)(request)
        return web.json_response({"headers": self.seen[-1], "path": request.raw_path})


def saying(
    status: int = 200, body: Any = None, **headers: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(
            body, status=status, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    return answer


def ask(
    handler: Handler,
    drawer: Drawer,
    path: str = "/",
    reference: Mapping[str, Any] | None = None,
    store: MemoryBlob | None = None,
    **parameters: Any,
) -> Outcome:
    async def scenario() -> Outcome:
        world = local_world(credentials=drawer)
        try:
            async with serving(handler) as port:
                url = f"http://127.0.0.1:{port}{path}"
                return await use("http", {"url": url, **parameters}, world, reference, store)
        finally:
            await world.close()

    return asyncio.run(scenario())


def test_basic() -> None:
    server = Server()
    output(ask(server, Drawer(credential("basic", {"username": "mé", "password": CANARY}))))

    assert server.seen[0]["authorization"] == "Basic " + base64.b64encode(f"mé:{CANARY}".encode()).decode()


def test_bearer_and_header_and_key() -> None:
    bearer, header, key = Server(), Server(), Server()
    ask(bearer, Drawer(credential("bearer", {"token": TOKEN})))
    ask(header, Drawer(credential("header", {"name": "X-Shop", "value": TOKEN})))
    ask(key, Drawer(credential("api_key", {"key": TOKEN})))

    assert bearer.seen[0]["authorization"] == f"Bearer {TOKEN}"
    assert header.seen[0]["x-shop"] == TOKEN
    assert key.seen[0]["x-api-key"] == TOKEN


def test_a_key_in_the_query_goes_along_to_every_page() -> None:
    next_page = saying(200, [1], Link='</two>; rel="next"')
    server = Server(next_page, saying(302, Location="/three?x=1"), saying(200, [2]))
    drawer = Drawer(credential("api_key", {"key": CANARY, "name": "k", "place": "query"}))

    assert output(ask(server, drawer, "/one?k=mine&y=2", follow_next=True))["body"] == [1, 2]
    encoded = "k=kanari-9%2Ff3%22%2B%C3%BC%20d0c7"
    assert server.paths == [f"/one?y=2&{encoded}", f"/two?{encoded}", f"/three?x=1&{encoded}"]


def test_the_credential_wins_over_the_parameters() -> None:
    server = Server()
    ask(server, Drawer(credential("bearer", {"token": TOKEN})), headers={"Authorization": "mine"})

    assert server.seen[0]["authorization"] == f"Bearer {TOKEN}"


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
def test_nothing_follows_a_redirect_to_another_origin(type: str, values: dict[str, Any]) -> None:
    other = Server()

    async def scenario() -> Outcome:
        world = local_world(credentials=Drawer(credential(type, values)))
        async with serving(other) as there:
            first = Server(saying(302, Location=f"http://127.0.0.1:{there}/away"))
            async with serving(first) as here:
                outcome = await use("http", {"url": f"http://127.0.0.1:{here}/"}, world)
        await world.close()
        return outcome

    output(asyncio.run(scenario()))
    shown = json.dumps(other.seen) + other.paths[0]
    assert TOKEN not in shown
    assert base64.b64encode(f"me:{TOKEN}".encode()).decode() not in shown


def test_a_redirect_that_repeats_the_credential_is_not_followed_elsewhere() -> None:
    async def away(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": f"http://127.0.0.1:9/?{request.query_string}"})

    drawer = Drawer(credential("api_key", {"key": CANARY, "name": "k", "place": "query"}))

    found = error(ask(Server(away), drawer))
    assert (found.code, "kanari" in found.message) == ("HTTP_BLOCKED", False)  # it holds a space
    drawer = Drawer(credential("api_key", {"key": f"{TOKEN}/+", "name": "k", "place": "query"}))
    found = error(ask(Server(away), drawer))
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
def test_a_bound_credential_is_sent_to_its_hosts_alone(hosts: tuple[str, ...], allowed: bool) -> None:
    server = Server()
    outcome = ask(server, Drawer(credential("bearer", {"token": TOKEN}, hosts=hosts)))

    if allowed:
        output(outcome)
    else:
        assert error(outcome).code == "CREDENTIAL_FORBIDDEN"
        assert server.seen == []


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
def test_hosts_are_names_or_whole_domains(host: str, fits: bool) -> None:
    bound = credential("bearer", {"token": TOKEN}, hosts=("shop.example", "*.b.example"))

    assert bound.fits(host) is fits


FOUND = credential("bearer", {"token": TOKEN})


@pytest.mark.parametrize(
    ("drawer", "reference", "code"),
    [
        (Drawer(), {"name": "shop"}, "CREDENTIAL_MISSING"),
        (Drawer(FOUND), {"name": "shopp"}, "CREDENTIAL_MISSING"),
        (Drawer(FOUND), {"id": "shop"}, "CREDENTIAL_MISSING"),
        (Drawer(FOUND), {"name": FOUND.id}, "CREDENTIAL_MISSING"),
        (Drawer(FOUND), {"name": "other", "id": FOUND.id}, "CREDENTIAL_MISSING"),
        (Drawer(FOUND), {"name": "shop", "type": "basic"}, "CREDENTIAL_FORBIDDEN"),
        (
            Drawer(credential("smtp", {"host": "x", "password": TOKEN})),
            {"name": "shop"},
            "CREDENTIAL_FORBIDDEN",
        ),
        (Drawer(credential("custom", {"a": TOKEN})), {"name": "shop"}, "CREDENTIAL_FORBIDDEN"),
        (Drawer(error=CredentialUnreadableError("altered")), {"name": "shop"}, "CREDENTIAL_UNREADABLE"),
        (Drawer(error=EncryptionKeyError("no key")), {"name": "shop"}, "CREDENTIAL_UNREADABLE"),
    ],
)
def test_what_cannot_be_used_fails_the_node_before_anything_is_sent(
    drawer: Drawer, reference: dict[str, Any], code: str
) -> None:
    server = Server()

    assert error(ask(server, drawer, reference=reference)).code == code
    assert server.seen == []


def test_by_id_and_with_the_right_type() -> None:
    for reference in ({"id": FOUND.id}, {"name": "shop", "id": FOUND.id, "type": "bearer"}):
        output(ask(Server(), Drawer(FOUND), reference=reference))


def test_it_is_resolved_anew_for_every_call_and_once_in_a_call() -> None:
    drawer = Drawer(FOUND)
    ask(Server(saying(200, [1], Link='</two>; rel="next"')), drawer, follow_next=True)
    assert drawer.asked == 1
    ask(Server(), drawer)
    assert drawer.asked == 2


def clean(told: Any, *secrets: str) -> bool:
    text = msgspec.json.encode(told).decode()
    return not any(Redactor([each]).finds(text) for each in secrets)


def test_what_a_server_echoes_is_hidden() -> None:
    drawer = Drawer(credential("basic", {"username": "me", "password": CANARY}))

    async def echo(request: web.Request) -> web.Response:
        body = f"you sent {request.headers['Authorization']}, that is {CANARY}, or {json.dumps(CANARY)}"
        return web.Response(text=body, headers={"X-Echo": request.headers["Authorization"]}, status=418)

    outcome = ask(echo, drawer)
    assert output(outcome)["headers"]["x-echo"] == "Basic ***"
    failed = ask(echo, drawer, raise_on_status="4xx")
    assert error(failed).code == "HTTP_STATUS"
    assert clean(outcome, CANARY, f"me:{CANARY}")
    assert clean(failed, CANARY, f"me:{CANARY}")


def test_bytes_that_are_kept_are_clean_too() -> None:
    store = MemoryBlob()

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=b"\0\xff" + request.headers["Authorization"].encode() + b"\0")

    output(ask(echo, Drawer(FOUND), store=store, response="blob"))
    assert TOKEN.encode() not in repr(vars(store)).encode()
    assert "***" in repr(vars(store))


def test_nothing_is_in_use_after_a_call() -> None:
    ask(Server(), Drawer(FOUND))

    assert SECRETS_IN_USE.text(TOKEN) == TOKEN


def oauth(**more: Any) -> Credential:
    return credential("oauth2", {"token_url": "URL", "client_id": "me", "client_secret": CANARY, **more})


def with_tokens(
    tokens: Server,
    api: Server,
    times: int = 1,
    *,
    drawer: Callable[[str], Drawer] | None = None,
    **parameters: Any,
) -> list[Outcome]:
    """Calls of one worker with an OAuth credential whose tokens come from the first server."""

    async def scenario() -> list[Outcome]:
        async with serving(tokens) as id, serving(api) as port:
            url = f"http://127.0.0.1:{id}/token"
            found = drawer(url) if drawer else Drawer(_at(oauth(), url))
            world = local_world(credentials=found)
            asked = {"url": f"http://127.0.0.1:{port}/", **parameters}
            outcomes = [await use("http", asked, world) for _ in range(times)]
            await world.close()
            return outcomes

    return asyncio.run(scenario())


def _at(found: Credential, url: str) -> Credential:
    return msgspec.structs.replace(found, fields=msgspec.structs.replace(found.fields, token_url=url))


def grant(token: str, seconds: Any = 3600, **more: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
    return saying(200, {"access_token": token, "token_type": "bearer", "expires_in": seconds, **more})


def test_a_token_is_fetched_and_used_again() -> None:
    tokens, api = Server(grant("token-number-1")), Server()
    for outcome in with_tokens(tokens, api, 3):
        assert output(outcome)["body"]["headers"]["authorization"] == "Bearer ***"

    assert [each["authorization"] for each in api.seen] == ["Bearer token-number-1"] * 3
    assert len(tokens.seen) == 1


@pytest.mark.parametrize(("seconds", "fetched"), [(0, 3), ("3600", 1), (61, 1)])
def test_a_token_is_not_used_when_it_has_expired(seconds: Any, fetched: int) -> None:
    tokens = Server(*(grant(f"token-number-{number}", seconds) for number in range(3)))
    with_tokens(tokens, Server(), 3)

    assert len(tokens.seen) == fetched


def test_how_the_client_is_told() -> None:
    forms: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        forms.append({name: str(text) for name, text in (await request.post()).items()})
        return web.json_response({"access_token": "token-number-1"})

    header, body = Server(answer), Server(answer)
    with_tokens(header, Server(), drawer=lambda url: Drawer(_at(oauth(scope="a b", audience="shop"), url)))
    with_tokens(body, Server(), drawer=lambda url: Drawer(_at(oauth(send_as="body"), url)))

    assert forms[0] == {"grant_type": "client_credentials", "scope": "a b", "audience": "shop"}
    assert header.seen[0]["authorization"].startswith("Basic ")
    assert forms[1] == {"grant_type": "client_credentials", "client_id": "me", "client_secret": CANARY}
    assert "authorization" not in body.seen[0]


def test_a_refused_token_is_renewed_once() -> None:
    tokens = Server(grant("token-number-1"), grant("token-number-2"))
    api = Server(saying(401), saying(200, "fine"))

    (outcome,) = with_tokens(tokens, api, method="POST", body={"a": 1})
    assert output(outcome)["body"] == "fine"
    assert [each["authorization"][-1] for each in api.seen] == ["1", "2"]
    assert api.seen[0]["idempotency-key"] == api.seen[1]["idempotency-key"]


def test_and_not_twice() -> None:
    tokens = Server(grant("token-number-1"), grant("token-number-2"), grant("token-number-3"))
    api = Server(*[saying(401)] * 3)

    (outcome,) = with_tokens(tokens, api)
    assert output(outcome)["status"] == 401
    assert (len(api.seen), len(tokens.seen)) == (2, 2)


def test_other_credentials_are_not_renewed() -> None:
    server = Server(saying(401), saying(200))

    assert output(ask(server, Drawer(FOUND)))["status"] == 401
    assert len(server.seen) == 1


def test_many_calls_at_once_fetch_one_token() -> None:
    tokens, api = Server(grant("token-number-1")), Server()

    async def scenario() -> None:
        async with serving(tokens) as id, serving(api) as port:
            world = local_world(credentials=Drawer(_at(oauth(), f"http://127.0.0.1:{id}/")))
            asked = {"url": f"http://127.0.0.1:{port}/"}
            await asyncio.gather(*(use("http", asked, world) for _ in range(20)))
            await world.close()

    asyncio.run(scenario())
    assert (len(tokens.seen), len(api.seen)) == (1, 20)


def test_a_rotated_credential_gets_a_new_token() -> None:
    tokens, api = Server(grant("token-number-1"), grant("token-number-2")), Server()

    async def scenario() -> None:
        async with serving(tokens) as id, serving(api) as port:
            drawer = Drawer(_at(oauth(), f"http://127.0.0.1:{id}/"))
            world = local_world(credentials=drawer)
            for version in (1, 2):
                drawer.credentials[0] = msgspec.structs.replace(drawer.credentials[0], version=version)
                await use("http", {"url": f"http://127.0.0.1:{port}/"}, world)
            await world.close()

    asyncio.run(scenario())
    assert [each["authorization"][-1] for each in api.seen] == ["1", "2"]


@pytest.mark.parametrize(
    "answer",
    [
        saying(401, {"error": "invalid_client", "error_description": CANARY}),
        saying(500, CANARY),
        saying(302, Location="/elsewhere"),
        saying(200, {"token": "x"}),
        saying(200, [CANARY]),
        saying(200, {"access_token": ""}),
        saying(200, {"access_token": "a\r\nX-Evil: 1"}),
        saying(200, {"access_token": "x", "token_type": "mac"}),
        saying(200, {"access_token": "x" * 300_000}),
    ],
    ids=range(9),
)
def test_without_a_token_the_node_fails_and_shows_nothing(
    answer: Callable[[web.Request], Awaitable[web.Response]],
) -> None:
    api = Server()
    (outcome,) = with_tokens(Server(answer), api)

    assert error(outcome).code in ("CREDENTIAL_TOKEN", "HTTP_TOO_LARGE")
    assert api.seen == []
    assert clean(outcome, CANARY)


def test_tokens_are_fetched_through_the_guard() -> None:
    found = credential(
        "oauth2",
        {"token_url": "http://169.254.169.254/latest", "client_id": "me", "client_secret": TOKEN},
    )

    assert error(ask(Server(), Drawer(found))).code == "HTTP_BLOCKED"


def mail(sink: Sink, parameters: Mapping[str, Any] = MAIL, hosts: Any = (), **values: Any) -> Outcome:
    async def scenario() -> Outcome:
        async with listening(sink.talk) as port:
            fields = {"host": "127.0.0.1", "port": port, "security": "none", **values}
            world = local_world(credentials=Drawer(credential("smtp", fields, hosts=hosts)))
            return await use("smtp", parameters, world)

    return asyncio.run(scenario())


def test_a_mail_through_the_server_of_a_credential() -> None:
    sink = Sink()
    login = {"username": "me", "password": CANARY, "sender": "Shop <shop@example.com>"}
    output(mail(sink, {**MAIL, "from": None}, **login))

    plain = base64.b64encode(f"\0me\0{CANARY}".encode()).decode()
    assert f"AUTH PLAIN {plain}" in sink.said
    assert sink.mail["From"] == "Shop <shop@example.com>"


def test_a_login_that_is_refused_shows_nothing() -> None:
    plain = base64.b64encode(f"\0me\0{CANARY}".encode()).decode()
    for reply in (f"535 no, {plain} is wrong", f"554 {CANARY}"):
        outcome = mail(Sink({"AUTH": reply, "MAIL": f"550 {CANARY}"}), username="me", password=CANARY)
        assert error(outcome).code in ("SMTP_AUTH", "SMTP_REJECTED")
        assert clean(outcome, CANARY, f"\0me\0{CANARY}")


def test_a_mail_server_that_the_credential_is_not_for() -> None:
    sink = Sink()

    assert error(mail(sink, hosts=("mail.example",))).code == "CREDENTIAL_FORBIDDEN"
    assert sink.said == []


def test_a_password_is_not_sent_in_the_clear_across_the_network() -> None:
    fields = {"host": "mail.example", "security": "none", "username": "me", "password": CANARY}
    world = local_world(credentials=Drawer(credential("smtp", fields)))

    assert error(asyncio.run(use("smtp", MAIL, world))).code == "CREDENTIAL_FORBIDDEN"


def test_tls_is_spoken_unless_the_credential_says_otherwise() -> None:
    sink = Sink()
    outcome = mail(sink, security="starttls", username="me", password=CANARY)

    assert error(outcome).code == "SMTP_CONNECT"
    assert not any("AUTH" in line for line in sink.said)


def test_a_credential_for_requests_sends_no_mail() -> None:
    world = local_world(credentials=Drawer(FOUND), smtp_url="smtp://127.0.0.1:1")

    assert error(asyncio.run(use("smtp", MAIL, world))).code == "CREDENTIAL_FORBIDDEN"


def test_the_password_of_the_settings_is_hidden_too() -> None:
    async def scenario() -> Outcome:
        async with listening(Sink({"MAIL": "550 hunter2hunter2 again?"}).talk) as port:
            world = local_world(smtp_url=f"smtp://me:hunter2hunter2@127.0.0.1:{port}")
            return await use("smtp", MAIL, world, NONE)

    found = error(asyncio.run(scenario()))
    assert (found.code, "hunter2" in found.message) == ("SMTP_REJECTED", False)


def test_an_error_that_is_not_ours_is_unreadable() -> None:
    assert error(ask(Server(), Drawer(error=RuneError("odd")))).code == "CREDENTIAL_UNREADABLE"
