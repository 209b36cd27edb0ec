"""Server-sent events, read piece by piece."""

from __future__ import annotations

LONGEST = 1024 * 1024
"""Bytes that one event may have."""


class TooLong(ValueError):
    """An event that does not end."""


class Events:
    """Takes bytes as they come and gives the data of each event that is complete."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._waiting = 0
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """The data of the events that end in this piece."""
        found: list[str] = []
        for line in self._lines(piece):
            if line:
                self._field(line)
            elif self._data:
                found.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data, self._size = [], 0
        return found

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece. One that does not end is put together only when it does."""
        self._rest.append(piece)
        self._waiting += len(piece)
        if self._waiting > LONGEST + len(piece):
            raise TooLong(f"an event has more than {LONGEST:,} bytes")
        if b"\n" not in piece and b"\r" not in piece and not self._rest[0].endswith(b"\r"):
            return []
        text = b"".join(self._rest).replace(b"\r\n", b"\n")
        # A carriage return at the end may be half of a line break.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text.removesuffix(b"\r").replace(b"\r", b"\n").split(b"\n")
        self._rest = [lines.pop() + held]
        self._waiting = len(self._rest[0])
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        self._data.append(value.removeprefix(b" "))
        self._size += len(value)
        if self._size > LONGEST:
            raise TooLong(f"an event has more than {LONGEST:,} bytes")
