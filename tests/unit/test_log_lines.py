"""Log lines hold nothing that a terminal obeys, whatever clients send."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from rune.telemetry.logs import set_up_log

HOSTILE = "\x1b[2J\x1b]0;PWN\x07 \x9b31m \u202eabc\u2066 \x7f \r \u2028"
FORGED = "gone\n2026-01-01 00:00:00,000 INFO rune: forged"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def write(stream: io.StringIO, kind: Literal["text", "json"], message: str, *, failing: bool = False) -> str:
    set_up_log(kind, "info", lambda document: document, stream)
    log = logging.getLogger("rune.test")
    if not failing:
        log.info("asked for %s", message)
    else:
        try:
            raise ValueError(message)
        except ValueError:
            log.exception("failed at %s", message)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["text", "json"])
@pytest.mark.parametrize("failing", [False, True])
def test_line_holds_no_control_characters(
    stream: io.StringIO, kind: Literal["text", "json"], failing: bool
) -> None:
    text = write(stream, kind, HOSTILE, failing=failing)

    assert "\\u001b[2J" in text
    assert all(each.isprintable() or each == "\n" for each in text)
    assert "abc" in text


def test_message_is_one_line_and_traceback_several(stream: io.StringIO) -> None:
    assert write(stream, "text", FORGED).count("\n") == 1
    assert write(stream, "text", "plain", failing=True).count("\n") >= 4
    assert "raise ValueError(message)\n" in stream.getvalue()


def test_json_line_has_the_message_as_it_was(stream: io.StringIO) -> None:
    line = write(stream, "json", HOSTILE)

    assert json.loads(line)["message"] == f"asked for {HOSTILE}"
