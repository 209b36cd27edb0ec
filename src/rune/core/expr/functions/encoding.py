"""Functions that encode, hash, generate identifiers, and convert values to and from text."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import urllib.parse
from collections.abc import Callable
from typing import Any

import msgspec

from rune.core.expr.budget import (
    MAX_JSON_DEPTH,
    BudgetError,
    Evaluation,
    ExpressionError,
    Meter,
    meter_of,
)
from rune.core.expr.functions.table import Table, text_of
from rune.core.expr.values import kind_name, kind_of, to_text, write_json, write_text

ENCODING = Table("encoding")
JSONS = Table("JSON and types")
# Estimated nanoseconds per character.
_ENCODE_NS = 10
_QUOTE_NS = 150
_PARSE_NS = 100


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
        value = msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, ValueError) as error:
        raise ExpressionError(f"parse_json() cannot read the text: {error}") from None
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
