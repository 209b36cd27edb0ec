"""How both clients write requests and read responses. Nothing here performs I/O."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from rune.api.access import LimitsView
from rune.codec.decode import decode

T = TypeVar("T")
NO_CONTENT = 204


def api_path(path: str, *names: str | int) -> str:
    """Return a path of the API; each `{}` in it is one of the names, quoted."""
    return "/api/v1" + path.format(*(quote(str(name), safe="") for name in names))


def value_path(
    execution: str, of: str = "output", node: str | None = None, blob: str | None = None
) -> tuple[str, ...]:
    """Return the path, with its names, of what an execution or one of its nodes has, or of a blob."""
    if blob is not None:
        parts = blob.split("/")
        return "/executions/{}/blobs" + "/{}" * len(parts), execution, *parts
    if node is not None:
        return "/executions/{}/nodes/{}/{}", execution, node, of
    return "/executions/{}/{}", execution, of


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None, which leave their default to the server."""
    return {name: value for name, value in values.items() if value is not None}


def new_key() -> str:
    """Return a random idempotency key."""
    return secrets.token_hex(16)


def start_body(input: Any, *, fake_time: bool, **options: Any) -> dict[str, Any]:
    """Return the body of a start. Without a payload it is empty."""
    return present({**options, "fake_time": fake_time or None}) | {"input": {} if input is None else input}


def execution_filters(
    *,
    status: str | Sequence[str] | None = None,
    failed_items: bool = False,
    stuck: bool = False,
    labels: Mapping[str, str] | None = None,
    version: str | int | None = None,
    **others: str | None,
) -> dict[str, Any]:
    """Return the filters of a list of executions as query parameters."""
    return {
        "status": any_of(status),
        "failed_items": failed_items or None,
        "stuck": stuck or None,
        "label": [f"{name}={value}" for name, value in (labels or {}).items()] or None,
        "version": None if version is None else str(version),
        **others,
    }


def any_of(words: str | Sequence[str] | None) -> str | list[str] | None:
    """Return the values of a parameter that can be repeated; without any it is left out."""
    return words if words is None or isinstance(words, str) else list(words) or None


def bulk_selection(
    action: str, ids: Sequence[str] | None, filter: dict[str, Any] | None, limit: int
) -> dict[str, Any]:
    """Return the selection of a bulk job as a body."""
    body: dict[str, Any] = {"action": action, "limit": limit}
    if ids is not None:
        body["ids"] = list(ids)
    if filter is not None:
        filters = execution_filters(**filter)
        if isinstance(filters["status"], str):
            filters["status"] = [filters["status"]]
        body["filter"] = present(filters)
    return body


def limits_body(limits: LimitsView) -> dict[str, Any]:
    """Return start limits as a body, without those that are not set."""
    return present(msgspec.structs.asdict(limits))


def document_content(document: Any, media_type: str | None) -> tuple[bytes, str]:
    """Return the bytes of a document and their media type: JSON for plain data, and YAML for text unless another type
    is given."""
    if isinstance(document, str | bytes):
        text = document.encode() if isinstance(document, str) else document
        return text, media_type or "application/yaml"
    return msgspec.json.encode(document), media_type or "application/json"


def read(answer: type[T], status: int, content: bytes) -> T:
    """Decode the content of a response; MalformedDataError if it is none of a Rune server."""
    if answer is bytes:
        return content  # type: ignore[return-value]
    if answer is NoneType:
        return None  # type: ignore[return-value]
    if status == NO_CONTENT:  # of a server that is older than all fields of the answer
        content = b"{}"
    return decode(msgspec.json.Decoder(answer), content)
