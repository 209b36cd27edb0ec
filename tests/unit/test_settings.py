"""Settings that do not fit are refused by the name that they are set with, before anything is opened."""

from __future__ import annotations

import pathlib

import pytest

from rune.settings import SettingsError, load_settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"RUNE_SLOTS": "many"}, "RUNE_SLOTS, or `slots` in rune.toml: `many` is not a whole number"),
        ({"RUNE_GRACE": "long"}, "`long` is not a number"),
        ({"RUNE_IN_PLACE": "maybe"}, "`maybe` is not `true` or `false`"),
        ({"RUNE_DURABILITY": "x"}, "`x` is not one of `full`, `relaxed`"),
        ({"RUNE_LOG_LEVEL": "loud"}, "is not one of `debug`, `info`, `warning`, `error`"),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_is_expected(
    given: dict[str, str], said: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(given, tmp_path)

    assert said in refused.value.message


@pytest.mark.parametrize(
    "given",
    [
        {"RUNE_SLOTS": "0"},
        {"RUNE_SLOTS": "-1"},
        {"RUNE_HTTP_PER_HOST": "0"},
        {"RUNE_PARTITIONS": "0"},
        {"RUNE_MAX_WAITING": "-1"},
        {"RUNE_GRACE": "-1"},
        {"RUNE_GRACE": "nan"},
        {"RUNE_GRACE": "inf"},
        {"RUNE_URL": "127.0.0.1:8080"},
        {"RUNE_URL": "http://"},
        {"RUNE_URL": "http://127.0.0.1:99999"},
        {"RUNE_URL": "http://127.0.0.1:0"},
    ],
)
def test_what_nothing_could_run_with_is_refused_by_name(
    given: dict[str, str], tmp_path: pathlib.Path
) -> None:
    with pytest.raises(SettingsError, match=next(iter(given))):
        load_settings(given, tmp_path)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("RUNE_JOURNAL", "postgresql://[bad"),
        ("RUNE_STATE", "redis://host:port"),
        ("RUNE_QUEUE", "amqp://host:99999"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_by_name(
    name: str, url: str, tmp_path: pathlib.Path
) -> None:
    fine = {"RUNE_JOURNAL": "postgresql://a:1,b:2/rune", "RUNE_STATE": "redis://a", "RUNE_QUEUE": "amqp://a"}
    assert load_settings(fine, tmp_path).clustered

    with pytest.raises(SettingsError, match=name):
        load_settings({**fine, name: url}, tmp_path)


def test_a_journal_without_a_file_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SettingsError, match="names no file"):
        _ = load_settings({"RUNE_JOURNAL": "sqlite:///"}, tmp_path).database


def test_an_unknown_setting_in_the_file_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").write_text("slotz = 5\n")

    with pytest.raises(SettingsError, match=r"rune\.toml: unknown setting `slotz`"):
        load_settings({}, tmp_path)


def test_what_is_secret_is_not_repeated(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").write_text("smtp_url = 12345\n")

    with pytest.raises(SettingsError, match="RUNE_SMTP_URL") as refused:
        load_settings({}, tmp_path)

    assert "12345" not in refused.value.message


def test_a_file_that_is_no_text_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(SettingsError, match=r"rune\.toml: byte 0 is not UTF-8"):
        load_settings({}, tmp_path)


def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").mkdir()

    with pytest.raises(SettingsError, match=r"rune\.toml: is a directory"):
        load_settings({}, tmp_path)
