"""Progress of a run while it lasts: a live picture on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

from rune.cli.tally import Line, Tally
from rune.cli.text import COLOURS, clean, count, duration, moment

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

FRAME = 0.2  # s between pictures
LINE = 5.0  # s between lines
BAR = 24


class Progress(Protocol):
    """Shows a tally."""

    pause: float

    def refresh(self) -> None:
        """Show how it stands."""

    def close(self) -> None:
        """Leave the screen as it was."""


def progress(tally: Tally) -> Progress:
    """What suits the place that stdout leads to."""
    return Picture(tally) if sys.stdout.isatty() else Lines(tally)


def now() -> int:
    return time.time_ns() // 1_000_000


def state_of(line: Line, at: int) -> str:
    """A node in words."""
    if not line.inside and line.total is None:
        return _single(line, at)
    parts = [
        f"{getattr(line, name):,} {name}"
        for name in ("running", "waiting", "failed", "skipped", "cancelled")
        if getattr(line, name)
    ]
    if line.lost:
        parts.append(f"{count(line.lost, 'item')} failed")
    if line.due is not None:
        parts.append(f"next {_left(line.due, at)}")
    return ", ".join(parts) + _said(line)


def _said(line: Line) -> str:
    return f": {clean(line.said)}" if line.said and line.running else ""


def _single(line: Line, at: int) -> str:
    if not line.waiting:
        status = line.status if line.attempt == 1 else f"{line.status}, attempt {line.attempt}"
        return status + _said(line)
    if line.due is None:
        return "waiting for a signal"
    if line.attempt > 1:
        return f"attempt {line.attempt} {_left(line.due, at)}"
    return f"waiting, {_left(line.due, at)}" + (f" ({moment(line.due)})" if line.due - at > 60_000 else "")


def _left(due: int, at: int) -> str:
    return f"in {duration(-(-(due - at) // 1000) * 1000)}" if due > at else "now"


def worth_showing(lines: list[Line], most: int) -> list[Line]:
    """At most so many: what moves before what has ended, what has ended before what has not begun."""
    if len(lines) <= most:
        return lines
    rank = {"running": 0, "waiting": 0, "failed": 1, "pending": 3}
    chosen = sorted(range(len(lines)), key=lambda i: (rank.get(lines[i].status, 2), i))[:most]
    return [lines[i] for i in sorted(chosen)]


class Lines:
    """For logs: one line on stderr every few seconds, if anything has changed."""

    pause = LINE

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._seen = -1
        self._began = time.monotonic()

    def refresh(self) -> None:
        if self._seen == self._tally.version:
            return
        self._seen = self._tally.version
        at = now()
        parts: list[str] = []
        for line in self._tally.lines():
            if line.total is not None and not line.inside and line.done != line.total:
                failed = f", {line.lost:,} failed" if line.lost else ""
                parts.append(f"{line.node} {line.done or 0:,}/{line.total:,}{failed}")
            elif line.status in {"running", "waiting"}:
                parts.append(f"{line.node} {state_of(line, at)}")
        shown = "; ".join(parts[:8]) + ("; …" if len(parts) > 8 else "")
        spent = duration((time.monotonic() - self._began) * 1000)
        print(
            clean(f"{self._tally.execution} after {spent}: {shown or 'under way'}"),
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        """Lines stay."""


class Picture:
    """For people: every node with its state, redrawn in place. A run that is over in a blink shows none."""

    pause = FRAME

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._live: Live | None = None
        self._began = time.monotonic()

    def refresh(self) -> None:
        began = time.perf_counter()
        if self._live is None:
            self._live = self._open()
        self._live.update(self._table(), refresh=True)
        # A picture that takes long to draw is drawn less often.
        self.pause = max(FRAME, 10 * (time.perf_counter() - began))

    def _open(self) -> Live:
        from rich.console import Console  # noqa: PLC0415 - slow to import, and a short run never needs it
        from rich.live import Live  # noqa: PLC0415

        live = Live(console=Console(highlight=False), auto_refresh=False, transient=True)
        live.start()
        return live

    def _table(self) -> Table:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        assert self._live is not None
        lines = self._tally.lines()
        shown = worth_showing(lines, max(3, self._live.console.height - 3))
        table = Table(box=None, pad_edge=False, show_header=False)
        at = now()
        for line in shown:
            style = {"grey": "bright_black"}.get(
                COLOURS.get(line.status, "grey"), COLOURS.get(line.status, "grey")
            )
            name = Text(("  " if line.inside else "") + clean(line.node), style=style)
            table.add_row(name, _bar(line), Text(state_of(line, at), style=style))
        ended = sum(line.status not in {"running", "waiting", "pending"} for line in lines)
        hidden = f", {len(lines) - len(shown)} more not shown" if len(shown) < len(lines) else ""
        spent = duration(1000 * int(time.monotonic() - self._began))
        table.add_row(
            Text(f"{ended}/{len(lines)} nodes, {spent}{hidden}", style="bright_black"), Text(), Text()
        )
        return table

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


def _bar(line: Line) -> Text:
    from rich.text import Text  # noqa: PLC0415

    if line.total is None:
        return Text()
    done = line.done if line.done is not None else line.ended
    filled = BAR * min(done, line.total) // line.total if line.total else BAR
    bad = min(filled, -(-BAR * (line.lost or line.failed) // line.total)) if line.total else 0
    return Text.assemble(
        ("━" * (filled - bad), "green"),
        ("━" * bad, "red"),
        ("━" * (BAR - filled), "bright_black"),
        f" {done:,}/{line.total:,}",
    )
