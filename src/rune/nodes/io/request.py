"""A request: what an http node's parameters ask for, and what becomes of it on the way."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from rune.core import codes
from rune.errors import NodeFailure
from rune.nodes.io.address import Target, target
from rune.nodes.io.body import plain, written
from rune.nodes.io.redact import is_telling

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
    """One request. Header names are in lower case."""

    method: str
    where: Target
    headers: dict[str, str]
    body: bytes | None

    def redirected(self, status: int, where: Target) -> Request:
        """The request that a redirect asks for."""
        moved = self.to(where)
        if self.method not in _TO_GET.get(status, ()):
            return moved
        kept = {name: value for name, value in moved.headers.items() if name not in _OF_BODY}
        return Request("GET", where, kept, None)

    def to(self, where: Target) -> Request:
        """The same request elsewhere; what may be a secret does not leave its origin."""
        headers = self.headers
        if where.origin != self.where.origin:
            headers = {name: value for name, value in headers.items() if not _is_secret(name)}
        return replace(self, where=where, headers=headers)


def _is_secret(name: str) -> bool:
    return name != KEY and (is_telling(name) or name.endswith("-key"))


def build(parameters: Any, key: str) -> Request:
    """The first request of a node."""
    headers = dict(_DEFAULTS)
    headers.update(_headers(parameters.headers))
    body, content_type = written(parameters.body, headers.get("content-type", ""))
    if content_type:
        headers["content-type"] = content_type
    if key and KEY not in headers:
        headers[KEY] = quote(key, safe=":/@.,;=+!*()'$&[]{}|~^ #<>?\"\\`%")
    return Request(parameters.method, _with_query(target(parameters.url), parameters.query), headers, body)


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


def raises(listed: str | int | None, status: int) -> bool:
    """Whether `raise_on_status` names this status."""
    if listed is None:
        return False
    kinds = (each.strip().lower() for each in str(listed).split(","))
    return any(each in (str(status), f"{status // 100}xx") for each in kinds)
