"""Tracebacks of custom nodes."""

from __future__ import annotations

from rune.nodes.base import MAX_TRACEBACK_BYTES, failure_of
from rune.nodes.redaction import NAMES_ONLY, SECRETS_IN_USE, Redactor


def raised(text: str, depth: int = 0) -> BaseException:
    def descend(left: int) -> None:
        if left:
            descend_again(left - 1)
        raise ValueError(text)

    def descend_again(left: int) -> None:
        descend(left)

    try:
        descend(depth)
    except ValueError as error:
        return error
    raise AssertionError


def test_traceback_of_deep_recursion_keeps_both_ends_within_the_limit() -> None:
    text = failure_of(raised("at the bottom", 400)).error.traceback
    assert len(text.encode()) <= MAX_TRACEBACK_BYTES
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("ValueError: at the bottom\n")


def test_traceback_of_huge_message_keeps_within_the_limit() -> None:
    text = failure_of(raised("x" * 100_000)).error.traceback
    assert len(text.encode()) <= MAX_TRACEBACK_BYTES
    assert "ValueError: xxx" in text


def test_traceback_is_redacted() -> None:
    redactor = Redactor(["s3cret-value"])
    SECRETS_IN_USE.add(redactor)
    try:
        text = failure_of(raised("s3cret-value at https://user:pw@host/")).error.traceback
    finally:
        SECRETS_IN_USE.remove(redactor)
    assert "s3cret-value" not in text
    assert "user:pw" not in text


def test_error_is_redacted_with_its_traceback() -> None:
    failure = failure_of(raised("Authorization: Bearer abcdef"))
    assert "abcdef" not in NAMES_ONLY.error(failure.error).traceback


def test_error_of_engine_frames_only_has_no_traceback() -> None:
    assert failure_of(ValueError("never raised")).error.traceback == ""
