"""Which executions blocked the event loop of the owner, in a file beside the database.

It is no table: the thread that writes it runs while the loop is blocked, and the loop may hold the lock of the
database.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rune.adapters.private_files import FILE_MODE
from rune.codec.decode import MalformedDataError, decode
from rune.core.json_decoder import JsonDecoder
from rune.ports.processes import MemoryBlockMarks

SUFFIX = "-blocked"


class _Content(msgspec.Struct):
    blocks: dict[str, int] = {}
    quarantined: dict[str, str] = {}


_DECODER = JsonDecoder(_Content)


class FileBlockMarks(MemoryBlockMarks):
    """Marks that are kept in a file. One that cannot be read counts as empty: it only delays a quarantine."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        self._path = database.with_name(database.name + SUFFIX)
        try:
            content = decode(_DECODER, self._path.read_bytes())
        except (OSError, MalformedDataError):
            return
        self._blocks, self._quarantined = content.blocks, content.quarantined

    def _changed(self) -> None:
        if not self._blocks and not self._quarantined:
            self._path.unlink(missing_ok=True)
            return
        written = self._path.with_name(f"{self._path.name}.new")
        opened = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        with os.fdopen(opened, "wb") as file:
            file.write(msgspec.json.encode(_Content(self._blocks, self._quarantined)))
        written.replace(self._path)
