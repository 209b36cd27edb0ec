"""Decodes bytes that come from outside of the process: messages, stream entries, requests, stored letters.

A decoder reports malformed input in several ways: an invalid byte inside a string is a `UnicodeDecodeError`, which is
no `msgspec.DecodeError`, and deep nesting is a `RecursionError`. Here every failure is one error, so that no caller
handles some of them and is ended by the others.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from rune.errors import RuneError

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")


class MalformedDataError(RuneError):
    """Data cannot be decoded, or has another shape than expected."""

    code = "MALFORMED_DATA"


class Decoder(Protocol[_T_co]):
    """A decoder of msgspec, for JSON or msgpack."""

    def decode(self, data: bytes, /) -> _T_co: ...


def decode(decoder: Decoder[_T], data: bytes | msgspec.Raw) -> _T:
    """Decode data; raise MalformedDataError if that is impossible."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedDataError(str(error) or type(error).__name__) from None


def decode_text(data: bytes) -> str:
    """Decode UTF-8; raise MalformedDataError if the bytes are not valid."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedDataError(str(error)) from None
