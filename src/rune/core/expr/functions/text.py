"""Functions on text: search, replace, encode, hash, and convert values to and from text."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import urllib.parse
from collections.abc import Callable
from typing import Any

import msgspec

from rune.core.definition.strict_json import lone_escapes
from rune.core.expr import operators, patterns
from rune.core.expr.budget import (
    ELEMENT_NS,
    MAX_JSON_DEPTH,
    SHORT_TEXT,
    BudgetError,
    Evaluation,
    ExpressionError,
    Meter,
    meter_of,
)
from rune.core.expr.functions.table import Table, list_of, text_of
from rune.core.expr.values import kind_name, kind_of, to_text, write_json, write_text
from rune.core.json_decoder import read_json

TEXT = Table("text")
# Estimated nanoseconds per character of text that is changed, and of text that becomes parts of a list.
_CHANGE_NS = 30
_SPLIT_NS = 60
_WINDOW_CHARS = 256 * 1024

ENCODING = Table("encoding")
JSONS = Table("JSON and types")
# Estimated nanoseconds per character.
_ENCODE_NS = 10

_QUOTE_NS = 150
_PARSE_NS = 100


def _build(run: Evaluation, text: str, cost: int = _CHANGE_NS) -> None:
    run.build(len(text))
    if len(text) > SHORT_TEXT:
        run.charge(len(text) * cost)


@TEXT.add("upper(text)", "The text in upper case.", 'upper("ada")', '"ADA"')
def upper(run: Evaluation, text: Any, /) -> str:
    _build(run, text_of(text, "upper"))
    capital = str(text.upper())
    # Some letters become two or three in upper case.
    run.build(len(capital) - len(text))
    return capital


@TEXT.add("lower(text)", "The text in lower case.", 'lower("ÄB")', '"äb"')
def lower(run: Evaluation, text: Any, /) -> str:
    _build(run, text_of(text, "lower"))
    return str(text.lower())


@TEXT.add("trim(text)", "The text without white space at its ends.", 'trim("  ada ")', '"ada"')
def trim(run: Evaluation, text: Any, /) -> str:
    _build(run, text_of(text, "trim"))
    return str(text.strip())


@TEXT.add(
    "split(text, separator)",
    "The parts between separators; without one, the words.",
    'split("a,b", ",")',
    '["a", "b"]',
)
def split(run: Evaluation, text: Any, separator: Any = None, /) -> list[Any]:
    _build(run, text_of(text, "split"), _SPLIT_NS)
    if separator is None:
        return run.new_list(text.split())
    if not text_of(separator, "split"):
        raise ExpressionError("split() takes a separator that is not empty")
    return run.new_list(text.split(separator))


@TEXT.add(
    "join(list, separator)",
    "The elements as text, joined by the separator.",
    'join(["a", 1, true], "-")',
    '"a-1-true"',
)
def join(run: Evaluation, items: Any, separator: Any = "", /) -> str:
    run.iterate(len(list_of(items, "join")))
    before = run.left
    run.build(len(text_of(separator, "join")) * len(items))
    run.weigh(items)
    meter = meter_of(run.scope)
    parts = [write_text(each, meter) for each in run.over(items, len(items), 2 * ELEMENT_NS)]
    text = str(separator.join(parts))
    run.build(max(0, len(text) - (before - run.left)))
    return text


@TEXT.add(
    "replace(text, old, new)",
    "The text with every `old` replaced.",
    'replace("a.b.c", ".", "/")',
    '"a/b/c"',
)
def replace(run: Evaluation, text: Any, old: Any, new: Any, /) -> str:
    if not text_of(old, "replace"):
        raise ExpressionError("replace() takes a text to replace that is not empty")
    if len(text_of(text, "replace")) > _WINDOW_CHARS:
        return _replace_by_window(run, text, old, text_of(new, "replace"))
    run.charge(len(text) * _CHANGE_NS)
    count = text.count(old)
    run.build(len(text) + count * (len(text_of(new, "replace")) - len(old)))
    return str(text.replace(old, new))


def _replace_by_window(run: Evaluation, text: str, old: str, new: str) -> str:
    """Replace in a long text, which may become short enough for the budget."""
    window = max(_WINDOW_CHARS, len(old))
    pieces: list[str] = []
    at = 0
    while at < len(text):
        # Long enough for every occurrence that begins within the window.
        part = text[at : at + window + len(old) - 1]
        run.charge(len(part) * _CHANGE_NS)
        size = len(part) + part.count(old) * (len(new) - len(old))
        *before, last = part.split(old)
        end = len(part) - len(last)
        following = max(window, end)
        run.build(size - max(0, len(part) - following))
        pieces += (new.join([*before, last[: following - end]]),)
        at += following
    return "".join(pieces)


@TEXT.add(
    "starts_with(text, prefix)",
    "Whether the text begins with the prefix.",
    'starts_with("abc", "ab")',
    "true",
)
def starts_with(run: Evaluation, text: Any, prefix: Any, /) -> bool:
    return operators.starts_with(text, prefix, run)


@TEXT.add(
    "ends_with(text, suffix)", "Whether the text ends with the suffix.", 'ends_with("abc", "bc")', "true"
)
def ends_with(run: Evaluation, text: Any, suffix: Any, /) -> bool:
    return operators.ends_with(text, suffix, run)


@TEXT.add(
    "matches(text, pattern)",
    "Whether the regular expression (RE2) matches anywhere in the text.",
    'matches("order-42", "^order-[0-9]+$")',
    "true",
)
def matches(run: Evaluation, text: Any, pattern: Any, /) -> bool:
    return patterns.search(text_of(text, "matches"), text_of(pattern, "matches"), run)


@TEXT.add(
    "find_all(text, pattern)",
    "Every match; where the pattern has groups, what they matched.",
    'find_all("a1 b22", "[0-9]+")',
    '["1", "22"]',
)
def find_all(run: Evaluation, text: Any, pattern: Any, /) -> list[Any]:
    return patterns.find_all(text_of(text, "find_all"), text_of(pattern, "find_all"), run)


@ENCODING.add("base64(text)", "The text's UTF-8 bytes in base64.", 'base64("hi")', '"aGk="')
def base64_(run: Evaluation, text: Any, /) -> str:
    run.build(2 * len(text_of(text, "base64")))
    run.charge(len(text) * _ENCODE_NS)
    return base64.b64encode(text.encode()).decode()


@ENCODING.add(
    "from_base64(text)", "The text whose UTF-8 bytes are given in base64.", 'from_base64("aGk=")', '"hi"'
)
def from_base64(run: Evaluation, text: Any, /) -> str:
    run.build(len(text_of(text, "from_base64")))
    run.charge(len(text) * _ENCODE_NS)
    plain = text.strip().replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        raise ExpressionError("from_base64() cannot read the text") from None


@ENCODING.add(
    "sha256(text)",
    "The SHA-256 hash, in hexadecimal.",
    'sha256("")',
    '"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"',
)
def sha256(run: Evaluation, text: Any, /) -> str:
    run.scan(len(text_of(text, "sha256")), _ENCODE_NS)
    return hashlib.sha256(text.encode()).hexdigest()


@ENCODING.add(
    "hmac_sha256(text, key)",
    "The HMAC-SHA-256 of the text, in hexadecimal.",
    'hmac_sha256("hi", "k")',
    '"233f8e9a13f278f19758a015d82f51e6e27966f1efc29d2cffb5d1a45ae9dc4c"',
)
def hmac_sha256(run: Evaluation, text: Any, key: Any, /) -> str:
    run.scan(len(text_of(text, "hmac_sha256")) + len(text_of(key, "hmac_sha256")), _ENCODE_NS)
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


@ENCODING.add(
    "url_encode(value)", "The value's text, safe in any part of a URL.", 'url_encode("a b&c")', '"a%20b%26c"'
)
def url_encode(run: Evaluation, value: Any, /) -> str:
    if type(value) in (list, dict):
        raise ExpressionError(f"url_encode() takes text or a number, not {kind_name(value)}")
    text = to_text(value)
    run.build(3 * len(text))
    run.charge(len(text) * _QUOTE_NS)
    return urllib.parse.quote(text, safe="")


@ENCODING.add(
    "uuid()",
    "A new identifier; the same one if the same attempt is repeated.",
    "len(uuid())",
    "36",
    pure=False,
)
def uuid(run: Evaluation, /) -> str:
    try:
        seed = run.scope["@seed"]
    except KeyError:
        raise ExpressionError("uuid() is not available here") from None
    run.counter += 1
    run.build(36)
    name = f"{seed}/{run.salt}/{run.counter}"
    digits = bytearray(hashlib.sha256(name.encode()).digest()[:16])
    # Version 5 and the standard variant: a UUID that is derived from a name by hashing.
    digits[6] = digits[6] & 0x0F | 0x50
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@JSONS.add("str(value)", "The value as it appears inside text.", "str([1, null])", '"[1,null]"')
def str_(run: Evaluation, value: Any, /) -> str:
    return _write_text(run, value, write_text)


@JSONS.add("json(value)", "The value as compact JSON.", 'json({"a": "b"})', '"{\\"a\\":\\"b\\"}"')
def json(run: Evaluation, value: Any, /) -> str:
    return _write_text(run, value, write_json)


def _write_text(run: Evaluation, value: Any, write: Callable[[Any, Meter], str]) -> str:
    # Accounted for before it is written, because shared parts are written repeatedly, and afterwards, because escapes
    # are longer than the characters they encode.
    before = run.left
    run.weigh(value)
    text = write(value, meter_of(run.scope))
    run.build(max(0, len(text) - (before - run.left)))
    return text


@JSONS.add("parse_json(text)", "The value that a JSON text holds.", 'parse_json("[1, 2]")', "[1, 2]")
def parse_json(run: Evaluation, text: Any, /) -> Any:
    run.build(len(text_of(text, "parse_json")))
    run.charge(len(text) * _PARSE_NS)
    try:
        value = read_json(text.encode())
    except (msgspec.MsgspecError, ValueError) as error:
        # The parser calls a text that ends half of a pair of escapes truncated.
        halved = lone_escapes(text.encode(errors="replace"), "")
        reason = halved[0].message if halved else error
        raise ExpressionError(f"parse_json() cannot read the text: {reason}") from None
    if _too_deep(value):
        raise BudgetError(f"the JSON is nested too deeply (limit: {MAX_JSON_DEPTH})")
    return value


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [each for each in level if type(each) is list or type(each) is dict]
        if not level:
            return False
        level = [child for each in level for child in (each if type(each) is list else each.values())]
    return True


@JSONS.add("type(value)", "One of null, boolean, number, string, array, object.", "type([1])", '"array"')
def type_(run: Evaluation, value: Any, /) -> str:
    return kind_of(value)
