"""Server-sent events from their lines."""

from __future__ import annotations

import msgspec

from rune.client.models import Event

_DECODER = msgspec.json.Decoder(Event)


class SseDecoder:
    """Takes lines, gives events. `last` is the number to go on behind."""

    def __init__(self, after: int = 0) -> None:
        self.last = after
        self.ended = False
        self._data: list[str] = []
        self._kind = ""

    def take(self, line: str) -> Event | None:
        """One line; the event that it completes, if it does and is new."""
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            elif name == "event":
                self._kind = value.strip()
            return None
        data, kind = "\n".join(self._data), self._kind
        self._data, self._kind = [], ""
        if not data or kind not in ("", "message"):
            return None
        event = _DECODER.decode(data)
        if event.number <= self.last:
            return None
        self.last = event.number
        self.ended = self.ended or event.ends
        return event

    def broken(self) -> None:
        """The connection was lost: half an event is none."""
        self._data, self._kind = [], ""

    @property
    def headers(self) -> dict[str, str]:
        """What to ask with."""
        asked = {"Accept": "text/event-stream"}
        if self.last:
            asked["Last-Event-ID"] = str(self.last)
        return asked
