"""Webhooks over HTTP: payloads, signatures, responses and deduplication."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest

from rune.core.webhooks import sign
from tests.support.api_server import DEADLINE, RunningServer, run, running_server
from tests.support.trigger_workflows import webhook_workflow
from tests.support.whole import WHOLE

DELIVERIES = 5_000 if WHOLE else 100
CONCURRENT = 10
BODY = b'{"order": 7}'


async def trigger(server: RunningServer, workflow: str = "orders") -> dict[str, Any]:
    """Return the only trigger of a workflow."""
    (found,) = (await server.get("/triggers", params={"workflow": workflow}))["triggers"]
    assert isinstance(found, dict)
    return found


async def hook_path(server: RunningServer, workflow: str = "orders") -> str:
    return str((await trigger(server, workflow))["webhook"]["path"])


async def count(server: RunningServer, workflow: str = "orders") -> int:
    """Return the number of executions."""
    return len([each async for each in server.client.executions(workflow=workflow, page=1_000)])


async def secret_of(server: RunningServer, workflow: str = "orders") -> str:
    """Rotate the secret of the webhook; return it."""
    found = await trigger(server, workflow)
    rotated = await server.post(f"/triggers/{found['id']}/rotate", {"secret": True})
    return str(rotated["new_secret"])


def signed(secret: str, body: bytes = BODY, *, ago: int = 0, delivery: str | None = None) -> dict[str, str]:
    """Return the headers of a request signed `ago` seconds before now."""
    moment = str(int(time.time()) - ago)
    return {
        "Content-Type": "application/json",
        "X-Rune-Timestamp": moment,
        "X-Rune-Signature": sign(secret, moment, body),
        **({} if delivery is None else {"X-Delivery-Id": delivery}),
    }


async def send(server: RunningServer, path: str, body: bytes = BODY, **headers: str) -> httpx.Response:
    given = {
        "Content-Type": "application/json",
        **{key.replace("_", "-"): text for key, text in headers.items()},
    }
    return await server.http.post(path, content=body, headers=given)


def test_request_becomes_input_of_execution(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow())
        path = await hook_path(server)
        assert len(path.removeprefix("/hooks/")) >= 32
        answer = await server.http.post(
            path,
            params=[("a", "1"), ("b", "2"), ("b", "3")],
            content=b'{"order": 7, "big": [1.50, {}]}',
            headers={
                "Content-Type": "application/json; charset=utf-8",
                "X-Shop": "one",
                "Authorization": "Bearer hidden",
                "Cookie": "hidden",
                "X-Api-Key": "hidden",
                "Origin": "https://shop.example",
                "Host": "hooks.example",
            },
        )
        assert answer.status_code == 202, answer.text
        execution = answer.json()["execution_id"]
        ended = await server.client.wait(execution, DEADLINE)
        assert (ended.status, ended.workflow_id) == ("completed", "orders")
        payload = await server.get(f"/executions/{execution}/input")
        assert {key: payload[key] for key in ("method", "query", "body")} == {
            "method": "POST",
            "query": {"a": "1", "b": ["2", "3"]},
            "body": {"order": 7, "big": [1.5, {}]},
        }
        assert payload["headers"]["x-shop"] == "one"
        assert "hidden" not in json.dumps(payload)
        assert await server.client.output(execution) == {"order": 7, "big": [1.5, {}]}

    run(tmp_path, work)


KINDS: list[tuple[str, bytes, Any]] = [
    ("text/plain", "grün".encode(), "grün"),
    ("application/x-www-form-urlencoded", b"a=1&b=2&b=3", {"a": "1", "b": ["2", "3"]}),
    ("application/octet-stream", b"\xff\x00", {"base64": "/wA="}),
    ("application/json", b"", None),
    ("application/cloudevents+json", b"[1]", [1]),
]


def test_body_is_decoded_by_content_type(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow())
        path = await hook_path(server)
        for kind, body, expected in KINDS:
            answer = await server.http.post(path, content=body, headers={"Content-Type": kind})
            assert answer.status_code == 202
            payload = await server.get(f"/executions/{answer.json()['execution_id']}/input")
            assert payload["body"] == expected

    run(tmp_path, work)


def without_id(response: httpx.Response) -> str:
    """Return the text of a rejection without the id of its request, in which all responses differ."""
    return response.text.replace(response.headers["x-request-id"], "ID")


def test_invalid_requests_start_nothing(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(max_bytes=1_000))
        path = await hook_path(server)
        unknown = [
            await server.http.post(f"/hooks/{each}", content=b"{}") for each in ("x", "a" * 33, "%00", "ü")
        ]
        assert {(each.status_code, without_id(each)) for each in unknown} == {(404, without_id(unknown[0]))}
        put = await server.http.put(path, content=BODY)
        assert (put.status_code, put.headers["allow"]) == (405, "POST")
        assert (await send(server, path, b"x" * 1_001)).status_code == 413
        assert (await send(server, path, b'{"a": ')).status_code == 422
        assert (await send(server, path, b'{"a": 1, "a": 2}')).status_code == 422
        assert (await send(server, path, b"[" * 200 + b"]" * 200)).status_code == 422
        assert (await send(server, path, X_Delivery_Id="x" * 256)).status_code == 422
        id = (await trigger(server))["id"]
        assert not (await server.post(f"/triggers/{id}/disable"))["enabled"]
        off = await server.http.post(path, content=BODY)
        assert (off.status_code, without_id(off)) == (404, without_id(unknown[0]))
        assert await count(server) == 0
        assert (await server.post(f"/triggers/{id}/enable"))["enabled"]
        assert (await send(server, path)).status_code == 202

    run(tmp_path, work)


def test_path_survives_new_versions_until_rotated_or_deleted(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow())
        path = await hook_path(server)
        await server.deploy({**webhook_workflow(respond="result"), "name": "second"})
        assert await hook_path(server) == path
        assert (await trigger(server))["version"] == 2
        rotated = await server.post(f"/triggers/{(await trigger(server))['id']}/rotate")
        assert rotated["new_secret"] is None
        assert (await send(server, path)).status_code == 404
        path = rotated["webhook"]["path"]
        assert (await send(server, path)).status_code == 200
        await server.deploy(webhook_workflow(path="orders-in"))
        assert await hook_path(server) == "/hooks/orders-in"
        refused = await server.post(f"/triggers/{rotated['id']}/rotate", status=409)
        assert refused["code"] == "NOT_ROTATED"
        taken = await server.http.post(
            "/api/v1/workflows", json=webhook_workflow(id="others", path="orders-in")
        )
        assert (taken.status_code, taken.json()["code"]) == (409, "PATH_TAKEN")
        assert (await server.get("/workflows/others", status=404))["code"] == "UNKNOWN_WORKFLOW"
        await server.client.delete("orders")
        assert (await send(server, "/hooks/orders-in")).status_code == 404
        assert (await server.get("/triggers"))["triggers"] == []

    run(tmp_path, work)


def test_webhook_follows_stable_alias(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(path="first"))
        await server.client.set_alias("orders", "stable", 1)
        await server.deploy(webhook_workflow(path="second"))
        assert (await trigger(server))["version"] == 1
        assert (await send(server, "/hooks/second")).status_code == 404
        await server.client.set_alias("orders", "stable", 2)
        assert (await trigger(server))["version"] == 2
        assert (await send(server, "/hooks/first")).status_code == 404
        assert (await send(server, "/hooks/second")).status_code == 202

    run(tmp_path, work)


def test_invalid_signature_starts_nothing(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(auth="hmac"))
        path = await hook_path(server)
        assert (await trigger(server))["webhook"]["secret"] == "missing"
        assert (await server.http.post(path, content=BODY, headers=signed(""))).status_code == 401
        secret = await secret_of(server)
        good = signed(secret)
        moment, signature = good["X-Rune-Timestamp"], good["X-Rune-Signature"]
        later = str(int(moment) + 1)
        bad: list[dict[str, str]] = [
            {},
            signed("other"),
            signed(secret, b'{"order": 8}'),
            signed(secret, ago=301),
            signed(secret, ago=-310),
            {**good, "X-Rune-Timestamp": later},
            {**good, "X-Rune-Timestamp": ""},
            {**good, "X-Rune-Timestamp": "٣"},
            {**good, "X-Rune-Signature": signature[:-1]},
            {**good, "X-Rune-Signature": signature[:-1] + ("0" if signature[-1] != "0" else "1")},
            {**good, "X-Rune-Signature": signature.removeprefix("sha256=")},
            {**good, "X-Rune-Signature": f"{signature}, {signature}"},
            {key: text for key, text in good.items() if key != "X-Rune-Signature"},
            {key: text for key, text in good.items() if key != "X-Rune-Timestamp"},
        ]
        answers = []
        for each in bad:
            raw = [(key.encode(), text.encode()) for key, text in each.items()]
            answers.append(await server.http.post(path, content=BODY, headers=raw))
        assert {each.status_code for each in answers} == {401}
        assert len({without_id(each) for each in answers}) == 1
        assert (await server.http.post(path, content=BODY[:-1], headers=good)).status_code == 401
        assert await count(server) == 0
        assert (await server.http.post(path, content=BODY, headers=good)).status_code == 202
        again = await secret_of(server)
        assert again != secret
        assert (await server.http.post(path, content=BODY, headers=signed(secret, ago=1))).status_code == 401
        assert (await server.http.post(path, content=BODY, headers=signed(again))).status_code == 202
        assert await count(server) == 2

    run(tmp_path, work)


@pytest.mark.parametrize("name", ["X-Delivery-Id", "X-Rune-Timestamp", "X-Rune-Signature"])
def test_header_of_a_delivery_that_is_sent_twice_is_refused(name: str, tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(auth="hmac"))
        headers = signed(await secret_of(server), delivery="d1")
        for second in (headers[name], "other"):
            twice = [*headers.items(), (name, second)]
            answer = await server.http.post(await hook_path(server), content=BODY, headers=twice)
            assert answer.status_code == 400, answer.text
            assert f"2 `{name.lower()}` headers" in answer.json()["detail"].lower()
        assert await count(server) == 0

    run(tmp_path, work)


def test_bound_of_a_parameter_is_written_with_all_its_digits(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        problem = await server.post("/workflows", webhook_workflow(max_bytes=2**40), 422)
        assert "at most 33,554,432" in problem["problems"][0]["message"]

    run(tmp_path, work)


def test_signed_request_starts_once_under_any_delivery_id(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(auth="hmac"))
        path, secret = await hook_path(server), await secret_of(server)
        plain = signed(secret, ago=2)
        assert (await server.http.post(path, content=BODY, headers=plain)).status_code == 202
        assert (await server.http.post(path, content=BODY, headers=plain)).status_code == 401
        renamed = {**plain, "X-Delivery-Id": "other"}
        assert (await server.http.post(path, content=BODY, headers=renamed)).status_code == 401
        named = signed(secret, ago=1, delivery="d1")
        first = await server.http.post(path, content=BODY, headers=named)
        second = await server.http.post(path, content=BODY, headers=named)
        assert (first.status_code, second.status_code) == (202, 200)
        assert first.json()["execution_id"] == second.json()["execution_id"]
        assert second.json()["replayed"]
        other_id = {**named, "X-Delivery-Id": "d2"}
        assert (await server.http.post(path, content=BODY, headers=other_id)).status_code == 401
        # The same delivery id with a new signature is the same delivery.
        resigned = signed(secret, delivery="d1")
        third = await server.http.post(path, content=BODY, headers=resigned)
        assert third.json()["execution_id"] == first.json()["execution_id"]
        assert await count(server) == 2

    run(tmp_path, work)


def test_webhook_secret_may_be_a_credential(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        bounds: dict[str, Any] = {"hosts": ["*"], "grants": ["everyone"]}
        made: dict[str, Any] = {"name": "shop", "type": "custom", "values": {"secret": "s3cret"}, **bounds}
        await server.post("/credentials", made, 201)
        made = {"name": "door", "type": "header", "values": {"name": "X-Door", "value": "open"}, **bounds}
        await server.post("/credentials", made, 201)
        await server.deploy(webhook_workflow(auth="hmac", credentials="shop"))
        path = await hook_path(server)
        assert (await server.http.post(path, content=BODY, headers=signed("s3cret"))).status_code == 202
        await server.master.services.credentials.withdraw("shop", ("everyone",))
        body = b'{"order": 8}'
        answer = await server.http.post(path, content=body, headers=signed("s3cret", body))
        assert answer.status_code == 401
        await server.master.services.credentials.grant("shop", ("workflow:orders",))
        answer = await server.http.post(path, content=body, headers=signed("s3cret", body))
        assert answer.status_code == 202
        id = (await trigger(server))["id"]
        assert (await server.post(f"/triggers/{id}/rotate", {"secret": True}, 409))["code"] == "NOT_ROTATED"
        await server.deploy(webhook_workflow(id="doors", auth="header", credentials="door"))
        path = await hook_path(server, "doors")
        assert (await send(server, path)).status_code == 401
        assert (await send(server, path, X_Door="shut")).status_code == 401
        answer = await send(server, path, X_Door="open")
        assert answer.status_code == 202
        await server.deploy(webhook_workflow(id="bearers", auth="header"))
        path, secret = await hook_path(server, "bearers"), await secret_of(server, "bearers")
        assert (await send(server, path, Authorization="Bearer x")).status_code == 401
        assert (await send(server, path, Authorization=f"Bearer {secret}")).status_code == 202
        await server.client.delete("bearers")
        named = [each["name"] for each in (await server.get("/credentials"))["credentials"]]
        assert named == ["door", "shop"]

    run(tmp_path, work)


DOOR_SECRET = "open-sesame-4711"
PROOFS: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, str]]] = {
    "header": (
        {"type": "header", "values": {"name": "X-Door", "value": DOOR_SECRET}},
        {"X-Door": DOOR_SECRET},
        {},
    ),
    "query": (
        {"type": "api_key", "values": {"name": "Door", "key": DOOR_SECRET, "place": "query"}},
        {"Referer": f"https://shop.example/?Door={DOOR_SECRET}"},
        {"Door": DOOR_SECRET},
    ),
}


CREDENTIALS: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, str]]] = {
    **PROOFS,
    "bearer": (
        {"type": "bearer", "values": {"token": DOOR_SECRET}},
        {"Authorization": f"Bearer {DOOR_SECRET}"},
        {},
    ),
    "basic": (
        {"type": "basic", "values": {"username": "ada", "password": DOOR_SECRET}},
        {"Authorization": f"Basic {base64.b64encode(f'ada:{DOOR_SECRET}'.encode()).decode()}"},
        {},
    ),
}

ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": quote,
    "every character in percent": lambda text: "".join(f"%{ord(each):02x}" for each in text),
    "percent twice": lambda text: quote("".join(f"%{ord(each):02X}" for each in text)),
    "percent three times": lambda text: quote(quote("".join(f"%{ord(each):02X}" for each in text))),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of a pair": lambda text: base64.b64encode(f"ada:{text}".encode()).decode(),
    "base64 in percent": lambda text: quote(base64.b64encode(f"ada:{text}".encode()).decode(), safe=""),
    "URL-safe base64": lambda text: base64.urlsafe_b64encode(f"x?{text}".encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(),
    "JSON": lambda text: "".join(f"\\u{ord(each):04x}" for each in text),
    "HTML": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "upper case": str.upper,
}
"""How a proxy, a library or a logger in front of the server may repeat a secret."""

PLACES: dict[str, Callable[[str], tuple[dict[str, str], list[tuple[str, str]]]]] = {
    "header": lambda text: ({"X-Request-Origin": text}, []),
    "URL in a header": lambda text: ({"X-Original-URL": f"https://shop.example/?door={text}&n=1"}, []),
    "user in a header": lambda text: ({"Forwarded": f"for=ada:{text}@shop.example"}, []),
    "query": lambda text: ({}, [("page", text)]),
    "URL in the query": lambda text: ({}, [("back", f"/?door={text}&n=1")]),
    "name in the query": lambda text: ({}, [(text, "1")]),
}


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_secret_is_stored_in_no_encoding_from_no_place(kind: str, tmp_path: Path) -> None:
    credential, headers, query = CREDENTIALS[kind]

    async def work(server: RunningServer) -> None:
        bounds = {"hosts": ["*"], "grants": ["everyone"]}
        await server.post("/credentials", {"name": "door", **credential, **bounds}, 201)
        await server.deploy(webhook_workflow(auth="header", credentials="door"))
        path = await hook_path(server)
        for place, put in PLACES.items():
            for encoding, encode in ENCODINGS.items():
                more, parameters = put(encode(DOOR_SECRET))
                answer = await server.http.post(
                    path,
                    params=[*query.items(), *parameters, ("kept", "yes")],
                    headers={**headers, **more, "X-Kept": "yes"},
                )
                assert answer.status_code == 202, answer.text
                stored = await server.get(f"/executions/{answer.json()['execution_id']}/input")
                assert stored["headers"]["x-kept"] == stored["query"]["kept"] == "yes"
                assert not stored["headers"].keys() & {name.lower() for name in more}, (place, encoding)
                assert stored["query"] == {"kept": "yes"}, (place, encoding)

    run(tmp_path, work)


BODIES: dict[str, Callable[[str], tuple[str, Any]]] = {
    "value in JSON": lambda text: ("application/json", {"n": 1, "list": [{"seen": text}]}),
    "part of a text in JSON": lambda text: ("application/json", {"n": 1, "back": f"/?door={text}&n=1"}),
    "name in JSON": lambda text: ("application/json", {"n": 1, text: True}),
    "text": lambda text: ("text/plain", f"n=1 seen {text} again"),
    "form": lambda text: ("application/x-www-form-urlencoded", {"n": 1, "seen": text, "more": [text, "b"]}),
}
OTHER_SECRET = "another-value-0815"


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_secret_is_stored_in_no_encoding_of_no_body(kind: str, tmp_path: Path) -> None:
    """A text that is neither the secret nor encodes it is kept, in the same place and encoding."""
    credential, headers, query = CREDENTIALS[kind]

    async def work(server: RunningServer) -> None:
        bounds = {"hosts": ["*"], "grants": ["everyone"]}
        await server.post("/credentials", {"name": "door", **credential, **bounds}, 201)
        await server.deploy(webhook_workflow(auth="header", credentials="door"))
        path = await hook_path(server)

        async def stored(put: Callable[[str], tuple[str, Any]], text: str) -> Any:
            type, body = put(text)
            form = type.endswith("urlencoded")
            content = (
                urlencode(body, doseq=True) if form else body if isinstance(body, str) else json.dumps(body)
            )
            answer = await server.http.post(
                path, params=query, headers={**headers, "Content-Type": type}, content=content
            )
            assert answer.status_code == 202, answer.text
            return (await server.get(f"/executions/{answer.json()['execution_id']}/input"))["body"]

        for place, put in BODIES.items():
            for encoding, encode in ENCODINGS.items():
                body = json.dumps(await stored(put, encode(DOOR_SECRET)))
                assert encode(DOOR_SECRET) not in body, (place, encoding)
                assert json.dumps(encode(DOOR_SECRET))[1:-1] not in body, (place, encoding)
                kept = json.dumps(await stored(put, encode(OTHER_SECRET)))
                assert json.dumps(encode(OTHER_SECRET))[1:-1] in kept, (place, encoding)

    run(tmp_path, work)


def test_digits_of_numbers_survive_in_body_of_authenticated_request(tmp_path: Path) -> None:
    body = b'{"big": 9007199254740993, "exact": 1.10, "percent": "5 % off"}'

    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(auth="hmac"))
        headers = signed(await secret_of(server), body)
        answer = await server.http.post(await hook_path(server), content=body, headers=headers)
        shown = await server.http.get(f"/api/v1/executions/{answer.json()['execution_id']}/input")
        assert '"exact":1.10' in shown.text.replace(": ", ":")
        assert "9007199254740993" in shown.text

    run(tmp_path, work)


def test_binary_body_is_stored_without_secret(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        bounds = {"hosts": ["*"], "grants": ["everyone"]}
        credential, headers, _ = CREDENTIALS["header"]
        await server.post("/credentials", {"name": "door", **credential, **bounds}, 201)
        await server.deploy(webhook_workflow(auth="header", credentials="door"))
        for content in (b"\xff\x00rest", b"\xff" + DOOR_SECRET.encode() + b"\x00rest"):
            answer = await server.http.post(await hook_path(server), content=content, headers=headers)
            payload = await server.get(f"/executions/{answer.json()['execution_id']}/input")
            kept = base64.b64decode(payload["body"]["base64"])
            assert kept.startswith(b"\xff")
            assert kept.endswith(b"\x00rest")
            assert DOOR_SECRET.encode() not in kept

    run(tmp_path, work)


def files_with(folder: Path, texts: set[str]) -> list[str]:
    """Return the names of the files that hold one of the texts."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    return [each.name for each in files if any(text.encode() in each.read_bytes() for text in texts)]


SIGNATURE_COPIES: dict[str, Callable[[str], str]] = {
    "as sent": str,
    "digits": lambda text: text.rpartition("=")[2],
    "digits in upper case": lambda text: text.rpartition("=")[2].upper(),
    "bytes in base64": lambda text: base64.b64encode(bytes.fromhex(text.rpartition("=")[2])).decode(),
    "bytes in URL-safe base64": lambda text: base64.urlsafe_b64encode(
        bytes.fromhex(text.rpartition("=")[2])
    ).decode(),
    "percent": lambda text: "".join(f"%{ord(each):02x}" for each in text),
    "percent twice": lambda text: quote("".join(f"%{ord(each):02X}" for each in text)),
    "text in base64": lambda text: base64.b64encode(text.encode()).decode(),
}


@pytest.mark.parametrize("value", ["signature", "secret"])
def test_copies_of_signature_and_of_its_secret_are_not_stored(value: str, tmp_path: Path) -> None:
    """In another header, as the delivery id, in the query; the body is signed, so it cannot hold its signature."""

    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(auth="hmac"))
        path, secret = await hook_path(server), await secret_of(server)
        copies: dict[str, Callable[[str], str]] = {"as sent": str, "percent": quote}
        if value == "signature":
            copies = SIGNATURE_COPIES
        for number, encode in enumerate(copies.values()):
            body = json.dumps(
                {"n": number, **({"secret": encode(secret)} if value == "secret" else {})}
            ).encode()
            headers = signed(secret, body)
            copy = encode(headers["X-Rune-Signature"] if value == "signature" else secret)
            more = {"X-Request-Origin": copy, "X-Delivery-Id": f"{number} {copy}"[:255], "X-Kept": "yes"}
            params = {"page": copy, "kept": "yes"}
            for again in (False, True):
                answer = await server.http.post(
                    path, content=body, headers={**headers, **more}, params=params
                )
                assert answer.is_success, (number, again, answer.text)
                assert (answer.status_code, answer.json()["replayed"]) == (200 if again else 202, again)
            payload = await server.get(f"/executions/{answer.json()['execution_id']}/input")
            assert (payload["headers"]["x-kept"], payload["query"]) == ("yes", {"kept": "yes"})
            assert payload["body"]["n"] == number
            assert copy not in json.dumps(payload)
            digits = headers["X-Rune-Signature"].rpartition("=")[2]
            assert not files_with(tmp_path, {copy, digits, secret})

    run(tmp_path, work)


@pytest.mark.parametrize("place", PROOFS)
def test_proof_of_caller_is_not_stored_or_logged(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    credential, headers, query = PROOFS[place]

    async def work(server: RunningServer) -> None:
        await server.post(
            "/credentials", {"name": "door", "hosts": ["*"], "grants": ["workflow:orders"], **credential}, 201
        )
        workflow = webhook_workflow(auth="header", credentials="door")
        workflow["nodes"][1]["parameters"]["value"] = "{{ $trigger }}"
        await server.deploy(workflow)
        answer = await server.http.post(
            await hook_path(server),
            content=BODY,
            params={**query, "kept": "1"},
            headers={"Content-Type": "application/json", "X-Shop": "one", **headers},
        )
        assert answer.status_code == 202, answer.text
        execution = answer.json()["execution_id"]
        await server.client.wait(execution, DEADLINE)
        payload = await server.get(f"/executions/{execution}/input")
        assert (payload["headers"]["x-shop"], payload["query"]) == ("one", {"kept": "1"})
        events = [each async for each in server.client.watch(execution)]
        shown = [payload, await server.client.output(execution), str(events)]
        assert DOOR_SECRET not in json.dumps(shown)

    with caplog.at_level("DEBUG"):
        run(tmp_path, work)
    logged = [each.getMessage() for each in caplog.records if each.name.startswith(("rune", "uvicorn"))]
    assert logged
    assert DOOR_SECRET not in str(logged)
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert stored
    assert not [path.name for path in stored if DOOR_SECRET.encode() in path.read_bytes()]


def test_signature_is_not_part_of_payload(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(auth="hmac"))
        headers = signed(await secret_of(server))
        answer = await server.http.post(await hook_path(server), content=BODY, headers=headers)
        payload = await server.get(f"/executions/{answer.json()['execution_id']}/input")
        assert headers["X-Rune-Signature"] not in json.dumps(payload)
        assert payload["headers"]["x-rune-timestamp"] == headers["X-Rune-Timestamp"]

    run(tmp_path, work)


def test_large_form_is_decoded_in_linear_time(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow())
        path = await hook_path(server)
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await server.http.post(path, content=b"&".join([b"a=1"] * 10_000), headers=kind)
        assert answer.status_code == 202
        payload = await server.get(f"/executions/{answer.json()['execution_id']}/input")
        assert payload["body"] == {"a": ["1"] * 10_000}
        answer = await server.http.post(path, content=b"&".join([b"a=1"] * 30_000), headers=kind)
        assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")

    run(tmp_path, work)


def test_response_waits_for_result_up_to_limit(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow(respond="result", wait=DEADLINE))
        answer = await send(server, await hook_path(server), X_GitHub_Delivery="g1")
        assert (answer.status_code, answer.json()["status"], answer.json()["output"]) == (
            200,
            "completed",
            {"order": 7},
        )
        again = await send(server, await hook_path(server), X_GitHub_Delivery="g1")
        assert again.json() == {**answer.json(), "replayed": True}
        slow = webhook_workflow(id="slow", respond="result", wait=0.05)
        slow["nodes"].insert(1, {"id": "w", "type": "wait", "parameters": {"resume": "signal"}})
        slow["edges"] = [{"src": "in", "dst": "w"}, {"src": "w", "dst": "out"}]
        await server.deploy(slow)
        answer = await send(server, await hook_path(server, "slow"))
        assert (answer.status_code, set(answer.json())) == (202, {"execution_id", "replayed"})

    run(tmp_path, work)


class Sender:
    """A minimal HTTP connection that sends deliveries one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> Sender:
        host, port = url.removeprefix("http://").split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def deliver(self, path: str, name: str, attempt: int) -> str:
        """Send a delivery; return the execution id of the answer."""
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-delivery-id: {name}\r\nx-attempt: {attempt}\r\n"
        self._writer.write(f"{head}content-length: {len(name)}\r\n\r\n{name}".encode())
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert answer.split()[1] in {"200", "202"}, answer
        size = int(answer.partition("content-length: ")[2].split()[0])
        return str(json.loads(await self._reader.readexactly(size))["execution_id"])

    def close(self) -> None:
        self._writer.close()


def test_delivery_starts_once_concurrently_and_after_restart(tmp_path: Path) -> None:
    async def deliver(server: RunningServer, path: str, names: list[str], times: int) -> list[set[str]]:
        senders = [await Sender.open(server.url) for _ in range(times)]
        found = []
        for place, name in enumerate(names):
            active = senders if WHOLE or place % 5 == 0 else senders[:2]
            sent = [each.deliver(path, name, number) for number, each in enumerate(active)]
            found.append(set(await asyncio.gather(*sent)))
        for each in senders:
            each.close()
        return found

    async def go() -> None:
        names = [f"delivery-{number}" for number in range(DELIVERIES)]
        async with running_server(tmp_path) as server:
            await server.deploy(webhook_workflow())
            path = await hook_path(server)
            first = await deliver(server, path, names, CONCURRENT)
        assert {len(each) for each in first} == {1}
        async with running_server(tmp_path) as server:
            assert await hook_path(server) == path
            assert await deliver(server, path, names, 1) == first
            assert await count(server) == DELIVERIES

    asyncio.run(go())


def test_only_the_first_of_simultaneous_deliveries_is_no_repetition(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow())
        path = await hook_path(server)
        for name in (f"d{number}" for number in range(10)):
            sent = [send(server, path, X_Delivery_Id=name) for _ in range(10)]
            answers = [each.json() for each in await asyncio.gather(*sent)]
            assert len({each["execution_id"] for each in answers}) == 1
            assert sorted(each["replayed"] for each in answers) == [False] + [True] * 9

    run(tmp_path, work)


def test_viewer_does_not_see_path(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(webhook_workflow())
        assert await hook_path(server)
        made = await server.post("/keys", {"name": "viewer", "role": "viewer"}, 201)
        viewer = {"Authorization": f"Bearer {made['key']}"}
        (seen,) = (await server.get("/triggers", headers=viewer))["triggers"]
        assert seen["webhook"]["path"] is None
        await server.post(f"/triggers/{seen['id']}/rotate", status=403, headers=viewer)
        made = await server.post("/keys", {"name": "other", "role": "editor", "workflows": ["x*"]}, 201)
        other = {"Authorization": f"Bearer {made['key']}"}
        assert (await server.get("/triggers", headers=other))["triggers"] == []
        await server.post(f"/triggers/{seen['id']}/rotate", status=404, headers=other)

    run(tmp_path, work, key="s3cret")
