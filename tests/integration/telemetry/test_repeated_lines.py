"""Repeated log lines are summarized."""

from __future__ import annotations

import io
import logging

from rune.telemetry.logs import REPEAT_WINDOW_S, TEXT, SummarizingHandler


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_identical_warnings_are_written_once_with_their_number() -> None:
    stream, clock = io.StringIO(), Clock()
    handler = SummarizingHandler(stream, clock)
    handler.setFormatter(logging.Formatter(TEXT))
    logger = logging.Logger("rune.test")
    logger.addHandler(handler)
    for _ in range(8_241):
        logger.warning("store unavailable: %s", "refused")
    logger.warning("another warning")
    for _ in range(3):
        logger.info("a line of the normal course")
    clock.now = REPEAT_WINDOW_S
    logger.warning("store unavailable: %s", "refused")
    logger.warning("store unavailable: %s", "refused")
    handler.close()
    lines = [each.split(": ", 1)[1] for each in stream.getvalue().splitlines()]
    assert lines == [
        "store unavailable: refused",
        "another warning",
        *["a line of the normal course"] * 3,
        "store unavailable: refused (repeated 8240 times)",
        "store unavailable: refused",
        "store unavailable: refused (repeated 1 times)",
    ]
