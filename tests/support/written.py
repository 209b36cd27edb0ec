"""Documents of executions as their readers get them."""

from __future__ import annotations

from typing import Any

import msgspec


def as_written(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as it is after it was written as JSON: the engine passes values on as stored text."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return found
