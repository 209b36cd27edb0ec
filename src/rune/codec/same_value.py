"""Whether two JSON texts are the same value: as `==` of expressions has it, so that neither white space nor the order
of keys nor the way a text or number is written matters, and 1 equals 1.0.

One value is held in memory at a time, and only if the texts differ.
"""

from __future__ import annotations

import hashlib

import msgspec

from rune.core.definition.strict_json import MAX_INT, MIN_INT

_BOM = b"\xef\xbb\xbf"


def _number(text: str) -> int | float:
    """Return a number with fraction or exponent, as an integer if it is one that a payload can hold."""
    number = float(text)
    return int(number) if number.is_integer() and MIN_INT <= number <= MAX_INT else number


_DECODER = msgspec.json.Decoder(float_hook=_number)
_ENCODER = msgspec.json.Encoder(order="sorted")


def value_digest(text: bytes) -> bytes:
    """Return a digest that texts have in common if they are the same value."""
    return hashlib.sha256(_ENCODER.encode(_DECODER.decode(text.removeprefix(_BOM)))).digest()


def same_value(one: bytes, other: bytes) -> bool:
    """Return whether two JSON texts within the limits of payloads are the same value."""
    return one == other or value_digest(one) == value_digest(other)
