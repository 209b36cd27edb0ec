"""Settings from the environment and from rune.toml, and the errors for invalid ones."""

from __future__ import annotations

import pathlib

import pytest

from rune.settings import Settings, SettingsError, describe_settings, load_settings


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RUNE_SLOTS": "many"}, "RUNE_SLOTS, or `slots` in rune.toml: `many` is not a whole number"),
        ({"RUNE_GRACE": "long"}, "`long` is not a number"),
        ({"RUNE_IN_PLACE": "maybe"}, "`maybe` is not `true` or `false`"),
        ({"RUNE_DURABILITY": "x"}, "`x` is not one of `full`, `relaxed`"),
        ({"RUNE_LOG_LEVEL": "loud"}, "is not one of `debug`, `info`, `warning`, `error`"),
    ],
)
def test_value_of_wrong_type_is_rejected_with_expected_type(
    environment: dict[str, str], message: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(environment, tmp_path)

    assert message in caught.value.message


@pytest.mark.parametrize(
    "environment",
    [
        {"RUNE_SLOTS": "0"},
        {"RUNE_SLOTS": "-1"},
        {"RUNE_HTTP_PER_HOST": "0"},
        {"RUNE_PARTITIONS": "0"},
        {"RUNE_MAX_WAITING": "-1"},
        {"RUNE_API_FAILED_LOGINS": "-1"},
        {"RUNE_HEARTBEAT": "0"},
        {"RUNE_HEARTBEAT_TIMEOUT": "5"},
        {"RUNE_HEARTBEAT": "20"},
        {"RUNE_GRACE": "-1"},
        {"RUNE_START_TIMEOUT": "-1"},
        {"RUNE_GRACE": "nan"},
        {"RUNE_GRACE": "inf"},
        {"RUNE_PUBLIC_URL": "rune.example.com"},
        {"RUNE_TRUSTED_PROXIES": "10.0.0.0/8,proxy.example"},
        {"RUNE_TRUSTED_PROXIES": "10.0.0.1/8"},
        {"RUNE_URL": "127.0.0.1:8080"},
        {"RUNE_URL": "http://"},
        {"RUNE_URL": "http://127.0.0.1:99999"},
        {"RUNE_URL": "http://127.0.0.1:0"},
        {"RUNE_URL": "http://127.0.0.1:8080/api/v1"},
    ],
)
def test_out_of_range_value_is_rejected_by_setting_name(
    environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    with pytest.raises(SettingsError, match=next(iter(environment))):
        load_settings(environment, tmp_path)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("RUNE_JOURNAL", "postgresql://[bad"),
        ("RUNE_STATE", "redis://host:port"),
        ("RUNE_STATE", "redis://host:6379,other:port"),
        ("RUNE_QUEUE", "amqp://host:99999"),
    ],
)
def test_malformed_store_url_is_rejected_by_setting_name(name: str, url: str, tmp_path: pathlib.Path) -> None:
    valid = {
        "RUNE_JOURNAL": "postgresql://a:1,b:2/rune",
        "RUNE_STATE": "redis://u:p@a:1,b:2",
        "RUNE_QUEUE": "amqp://a",
    }
    assert load_settings(valid, tmp_path).clustered

    with pytest.raises(SettingsError, match=name):
        load_settings({**valid, name: url}, tmp_path)


def test_sqlite_url_without_file_is_rejected(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SettingsError, match="names no file"):
        _ = load_settings({"RUNE_JOURNAL": "sqlite:///"}, tmp_path).database


def test_unknown_setting_in_toml_is_rejected_by_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").write_text("slotz = 5\n")

    with pytest.raises(SettingsError, match=r"rune\.toml: unknown setting `slotz`"):
        load_settings({}, tmp_path)


def test_error_does_not_contain_secret_value(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").write_text("smtp_url = 12345\n")

    with pytest.raises(SettingsError, match="RUNE_SMTP_URL") as caught:
        load_settings({}, tmp_path)

    assert "12345" not in caught.value.message


def test_toml_that_is_not_utf8_is_rejected(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(SettingsError, match=r"rune\.toml: byte 0 is not UTF-8"):
        load_settings({}, tmp_path)


def test_toml_path_that_is_a_directory_is_rejected(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rune.toml").mkdir()

    with pytest.raises(SettingsError, match=r"rune\.toml: is a directory"):
        load_settings({}, tmp_path)


def test_default_of_an_address_is_described_and_a_given_one_is_not() -> None:
    default = {each.name: each for each in describe_settings(Settings(), {})}
    assert (default["state"].value, default["state"].secret) == ("embedded", False)
    assert (default["api_key"].value, default["api_key"].secret) == (False, True)

    url = "redis://:secret@localhost/0"
    given = describe_settings(Settings(state=url), {"RUNE_STATE": url})
    assert [(each.value, each.secret) for each in given if each.name == "state"] == [(True, True)]
    assert "secret@" not in repr(given)
    # Settings that a program passes come from neither the environment nor the file.
    passed = {
        each.name: each for each in describe_settings(Settings(state=url, api_key="k3y-of-the-server"), {})
    }
    assert (passed["state"].value, passed["api_key"].value) == (True, True)
