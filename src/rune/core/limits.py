"""The limits on the size, depth and count of everything that enters the engine."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum values. Exceeding one is an error that names the field."""

    definition_bytes: int = 2 * 1024 * 1024
    nodes: int = 2_000
    edges: int = 10_000
    split_depth: int = 4
    payload_bytes: int = 16 * 1024 * 1024
    payload_containers: int = 2_000_000
    output_bytes: int = 64 * 1024 * 1024
    body_bytes: int = 1024 * 1024
    inline_bytes: int = 32 * 1024
    json_depth: int = 100
    items: int = 1_000_000
    page_items: int = 256
    page_bytes: int = 256 * 1024
    child_depth: int = 16
    window: int = 1_000
    items_in_flight: int = 10_000


LIMITS = Limits()
