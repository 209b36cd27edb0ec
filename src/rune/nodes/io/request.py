"""A request: what an http node's parameters ask for, and what becomes of it on the way."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from rune.core import codes
from rune.errors import NodeFailure
from rune.nodes.base import Call
from rune.nodes.io.address import Target, target
from rune.nodes.io.pages import Pagination, first
from rune.nodes.io.payload import payload
from rune.nodes.redaction import is_telling
from rune.nodes.rules import plain

KEY = "idempotency-key"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
    }
)
"""Headers that belong to the connection: who sets them can make two readers see different requests."""

_OF_BODY = ("content-type", "content-encoding", "content-language")
_DEFAULTS = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "rune"}
_TO_GET = {301: ("POST",), 302: ("POST",), 303: ("POST", "PUT", "PATCH", "DELETE")}


class Request(msgspec.Struct, frozen=True):
    """One request. Header names are in lower case. `private` headers and `query`, which is part of every address of
    the first origin, come from a credential."""

    method: str
    where: Target
    headers: dict[str, str]
    body: bytes | None
    private: frozenset[str] = frozenset()
    query: str = ""

    def redirected(self, status: int, where: Target) -> Request:
        """The request that a redirect asks for."""
        moved = self.to(where)
        if self.method not in _TO_GET.get(status, ()):
            return moved
        kept = {name: value for name, value in moved.headers.items() if name not in _OF_BODY}
        return replace(moved, method="GET", headers=kept, body=None)

    def to(self, where: Target) -> Request:
        """The same request elsewhere; what may be a secret does not leave its origin."""
        if where.origin == self.where.origin:
            return replace(self, where=_with_pair(where, self.query))
        kept = {
            name: value
            for name, value in self.headers.items()
            if name not in self.private and not _is_secret(name)
        }
        return replace(self, where=where, headers=kept, private=frozenset(), query="")


def _is_secret(name: str) -> bool:
    return name != KEY and (is_telling(name) or name.endswith("-key"))


async def build(call: Call[Any], rule: Pagination | None) -> Request:
    """The first request of a node."""
    parameters, key = call.parameters, call.idempotency_key
    where = first(rule, _with_query(target(parameters.url), parameters.query))
    headers = dict(_DEFAULTS)
    headers.update(_headers(parameters.headers))
    body, content_type = await payload(
        parameters.body, parameters.body_type, headers.get("content-type", ""), call.blobs
    )
    if content_type:
        headers["content-type"] = content_type
    if key and KEY not in headers:
        headers[KEY] = key_text(key)
    if call.traceparent:
        headers.setdefault("traceparent", call.traceparent)
    return Request(parameters.method, where, headers, body)


def key_text(key: str) -> str:
    """An idempotency key as a header holds it."""
    if key.isascii() and key.isprintable():
        return key
    return quote(key, safe=":/@.,;=+!*()'$&[]{}|~^ #<>?\"\\`%")


def _headers(given: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not _NAME.fullmatch(name):
            raise _refused(name, "is no name of a header")
        lower = name.lower()
        if lower in _OURS or lower.startswith("proxy-"):
            raise _refused(name, "cannot be set: it belongs to the connection")
        text = ", ".join(
            plain(each) for each in (value if isinstance(value, list) else [value]) if each is not None
        )
        if _CONTROL.search(text):
            raise _refused(name, "holds a line break or control character")
        found[lower] = text.strip()
    return found


def _refused(name: str, why: str) -> NodeFailure:
    return NodeFailure(f"parameters.headers: `{name[:80]}` {why}", code=codes.BAD_PARAMETER)


def _with_query(where: Target, query: dict[str, Any]) -> Target:
    pairs = [
        (name, plain(each))
        for name, value in query.items()
        for each in (value if isinstance(value, list) else [value])
        if each is not None
    ]
    if not pairs:
        return where
    joint = "&" if "?" in where.resource else "?"
    return replace(where, resource=f"{where.resource}{joint}{urlencode(pairs)}")


def _with_pair(where: Target, pair: str) -> Target:
    """The address with a name and value in its query, in the place of any other value of this name."""
    if not pair:
        return where
    name = pair.partition("=")[0]
    path, _, query = where.resource.partition("?")
    kept = [each for each in query.split("&") if each and each.partition("=")[0] != name]
    return replace(where, resource=f"{path}?{'&'.join([*kept, pair])}")


def raises(listed: str | int | None, status: int) -> bool:
    """Whether `raise_on_status` names this status."""
    return listed is not None and status in _listed(str(listed))


@lru_cache(maxsize=256)
def _listed(text: str) -> frozenset[int]:
    kinds = {each.strip().lower() for each in text.split(",")}
    return frozenset(each for each in range(100, 600) if {str(each), f"{each // 100}xx"} & kinds)
