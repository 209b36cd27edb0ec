"""Replies: values out as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rune.ports.library import ANYTHING, NOTHING, Expected

_ENCODER = msgspec.json.Encoder()
JSON = (b"content-type", b"application/json")
_ALWAYS = [JSON, (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


class Reply(Response):
    """A JSON document. Encoded once, its headers written without looking at them again."""

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code = status
        self.background = None
        self.body = value if type(value) is bytes else _ENCODER.encode(value)
        self.raw_headers = [*_ALWAYS, (b"content-length", b"%d" % len(self.body))]
        if headers:
            given = {name.lower(): text for name, text in headers.items()}
            if "cache-control" in given:
                self.raw_headers.pop(1)
            self.raw_headers += [(n.encode("latin-1"), t.encode("latin-1")) for n, t in given.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


def no_content(headers: Mapping[str, str] | None = None) -> Response:
    """Nothing to say."""
    return Response(status_code=204, headers=dict(headers or {}))


def not_changed(tag: str) -> Response:
    """What the asker has is what there is."""
    return Response(status_code=304, headers={"ETag": tag})


def etag(hash: str) -> str:
    """The tag of a content that is named by its hash."""
    return f'"{hash}"'


def tags(header: str | None) -> list[str]:
    """The tags of a header, as they are written."""
    return [each.strip() for each in (header or "").split(",")]


def expected(match: str | None, none_match: str | None) -> Expected | None:
    """What `If-Match` and `If-None-Match: *` expect to be there; both together expect what cannot be."""
    absent = "*" in tags(none_match)
    if match is None:
        return (NOTHING,) if absent else None
    given = [ANYTHING if each == "*" else _bare(each) for each in tags(match)]
    return () if absent else tuple(each for each in given if each != NOTHING)


def _bare(tag: str) -> str:
    bare = tag[1:-1] if len(tag) > 2 and tag[0] == tag[-1] == '"' else NOTHING
    return NOTHING if bare == ANYTHING else bare
