"""Decoder for server-sent events."""

from __future__ import annotations

import msgspec

from rune.client.models import Event, Now

_DECODER = msgspec.json.Decoder(Event)
_NOW_DECODER = msgspec.json.Decoder(Now)


class SseDecoder:
    """Turns lines into events and drops duplicates. `last` is the number of the last event returned."""

    def __init__(self, after: int = 0) -> None:
        self.last = after
        self.ended = False
        self._data: list[str] = []
        self._kind = ""

    def take(self, line: str) -> Event | Now | None:
        """Consume a line. Return what it completes, unless it is an event that was returned before."""
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            elif name == "event":
                self._kind = value.strip()
            return None
        data, kind = "\n".join(self._data), self._kind
        self._data, self._kind = [], ""
        if data and kind == "now":
            return _NOW_DECODER.decode(data)
        if not data or kind not in ("", "message"):
            return None
        event = _DECODER.decode(data)
        if event.number <= self.last:
            return None
        self.last = event.number
        self.ended = self.ended or event.ends
        return event

    def reset(self) -> None:
        """Discard an incomplete event after the connection was lost."""
        self._data, self._kind = [], ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that continues after the last event."""
        headers = {"Accept": "text/event-stream"}
        if self.last:
            headers["Last-Event-ID"] = str(self.last)
        return headers
