"""An inspection: what a backend can tell about itself and its place to somebody who takes no part."""

from __future__ import annotations

import msgspec


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """Findings, not judgements."""

    database: str
    exists: bool
    file_system: str
    network: bool
    writable: bool
    free_bytes: int
    file_bytes: int = 0
    sqlite: str
    schema: int | None = None  # of the file
    known_schema: int
    damage: str = ""
    owned: bool = False
    owner: int | None = None  # process id
    sync_ms: float | None = None  # median of a small write made durable
    running: int = 0
