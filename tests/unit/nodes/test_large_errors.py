"""Errors of nodes are bounded: a huge message or huge details make no huge status and take no time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rune.core.execution.outcome import Error
from rune.errors import NodeFailure, RuneError
from rune.nodes.base import MAX_DETAILS_BYTES, MAX_MESSAGE_CHARS, MAX_TRACEBACK_BYTES, failure_of
from rune.nodes.redaction import NAMES_ONLY, Redactor

MEGABYTE = 1024 * 1024
LARGE = 8 * MEGABYTE
# Made when their test runs: whatever a module holds slows the collection of garbage in every test of its process.
TEXTS: dict[str, Callable[[], str]] = {
    "one word": lambda: "x" * LARGE,
    "words": lambda: "lorem ipsum " * (LARGE // 12),
    "lines": lambda: "token: [\n" * (LARGE // 9),
    "secrets": lambda: "token=abc password=(" * (LARGE // 20),
    "no ASCII": lambda: "ä€😀" * (LARGE // 9),
    "surrogates": lambda: "\ud800" * (LARGE // 3),
}


def doubled(times: int) -> Any:
    """Return a list that is small in memory and huge as JSON."""
    value: Any = [0]
    for _ in range(times):
        value = [value, value]
    return value


DETAILS: dict[str, Callable[[], Any]] = {
    "text": lambda: {"body": "x" * LARGE},
    "list": lambda: {"rows": [{"id": each} for each in range(1_000_000)]},
    "members": lambda: {f"key {each}": each for each in range(500_000)},
    "names": lambda: {"n" * MEGABYTE + str(each): 1 for each in range(10)},
    "no object": lambda: ["x" * LARGE],
    "no JSON": lambda: {"bytes": b"x" * LARGE},
    "nested": lambda: {str(each): {"deep": {"deeper": {"text": "x" * LARGE}}} for each in range(100)},
    "shared": lambda: doubled(60),
    "no JSON behind what is large": lambda: {"text": "x" * LARGE, "object": object()},
    "names that are no text": lambda: {each: each for each in range(1_000_000)},
}


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def redacted(error: Exception) -> Error:
    """Return the error as it is recorded, of a run that used a credential."""
    return Redactor(["s3cret-value"]).error(NAMES_ONLY.error(failure_of(error).error))


def within_limits(error: Error) -> bool:
    # A redacted value may be longer than what stood there: each of them by three characters.
    return (
        len(error.message) <= 2 * MAX_MESSAGE_CHARS
        and len(msgspec.json.encode(error.details)) <= 2 * MAX_DETAILS_BYTES
        and len(error.traceback.encode()) <= 2 * MAX_TRACEBACK_BYTES
        and len(error.code) <= 128
    )


@pytest.mark.parametrize("kind", [ValueError, NodeFailure, RuneError])
@pytest.mark.parametrize("text", TEXTS)
def test_error_with_huge_message_is_recorded_bounded_and_at_once(text: str, kind: type[Exception]) -> None:
    error = raised(kind(TEXTS[text]()))
    started = time.process_time()

    recorded = redacted(error)

    assert within_limits(recorded)
    # Redaction of the whole text takes several seconds.
    assert time.process_time() - started < 3


@pytest.mark.parametrize("details", DETAILS)
def test_error_with_huge_details_is_recorded_bounded_and_at_once(details: str) -> None:
    error = NodeFailure("refused", code="REFUSED", details=DETAILS[details]())
    started = time.process_time()

    recorded = redacted(error)

    assert within_limits(recorded)
    assert recorded.code == "REFUSED"
    assert time.process_time() - started < 3


def test_huge_message_keeps_its_beginning() -> None:
    message = failure_of(NodeFailure("no such order: " + "x" * LARGE, code="C" * LARGE)).error.message

    assert message.startswith("no such order: xxx")
    assert message.endswith("x…")
    assert len(message) == MAX_MESSAGE_CHARS


def test_large_members_of_details_are_left_out_by_name() -> None:
    details = {"status": 503, "rows": list(range(MEGABYTE)), "retry_after": 7}

    recorded = failure_of(NodeFailure("refused", details=details)).error.details

    assert recorded == {"status": 503, "retry_after": 7, "omitted": ["rows"]}


def test_error_of_a_child_keeps_its_code_and_the_beginning_of_its_texts() -> None:
    child = {"code": "REFUSED", "details": {"body": "<html>" + "x" * LARGE, "rows": list(range(MEGABYTE))}}

    recorded = failure_of(
        NodeFailure("the child failed", details={"error": child, "status": "failed"})
    ).error.details

    assert recorded["status"] == "failed"
    assert recorded["error"]["code"] == "REFUSED"
    assert recorded["error"]["details"]["omitted"] == ["rows"]
    assert recorded["error"]["details"]["body"].startswith("<html>xxx")


def test_details_within_the_limit_are_kept_as_they_are() -> None:
    details = {"body": "x" * (MAX_DETAILS_BYTES - 100), "nested": {"a": [1, None, True, 1.5]}}

    assert failure_of(NodeFailure("refused", details=details)).error.details == details


def test_secret_at_the_cut_of_a_message_is_not_shown_in_part() -> None:
    for shift in range(14):
        text = "x" * (MAX_MESSAGE_CHARS - shift) + " s3cret-value is wrong"
        assert "s3cr" not in redacted(NodeFailure(text)).message
