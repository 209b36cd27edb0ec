"""Authentication of requests: adds a credential as a header, a query parameter or a fetched OAuth 2 token."""

from __future__ import annotations

import base64
import zlib
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import aiohttp
import msgspec
from msgspec.structs import replace

from rune.codec.decode import MalformedDataError, decode
from rune.errors import NodeFailure
from rune.nodes.base import NodeCall
from rune.nodes.credentials import check_connection
from rune.nodes.io.http_client.request import Request
from rune.nodes.io.http_client.response import is_permanent_status, read_decoded
from rune.nodes.io.http_client.ssrf import Target, target
from rune.nodes.redaction import redacted
from rune.ports.credentials import ApiKey, Basic, Bearer, Credential, Header, OAuth2

TYPES = ("basic", "bearer", "header", "api_key", "oauth2")
NO_TOKEN = "CREDENTIAL_TOKEN"
MAX_TOKEN_RESPONSE_BYTES = 256 * 1024
# Lifetime of a token whose server does not announce one.
DEFAULT_LIFETIME_S = 300.0

_REJECTED = frozenset({400, 401, 403})
_HEADERS = {
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "content-type": "application/x-www-form-urlencoded",
    "user-agent": "rune",
}


class _Token(msgspec.Struct):
    access_token: str
    expires_in: float = DEFAULT_LIFETIME_S
    token_type: str = "Bearer"


_TOKEN = msgspec.json.Decoder(_Token, strict=False)


async def authorize(call: NodeCall[Any], request: Request) -> Request:
    """Add the node's credential to a request, if it references one."""
    credential = await call.credential(*TYPES, host=request.where.host)
    if credential is None:
        return request
    _check_target(credential, request.where, verify=not getattr(call.parameters, "ignore_ssl", False))
    return await with_credential(call, request, credential)


def _check_target(credential: Credential, where: Target, *, verify: bool = True) -> None:
    check_connection(credential, where.host, verified=where.scheme == "https" and verify)


async def renew_token(call: NodeCall[Any], request: Request) -> Request | None:
    """Replace a rejected token, once per call; return None if there is no token to replace."""
    credential = await call.credential(*TYPES, host=request.where.host)
    if credential is None or not isinstance(credential.fields, OAuth2) or call.usage is None:
        return None
    if call.usage.renewed:
        return None
    call.usage.renewed = True
    rejected = request.headers.get("authorization", "").partition(" ")[2]
    return await _with_token(call, request, credential, credential.fields, rejected=rejected)


async def with_credential(call: NodeCall[Any], request: Request, credential: Credential) -> Request:
    """Add a credential to a request; the caller has checked that it may be sent there."""
    fields = credential.fields
    match fields:
        case Basic():
            return _with_header(request, "authorization", basic(fields.username, fields.password))
        case Bearer():
            return _with_header(request, "authorization", f"Bearer {fields.token}")
        case Header():
            return _with_header(request, fields.name.lower(), fields.value)
        case ApiKey(place="header"):
            return _with_header(request, fields.name.lower(), fields.key)
        case ApiKey():
            pair = f"{quote(fields.name, safe='')}={quote(fields.key, safe='')}"
            return replace(request, query=pair).to(request.where)
        case OAuth2():
            return await _with_token(call, request, credential, fields)
        case _:
            raise AssertionError(credential.type)


def basic(username: str, password: str) -> str:
    """Return the `Authorization` header of basic authentication."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _with_header(request: Request, name: str, value: str) -> Request:
    return replace(request, headers={**request.headers, name: value}, private=request.private | {name})


async def _with_token(
    call: NodeCall[Any], request: Request, credential: Credential, fields: OAuth2, rejected: str | None = None
) -> Request:
    async def fetch() -> tuple[str, float]:
        return await _fetch_token(call, credential, fields)

    key = (credential.id, credential.version)
    token = await call.resources.tokens.get(key, fetch, instead_of=rejected)
    call.protect(token)
    return _with_header(request, "authorization", f"Bearer {token}")


async def _fetch_token(call: NodeCall[Any], credential: Credential, fields: OAuth2) -> tuple[str, float]:
    """Fetch a token; its endpoint is checked by the same guard as any other URL."""
    where = target(fields.token_url)
    _check_target(credential, where)
    label = redacted(where.url)
    form = {"grant_type": "client_credentials", "scope": fields.scope, "audience": fields.audience}
    headers = {**_HEADERS}
    if fields.send_as == "body":
        form |= {"client_id": fields.client_id, "client_secret": fields.client_secret}
    else:
        # RFC 6749 requires both to be form-encoded before they are joined.
        headers["authorization"] = basic(quote_plus(fields.client_id), quote_plus(fields.client_secret))
        call.protect(f"{quote_plus(fields.client_id)}:{quote_plus(fields.client_secret)}")
    body = urlencode({name: value for name, value in form.items() if value is not None}).encode()
    try:
        async with call.resources.http().send("POST", where, headers, body, verify=True) as response:
            status = response.status
            data = await read_decoded(
                response.content.iter_any(),
                response.headers.get("Content-Encoding", ""),
                MAX_TOKEN_RESPONSE_BYTES,
                label,
            )
    except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
        raise NodeFailure(
            f"{label}: the token request failed: {type(error).__name__}", code=NO_TOKEN
        ) from None
    if status != 200:
        reason = "the client was rejected" if status in _REJECTED else "no token"
        raise NodeFailure(
            f"{label} returned {status}: {reason}",
            code=NO_TOKEN,
            details={"status": status},
            permanent=is_permanent_status(status),
        )
    try:
        found = decode(_TOKEN, data)
    except MalformedDataError:
        raise NodeFailure(f"{label}: the response contains no token", code=NO_TOKEN) from None
    if found.token_type.lower() != "bearer" or not found.access_token.isprintable() or not found.access_token:
        raise NodeFailure(f"{label}: the token is not a valid bearer token", code=NO_TOKEN)
    call.protect(found.access_token)
    return found.access_token, max(found.expires_in, 0.0)
