"""Messages in full: how they are asked for, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.codec.messages import MAX_FULL_BYTES, MessageTooLargeError
from rune.settings import SettingsError, load_settings

CLUSTER = {
    "RUNE_JOURNAL": "postgresql://x/y",
    "RUNE_STATE": "redis://x",
    "RUNE_QUEUE": "amqp://x",
}


@pytest.mark.parametrize("text", ["wire.inline = true", "[wire]\ninline = true", "wire_inline = true"])
def test_the_file_asks_for_them(tmp_path: Path, text: str) -> None:
    (tmp_path / "rune.toml").write_text(text)
    assert load_settings({}, tmp_path).wire_inline
    assert not load_settings({"RUNE_WIRE_INLINE": "false"}, tmp_path).wire_inline, "the environment beats it"


def test_the_environment_asks_for_them_and_says_how_long_they_may_be(tmp_path: Path) -> None:
    given = {**CLUSTER, "RUNE_WIRE_INLINE": "true", "RUNE_WIRE_BYTES": "1000"}
    found = load_settings(given, tmp_path)
    assert (found.wire_inline, found.wire_bytes) == (True, 1000)
    assert load_settings({}, tmp_path).wire_bytes == MAX_FULL_BYTES


@pytest.mark.parametrize("size", ["0", "134217729"])
def test_a_message_has_a_byte_and_not_more_than_a_worker_takes(tmp_path: Path, size: str) -> None:
    with pytest.raises(SettingsError, match="RUNE_WIRE_BYTES"):
        load_settings({**CLUSTER, "RUNE_WIRE_BYTES": size}, tmp_path)


def test_the_error_says_how_long_it_would_have_been() -> None:
    error = MessageTooLargeError("x1", 2_000, 1_000)
    assert (error.code, "2,000" in error.message, "1,000" in error.message) == (
        "MESSAGE_TOO_LARGE",
        True,
        True,
    )
