"""Settings of inline messages."""

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
def test_wire_inline_is_read_from_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "rune.toml").write_text(text)
    assert load_settings({}, tmp_path).wire_inline
    assert not load_settings({"RUNE_WIRE_INLINE": "false"}, tmp_path).wire_inline, (
        "the environment overrides the file"
    )


def test_wire_settings_are_read_from_environment(tmp_path: Path) -> None:
    environment = {**CLUSTER, "RUNE_WIRE_INLINE": "true", "RUNE_WIRE_BYTES": "1000"}
    found = load_settings(environment, tmp_path)
    assert (found.wire_inline, found.wire_bytes) == (True, 1000)
    assert load_settings({}, tmp_path).wire_bytes == MAX_FULL_BYTES


@pytest.mark.parametrize("size", ["0", "134217729"])
def test_wire_bytes_out_of_range_is_rejected(tmp_path: Path, size: str) -> None:
    with pytest.raises(SettingsError, match="RUNE_WIRE_BYTES"):
        load_settings({**CLUSTER, "RUNE_WIRE_BYTES": size}, tmp_path)


def test_message_too_large_error_contains_sizes() -> None:
    error = MessageTooLargeError("x1", 2_000, 1_000)
    assert (error.code, "2,000" in error.message, "1,000" in error.message) == (
        "MESSAGE_TOO_LARGE",
        True,
        True,
    )
