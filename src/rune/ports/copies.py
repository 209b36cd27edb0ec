"""Copies: what there is to say about one."""

from __future__ import annotations

import msgspec


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy of the embedded file holds."""

    bytes: int
    schema: int
    executions: int
    running: int
    credentials: int
