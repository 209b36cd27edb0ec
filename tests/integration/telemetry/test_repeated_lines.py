"""Repeated log lines are summarized."""

from __future__ import annotations

import io
import logging

from rune.telemetry.logs import REPEAT_WINDOW_S, TEXT, SummarizingHandler


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_with_one_cause_are_written_once_with_their_number() -> None:
    stream = io.StringIO()
    handler = SummarizingHandler(stream, Clock())
    handler.setFormatter(logging.Formatter(TEXT))
    logger = logging.Logger("rune.worker")
    logger.addHandler(handler)
    for number in range(200):
        logger.info("%s is left: %s", number, "no type", extra={"cause": "no type"})
    logger.info("%s is left: %s", 200, "newer", extra={"cause": "newer"})
    handler.close()
    lines = [each.split(": ", 1)[1] for each in stream.getvalue().splitlines()]
    assert lines == ["0 is left: no type", "200 is left: newer", "0 is left: no type (repeated 199 times)"]


def test_identical_warnings_are_written_once_with_their_number() -> None:
    stream, clock = io.StringIO(), Clock()
    handler = SummarizingHandler(stream, clock)
    handler.setFormatter(logging.Formatter(TEXT))
    logger, node = logging.Logger("rune.test"), logging.Logger("rune.node")
    logger.addHandler(handler)
    node.addHandler(handler)
    for _ in range(8_241):
        logger.warning("store unavailable: %s", "refused")
    logger.warning("another warning")
    for _ in range(3):
        node.info("a line of a node")
    for _ in range(1_200):
        logger.info("not subscribed to %s", "rune:ended")
    clock.now = REPEAT_WINDOW_S
    logger.warning("store unavailable: %s", "refused")
    logger.warning("store unavailable: %s", "refused")
    handler.close()
    lines = [each.split(": ", 1)[1] for each in stream.getvalue().splitlines()]
    assert lines == [
        "store unavailable: refused",
        "another warning",
        *["a line of a node"] * 3,
        "not subscribed to rune:ended",
        "store unavailable: refused (repeated 8240 times)",
        "not subscribed to rune:ended (repeated 1199 times)",
        "store unavailable: refused",
        "store unavailable: refused (repeated 1 times)",
    ]
