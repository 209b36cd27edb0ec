"""Definitions by their hash, and blobs: what never changes."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from rune.errors import RuneError
from rune.master.operation import Call, Resource
from rune.master.reply import Reply, etag, not_changed
from rune.runtime.planbook import UnknownDefinition

definitions = Resource("definitions")

FOREVER = "private, max-age=31536000, immutable"


class UnknownBlob(RuneError):
    """A key under which an execution keeps nothing."""

    code = "UNKNOWN_BLOB"


@definitions(
    "GET",
    "/definitions/{hash}",
    "A definition by its hash",
    need="view",
    answer=Any,
    also={304: "It is what `If-None-Match` says."},
    headers=("If-None-Match",),
)
async def get_definition(call: Call) -> Response:
    """In canonical form, of whichever workflow or execution."""
    hash = call.path["hash"]
    if call.header("if-none-match") == etag(hash):
        return not_changed(etag(hash))
    data = await call.master.reader.definition(hash)
    if data is None:
        raise UnknownDefinition(f"no definition has the hash {hash}")
    return Reply(data, headers={"ETag": etag(hash), "Cache-Control": FOREVER})


@definitions(
    "GET",
    "/executions/{execution}/blobs/{key:path}",
    "A large value of an execution",
    need="view",
    answer=bytes,
    answers="application/octet-stream",
)
async def get_blob(call: Call) -> Response:
    """By the rest of its key."""
    accepted = await call.master.reader.accepted(call.path["execution"])
    data = await call.master.engine.backend.blob.get(f"{accepted.id}/{call.path['key']}")
    if data is None:
        raise UnknownBlob(f"{accepted.id} keeps nothing under `{call.path['key'][:120]}`")
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": FOREVER}
    return Response(data, headers=headers, media_type="application/octet-stream")
