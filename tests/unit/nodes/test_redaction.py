"""The redactor removes secrets in every encoding and leaves other text unchanged."""

from __future__ import annotations

import base64
import html
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rune.core.definition.strict_json import MAX_INT, MIN_INT
from rune.core.execution.outcome import Error, Failure, FanOut, Output, Suspend
from rune.nodes.redaction import (
    NAMES_ONLY,
    REDACTED,
    SECRETS_IN_USE,
    Redactor,
    by_name,
    protect_log,
    redacted,
)
from tests.support.growth import assert_linear

SECRET = 'S3cr+t/"ü<&> é\\x'
VALUES = st.text(min_size=6, max_size=40).filter(lambda text: "*" not in text)


@given(VALUES, st.binary(max_size=5), st.binary(max_size=5))
@example(SECRET, b"", b"x")
@example("sixsix", b"12", b"345")
def test_secret_is_redacted_in_every_encoding(value: str, before: bytes, after: bytes) -> None:
    raw = value.encode("utf-8", "surrogatepass")
    forms = [value, quote(raw), quote(raw, safe=""), quote_plus(raw), html.escape(value)]
    forms += [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
    forms += [json.dumps(form)[1:-1] for form in forms]
    forms += [json.dumps(form)[1:-1].replace("/", r"\/") for form in forms[-3:]]
    redactor = Redactor([value])

    for form in forms:
        assert form not in redactor.text(f"<{form}>")
        assert redactor.value({"a": [form]}) != {"a": [form]}
        assert redactor.bytes(f"\0{form}".encode("utf-8", "surrogatepass")) != f"\0{form}".encode(
            "utf-8", "surrogatepass"
        )
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        longer = encode(before + raw + after).decode()
        assert redactor.finds(longer)
        assert redactor.value([{"b": longer}]) != [{"b": longer}]


LONG_VALUES = st.text(min_size=8, max_size=40).filter(lambda text: "*" not in text)


def unicode_escaped(value: str) -> str:
    units = value.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


@given(LONG_VALUES, st.binary(max_size=80), st.booleans())
@example("hunter2hunter2", b"x" * 50, True)
@example("hunter2Lunter2", b"x" * 50, False)
def test_escaped_wrapped_and_hex_secret_is_redacted(value: str, before: bytes, indented: bool) -> None:
    raw = value.encode("utf-8", "surrogatepass")
    wrapped = base64.encodebytes(before + raw + b"tail").decode()
    if indented:
        wrapped = wrapped.replace("\n", "\r\n\t")
    forms = [
        unicode_escaped(value),
        unicode_escaped(value).upper().replace("\\U", "\\u"),
        json.dumps(unicode_escaped(value))[1:-1],
        "".join(f"&#{ord(each)};" for each in value),
        "".join(f"&#x{ord(each):04X};" for each in value),
        raw.hex(),
        raw.hex().upper(),
        wrapped,
        json.dumps(wrapped)[1:-1],
    ]
    redactor = Redactor([value])

    for form in forms:
        assert REDACTED in redactor.text(f"<{form}>"), form
        assert redactor.value({"a": [form]}) != {"a": [form]}, form


@pytest.mark.parametrize(
    "form", ["HUNTER2-KEY", "hunter2-key", "Hunter2-Key", "%48UNTER2%2DKEY", "\\u0048unter2-key"]
)
def test_secret_in_other_letter_case_is_redacted(form: str) -> None:
    redactor = Redactor(["hunTer2-Key"])

    assert redactor.text(f"<{form}>") == f"<{REDACTED}>"
    assert redactor.value([form]) == [REDACTED]


def test_other_letter_case_of_shorter_secret_is_kept() -> None:
    assert Redactor(["orders"]).text("Orders and ORDERS") == "Orders and ORDERS"


def test_value_with_backslash_before_n_is_redacted() -> None:
    assert Redactor(["x\\newsecret"]).value(["x\\newsecret"]) == [REDACTED]


BACKSLASHES = st.text(alphabet="\\\\\\u5c%&#92;.n", min_size=6, max_size=12)


@given(BACKSLASHES, st.lists(st.integers(0, 4), min_size=16, max_size=16), st.integers(0, 3))
@example("\\\\server\\share", [0] * 16, 1)
@example("\\%5csecret", [0, 4, *[0] * 14], 1)
@example("x\\u005cx", [0] * 16, 2)
def test_secret_with_backslashes_is_redacted_in_mixed_escapes(
    value: str, ways: list[int], nesting: int
) -> None:
    forms: list[Callable[[str], str]] = [
        str,
        unicode_escaped,
        percent_escaped,
        lambda each: f"&#{ord(each):d};",
        lambda each: f"&#x{ord(each):x};",
    ]
    text = "".join(
        each if each.isalnum() else forms[way](each) for each, way in zip(value, ways, strict=False)
    )
    for _ in range(nesting):
        text = json.dumps(text)[1:-1]

    assert REDACTED in Redactor([value]).text(f"<{text}>")


def percent_escaped(value: str) -> str:
    return "".join(f"%{byte:02x}" for byte in value.encode("utf-8", "surrogatepass"))


@given(VALUES, st.integers(0, 2**40))
def test_partly_percent_encoded_secret_is_redacted(value: str, which: int) -> None:
    value = value.encode("utf-8", "replace").decode()
    parts = [
        quote(each, safe="") if which >> place & 1 or each == "%" else each
        for place, each in enumerate(value)
    ]

    shown = Redactor([value]).text(f"?a={''.join(parts)}&b")
    assert shown.startswith(f"?a={REDACTED}")
    assert len(shown) < len(f"?a={REDACTED}&b") + 3  # half of an escape may be left


@given(st.text(alphabet="abcdefgh", min_size=1, max_size=5))
def test_short_secret_is_redacted_as_whole_word(value: str) -> None:
    redactor = Redactor([value])

    assert redactor.text(f"pass={value}; next") == f"pass={REDACTED}; next"
    assert redactor.text(f"xx{value}xx") == f"xx{value}xx"


def test_pair_is_redacted_as_whole() -> None:
    redactor = Redactor(["password1", "me:password1"])
    header = base64.b64encode(b"me:password1").decode()

    assert redactor.text(f"Basic {header}") == f"Basic {REDACTED}"
    assert redactor.text("me:password1") == REDACTED


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(MIN_INT, MAX_INT)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_value_without_secret_is_returned_unchanged(value: Any) -> None:
    assert Redactor(["a-secret-that-is-nowhere"]).value(value) is value


def test_keys_and_values_are_redacted_at_any_depth() -> None:
    redactor = Redactor(["hunter2hunter2", "424242424242"])
    value = {"a": [{"hunter2hunter2": 1}, "x hunter2hunter2 y"], "n": 424242424242, "m": 42}

    assert redactor.value(value) == {"a": [{REDACTED: 1}, f"x {REDACTED} y"], "n": REDACTED, "m": 42}


def test_outcomes_are_redacted() -> None:
    redactor = Redactor(["hunter2hunter2"])
    clean, waiting = Output({"a": 1}, "true"), Suspend(until=1)

    assert redactor.outcome(clean) is clean
    assert redactor.outcome(waiting) is waiting
    assert redactor.outcome(Output("hunter2hunter2", "true")) == Output(REDACTED, "true")
    assert redactor.outcome(FanOut(1, ["hunter2hunter2"])) == FanOut(1, [REDACTED])
    failed = redactor.outcome(
        Failure(Error("X", "got hunter2hunter2", {"body": "hunter2hunter2"}, engine=True))
    )
    assert failed == Failure(Error("X", f"got {REDACTED}", {"body": REDACTED}, engine=True))


@pytest.mark.parametrize("length", range(4, 14))
def test_truncated_secret_is_redacted(length: int) -> None:
    redactor = Redactor(["hunter2hunter2"])
    part = "hunter2hunter2"[:length]
    error = redactor.error(Error("X", f"got {part}…", {"body": f"...{part}"}))

    assert (error.message, error.details) == (f"got {REDACTED}", {"body": f"...{REDACTED}"})


@pytest.mark.parametrize("cut", range(4, 15))
def test_truncated_escaped_secret_is_redacted(cut: int) -> None:
    value = "hunter2/\\\\meadow4"
    escapes = [json.dumps(value)[1:-1], quote(value, safe=""), unicode_escaped(value)]
    for text in (form[: len(form) * cut // 16] for form in escapes):
        error = Redactor([value]).error(Error("X", f"100% {text}…"))

        assert error.message == f"100% {REDACTED}"


def test_error_redacts_sensitive_fields_and_url_users() -> None:
    details = {
        "headers": {"Authorization": "Bearer abc", "Set-Cookie": ["a=b"], "X-Api-Key": "k", "Age": "5"},
        "usage": {"prompt_tokens": 12},
        "password": "p",
        "code": "E17",
        "author": "Ada",
        "url": "https://me:pw@shop.example/x",
    }
    error = NAMES_ONLY.error(
        Error("X", "GET https://me:pw@shop.example/ with Authorization: Basic bWU6cHc=", details)
    )

    assert error.message == f"GET https://{REDACTED}@shop.example/ with Authorization: {REDACTED}"
    assert error.details == {
        "headers": {"Authorization": REDACTED, "Set-Cookie": [REDACTED], "X-Api-Key": REDACTED, "Age": "5"},
        "usage": {"prompt_tokens": 12},
        "password": REDACTED,
        "code": "E17",
        "author": "Ada",
        "url": f"https://{REDACTED}@shop.example/x",
    }


@pytest.mark.parametrize(
    "text",
    ["mail ada@example.com", "see https://x.example/a@b", "Basic authentication failed", "cookies are fine"],
)
def test_text_without_secret_is_unchanged(text: str) -> None:
    assert by_name(text) == text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://x.example/?a=1&token=t#key=k", "https://x.example/?a=1&token=***#key=***"),
        ("https://x.example/?token?x=t", "https://x.example/?token?x=***"),
        ("https://x.example/?a?b=1;c&sig=s", "https://x.example/?a?b=1;c&sig=***"),
        ("https://me:pw@x.example/?token&secret=", "https://***@x.example/?token&secret=***"),
    ],
)
def test_url_is_shown_without_secret_parameters(url: str, shown: str) -> None:
    assert redacted(url) == shown


GROWING = [
    "\\", "%", "%5c", "\\u005c", "\\\\u", "&", "&#", "&#0", "&#9", "0", "+", "?", "#a", "@", "://", "\n", "\r\n\t",
    "\\n", "\\\\r", "\\t", "cookie ", " ", "h", "hunt", "-", "=", "\\.", ".", "\\h",
]  # fmt: skip
GROWING_VALUES = ["hunter2-hunter2", "\\\\server\\hunter2", "-----hunter2-----", "......hunter2", "\\" * 12]


@pytest.mark.parametrize("value", [None, *GROWING_VALUES])
@pytest.mark.parametrize("unit", GROWING)
def test_time_is_proportional_to_text(value: str | None, unit: str) -> None:
    redactor = Redactor([] if value is None else [value])
    whole = base64.b64encode(b"hunter2-hunter2").decode()
    # With the parts of a value, so that no check ends early because nothing resembles it.
    beginning = f"% &# hunter2 {whole[:6]}\n{whole[6:]} hunter2-hunte \\n"

    def work(size: int) -> None:
        text = beginning + unit * (size // len(unit))
        redactor.value({"a": text})
        redactor.error(Error("X", text, {"body": text}))
        redactor.error(Error("X", f"{text}hunter2"))
        redacted(f"https://x.example/{text}")

    assert_linear(work, 2_000)


def test_text_with_long_html_number_is_redacted() -> None:
    assert Redactor(["hunter2-x"]).text(f"&#{'9' * 5000}; hunter2&#45;x") == f"&#{'9' * 5000}; {REDACTED}"


@pytest.fixture
def in_use() -> Iterator[Redactor]:
    redactor = Redactor(["hunter2hunter2"])
    SECRETS_IN_USE.add(redactor)
    yield redactor
    SECRETS_IN_USE.remove(redactor)


@pytest.fixture
def factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    protect_log()
    yield
    logging.setLogRecordFactory(before)


def test_log_redacts_secrets_in_use(
    in_use: Redactor, factory: None, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("rune", "rune.worker", "rune.node.deep", "asyncio"):
        logging.getLogger(name).warning("got %s from %s", "hunter2hunter2", {"x": "hunter2hunter2"})
        try:
            raise RuntimeError("with hunter2hunter2 inside")
        except RuntimeError:
            logging.getLogger(name).exception("it failed")

    assert "hunter2" not in caplog.text
    assert caplog.text.count("RuntimeError: with *** inside") == 4
    assert "got *** from {'x': '***'}" in caplog.text


def test_log_redacts_url_users_by_name(factory: None, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("rune.worker").warning("https://me:pw@shop.example/ %d", 5)
    logging.getLogger("rune.worker").warning("100%% of %s", "hunter2hunter2")

    assert caplog.messages == [f"https://{REDACTED}@shop.example/ 5", "100% of hunter2hunter2"]


def test_unreferenced_redactor_is_dropped() -> None:
    SECRETS_IN_USE.add(Redactor(["forgotten-value"]))

    assert SECRETS_IN_USE.text("forgotten-value") == "forgotten-value"


def test_protect_log_twice_installs_one_factory(factory: None) -> None:
    installed = logging.getLogRecordFactory()
    protect_log()

    assert logging.getLogRecordFactory() is installed
