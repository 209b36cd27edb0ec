"""Values behind names that indicate a secret are hidden in any text, and other text is left as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rune.core.execution.outcome import Error
from rune.nodes.named_secrets import hide_named
from rune.nodes.redaction import NAMES_ONLY, SECRETS_IN_USE
from tests.support.growth import assert_linear

NAMES = [
    "password", "Password", "DB_PASSWORD", "passwd", "token", "accessToken", "refresh_token", "client_secret", "secret",
    "api_key", "api-key", "apikey", "x-api-key", "X-Auth-Token", "private_key", "authorization", "Authorization",
    "Proxy-Authorization", "cookie", "Set-Cookie", "jwt", "session_id", "auth", "pwd", "settings.password",
]  # fmt: skip
SECRET = "hunter2-S3cr/t+x"
FORMS = [
    "{name}={value}", "{name}: {value}", "{name} = {value}", "{name}:{value}", "{name} => '{value}'",
    "{name}='{value}'",
    '{name}="{value}"', '{{"{name}": "{value}"}}', "{{'{name}': '{value}'}}", '{{"{name}":"{value}","a":1}}',
    r'{{\"{name}\": \"{value}\", \"a\": 1}}', r'{{\\\"{name}\\\": \\\"{value}\\\"}}', "{name}=b'{value}'",
    "https://h/p?a=1&{name}={value}&b=2", "https://h/p?{name}={value}", 'print("{name}={value}")', "f({name}={value})",
    "f({name}='{value}', a=1)", "--{name}={value}", "a=1;{name}={value};b=2", "a, {name}={value}, b",
    "{name}: Bearer {value}",
    "{name}:\r\n  {value}", "{{'{name}': ['{value}', {{'x': '{value}'}}]}}", "{name}={value}\nnext line",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_value_behind_each_name_is_hidden_in_each_form(form: str) -> None:
    for name in NAMES:
        text = form.format(name=name, value=SECRET)
        for shown in (
            hide_named(text),
            hide_named(f"before {text} after"),
            hide_named(f"ValueError: {text}"),
        ):
            assert SECRET not in shown, text
            assert "***" in shown, text
            assert name in shown, shown
            assert hide_named(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("secret=x api-key: x token=x", "secret=*** api-key: *** token=***"),
        ("?api_key=a&token=b&password=c&page=4", "?api_key=***&token=***&password=***&page=4"),
        ("Cookie: a=1; b=2 and more", "Cookie: *** and more"),
        ('Authorization: Digest username="me", response="abc" after', "Authorization: *** after"),
        ("Server=db;Password=a;b!c;Timeout=3", "Server=db;Password=***;Timeout=3"),
        ("password=a,b&c)d", "password=***"),
        (r'{"password": "a\"b\\", "user": "bob"}', '{"password": "***", "user": "bob"}'),
        ('password="never closed\nnext', 'password="***\nnext'),
        ("credentials: {a: [1, 2}\nnext", "credentials: ***\nnext"),
    ],
)
def test_value_is_hidden_to_its_end_and_no_further(text: str, shown: str) -> None:
    assert hide_named(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "password: must be at least 8 characters", "token is missing", "token: expected text",
        "password=None",
        "def login(self, password: str, token: Optional[str] = None) -> None:", "api_key:",
        "usage: prompt_tokens=12, max_tokens: 4096", '{"total_tokens": 7, "token_count": 12}', "tokenizer=gpt2",
        "secretary: Bob", "author: Ada", "authors=2", "passwordless: true",
        "std::token::kind", "password=", "token: ",
        "cookies: []", "credentials = {}",
        "password authentication failed for user", "mail ada@example.com", "key: value", "compass: north",
        "cookies are",
    ],
)  # fmt: skip
def test_harmless_text_is_unchanged(text: str) -> None:
    assert hide_named(text) == text


@given(st.text(max_size=30))
@example('password="a\\')
def test_quoted_json_value_of_any_text_is_hidden(value: str) -> None:
    for nested in (json.dumps, lambda each: json.dumps(json.dumps(each))):
        shown = hide_named(nested({"password": value, "user": "bob"}))
        assert shown == nested({"password": "***" if value else value, "user": "bob"})


UNITS = [
    "password=", "password=x ", 'password="', "password='\n", 'password=\\"', "password={", "password=[", "token",
    "token.", "token-", "token: ", "cookie: a=1; ", "authorization: digest a=b, ", "\\", "\\\\\"", "=", ":", " ", "\n",
    "(", "&", "&a",
    "password=x&", "password=x;a", "api ", "api key",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_time_is_proportional_to_text(unit: str) -> None:
    def work(size: int) -> None:
        for start in ("", "password=", 'password="', "password={", "cookie: a", "authorization: digest a="):
            hide_named(start + unit * (size // len(unit)))
            hide_named(unit * (size // len(unit)) + start)

    assert_linear(work, 2_000)


def test_messages_details_tracebacks_and_log_lines_are_redacted() -> None:
    details: dict[str, Any] = {"sent": "password=hunter2secret", "of": ['{"token": "hunter2secret"}']}
    error = NAMES_ONLY.error(
        Error("X", "api_key: hunter2secret", details, traceback="x\n  login(password='hunter2secret')")
    )
    shown = [error.message, error.traceback, str(error.details), SECRETS_IN_USE.text("secret=hunter2secret")]
    assert all("hunter2secret" not in each and "***" in each for each in shown), shown
