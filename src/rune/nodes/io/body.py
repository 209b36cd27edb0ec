"""Bodies of requests and answers: JSON, forms, text, and bytes that are none of these."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Mapping
from email.message import Message
from typing import Any
from urllib.parse import urlencode

import msgspec

from rune.core import codes
from rune.core.jsontext import decode_json
from rune.core.limits import Limits
from rune.errors import NodeFailure

FORM = "application/x-www-form-urlencoded"
_JSON = re.compile(r"(application|text)/(json|[a-z0-9.+_-]+\+json)")
_TEXT = re.compile(
    r"text/.*|application/(xml|.*\+xml|javascript|ecmascript|x-www-form-urlencoded|x-ndjson|graphql|yaml|x-yaml|toml|sql)"
)
_CHARSET = re.compile(
    r"utf-?8|utf-?(16|32)(-?[lb]e)?|us-ascii|ascii|latin-?1|iso-?8859-?\d{1,2}|windows-?125\d|cp125\d|koi8-[ru]"
    r"|shift_jis|euc-(jp|kr)|gb(2312|k|18030)|big5"
)


def written(body: Any, content_type: str) -> tuple[bytes | None, str]:
    """What is sent, and its type unless the request names one."""
    if body is None:
        return None, content_type
    if isinstance(body, str):
        return body.encode(), content_type or "text/plain; charset=utf-8"
    if content_type.partition(";")[0].strip().lower() == FORM and isinstance(body, dict):
        return _form(body), content_type
    return msgspec.json.encode(body), content_type or "application/json"


def _form(body: Mapping[str, Any]) -> bytes:
    pairs: list[tuple[str, str]] = []
    for name, value in body.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, list | dict):
                raise NodeFailure(
                    f"parameters.body.{name}: a form holds no lists of lists", code=codes.BAD_PARAMETER
                )
            if each is not None:
                pairs.append((name, plain(each)))
    return urlencode(pairs).encode()


def plain(value: Any) -> str:
    """A scalar as text, the way JSON writes it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def read(data: bytes, content_type: str, limits: Limits, label: str) -> tuple[Any, str | None]:
    """The body of an answer, and how it is written where it is not text: JSON if its type says so."""
    kind, charset = _kind(content_type)
    if _JSON.fullmatch(kind):
        return _json(data, charset, limits, label), None
    if _TEXT.fullmatch(kind) or not data:
        return data.decode(charset, "replace"), None
    try:
        if b"\0" not in data:
            return data.decode("utf-8"), None
    except UnicodeDecodeError:
        pass
    return base64.b64encode(data).decode(), "base64"


def excerpt(data: bytes, content_type: str, most: int = 500) -> str:
    """The beginning of a body, for an error."""
    _, charset = _kind(content_type)
    return data[: 4 * most].decode(charset, "replace")[:most]


def _json(data: bytes, charset: str, limits: Limits, label: str) -> Any:
    if not data.strip():
        return None
    if charset.startswith(("utf-16", "utf-32", "utf16", "utf32")):
        data = data.decode(charset, "replace").encode()
    found = decode_json(data, max_bytes=limits.output_bytes, max_depth=limits.json_depth)
    if found.problems:
        raise NodeFailure(
            f"{label}: the answer says it is JSON but is not: {found.problems[0].message}", code="HTTP_BODY"
        )
    return found.value


def _kind(content_type: str) -> tuple[str, str]:
    header = Message()
    header["content-type"] = content_type.replace("\r", " ").replace("\n", " ") or "application/octet-stream"
    charset = str(header.get_param("charset") or "utf-8").lower()
    return header.get_content_type(), charset if _is_known(charset) else "utf-8"


def _is_known(charset: str) -> bool:
    """Python has more codecs than are fit for strangers' bytes."""
    if not _CHARSET.fullmatch(charset):
        return False
    try:
        codecs.lookup(charset)
    except LookupError:
        return False
    return True
