"""Decodes JSON at a cost in proportion to its size, whatever its numbers are.

msgspec reads most numbers in some 40 ns, but `1e300` in 60 µs: it shifts a decimal by the exponent. A text of one
megabyte has 170,000 of them. Of a text that may have such a number, Python reads those with a fraction or an exponent.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")

_SAME_DIGITS = bytes.maketrans(b"123456789E+-", b"000000000e00")
_LONG_EXPONENT = b"0e00"  # two digits, or a sign and one


def finite(text: str) -> float:
    """Return a number; raise what msgspec raises if it is too large. A function of Python, since other threads run
    between two calls of one, however many numbers a text has."""
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise msgspec.ValidationError("Number out of range")
    return number


class JsonDecoder(Generic[T]):
    """Decodes JSON to a type as `msgspec.json.Decoder` does. msgspec reads what the type calls a float without the
    hook, so no type has a list of them that a client may fill."""

    @overload
    def __init__(self: JsonDecoder[Any], *, strict: bool = True) -> None: ...
    @overload
    def __init__(self, type: type[T], *, strict: bool = True) -> None: ...
    @overload
    def __init__(self: JsonDecoder[Any], type: Any, *, strict: bool = True) -> None: ...
    def __init__(self, type: Any = Any, *, strict: bool = True) -> None:
        self._decoder = msgspec.json.Decoder(type, strict=strict)
        self._exponent_decoder = msgspec.json.Decoder(type, strict=strict, float_hook=finite)

    def decode(self, data: bytes | bytearray | str | msgspec.Raw, /) -> T:
        text = data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else bytes(data)
        long_exponent = _LONG_EXPONENT in text.translate(_SAME_DIGITS)
        decoded: T = (self._exponent_decoder if long_exponent else self._decoder).decode(text)
        return decoded


_ANY = JsonDecoder()


def read_json(data: bytes | bytearray | str | msgspec.Raw, /) -> Any:
    """Decode JSON to plain data."""
    return _ANY.decode(data)
