"""Texts: how paths, references, timers and tokens are written where a script can make them too."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.effect import Timer
from rune.core.lineage import ROOT, Path
from rune.core.token import START, Arrived, Fate, Ref, Token

_LETTER = {"start": "s", "result": "r", "item": "i", "entered": "e"}
_KIND: dict[str, Any] = {letter: kind for kind, letter in _LETTER.items()}
_TIMER = {"wait": "w", "retry": "r", "join": "j", "finish": "f", "deadline": "d"}
_TIMER_KIND: dict[str, Any] = {letter: kind for kind, letter in _TIMER.items()}
_FATES = {fate.value: fate for fate in Fate}

Sent = tuple[int, str, str, str | bool, str, str, int, bool, str | bool, int, int]
"""A token as scripts send it: node, path, payload, error, arrived, fate, attempt, resumed, signal, items, at."""


def path_out(path: Path) -> str:
    """`3.5.7.2`; the root is the empty text."""
    return ".".join(map(str, path)) if path else ""


def path_in(text: str) -> Path:
    return tuple(map(int, text.split("."))) if text else ROOT


def ref_out(ref: Ref) -> str:
    """`s`, or letter, node and path: `r7@3.5`."""
    if ref.kind == "start":
        return "s"
    return f"{_LETTER[ref.kind]}{ref.node}@{path_out(ref.path)}"


def ref_in(text: str) -> Ref:
    if text == "s":
        return START
    node, _, path = text[1:].partition("@")
    return Ref(_KIND[text[0]], int(node), path_in(path))


def maybe_ref_out(ref: Ref | None) -> str | bool:
    return False if ref is None else ref_out(ref)


def maybe_ref_in(text: str | bool) -> Ref | None:
    return ref_in(text) if isinstance(text, str) else None


def arrived_out(arrived: tuple[Arrived, ...]) -> str:
    return " ".join(f"{each.edge}={ref_out(each.payload)}" for each in arrived)


def arrived_in(text: str) -> tuple[Arrived, ...]:
    if not text:
        return ()
    parts = (each.partition("=") for each in text.split(" "))
    return tuple(Arrived(int(edge), ref_in(payload)) for edge, _, payload in parts)


def token_out(token: Token) -> Sent:
    return (
        token.node,
        path_out(token.path),
        ref_out(token.payload),
        maybe_ref_out(token.error),
        arrived_out(token.arrived),
        token.fate.value,
        token.attempt,
        token.resumed,
        False if token.signal is None else token.signal,
        token.items,
        token.at,
    )


def token_in(sent: Sent) -> Token:
    node, path, payload, error, arrived, fate, attempt, resumed, signal, items, at = sent
    return Token(
        node,
        path_in(path),
        ref_in(payload),
        maybe_ref_in(error),
        arrived_in(arrived),
        _FATES[fate],
        attempt,
        resumed,
        signal if isinstance(signal, str) else None,
        items,
        at,
    )


_TOKEN_ENCODER = msgspec.msgpack.Encoder()
_TOKEN_DECODER = msgspec.msgpack.Decoder(Sent)


def token_bytes(token: Token) -> bytes:
    """A token as it travels in a stream."""
    return _TOKEN_ENCODER.encode(token_out(token))


def token_of(data: bytes) -> Token:
    return token_in(_TOKEN_DECODER.decode(data))


def timer_out(timer: Timer) -> str:
    return f"{_TIMER[timer.kind]}|{timer.node}|{path_out(timer.path)}|{timer.number}"


def timer_in(text: str) -> Timer:
    letter, node, path, number = text.split("|")
    return Timer(_TIMER_KIND[letter], int(node), path_in(path), int(number))


def listener_prefix(name: str, path: Path | None) -> bytes:
    """How the members of those begin who listen for a name, in one lineage or in any."""
    text = name.encode()
    if path is None:
        return b"n%08x%b" % (len(text), text)
    return b"p%08x%b%b/" % (len(text), text, _sortable(path))


def listener_members(name: str, path: Path, node: int, since: int) -> tuple[bytes, bytes]:
    """The two members of one listener, both of which sort the longest wait first."""
    tail = f"!{path_out(path)}!{node:08d}".encode()
    when = b"%015d" % since
    who = _sortable(path)
    text = name.encode()
    head = b"%08x%b" % (len(text), text)
    return b"n" + head + when + who + tail, b"p" + head + who + b"/" + when + tail


def listener_in(member: bytes) -> tuple[str, int, Path, int]:
    """Name, since when, path and node of a member by name."""
    size = int(member[1:9], 16)
    name = member[9 : 9 + size].decode()
    since = int(member[9 + size : 24 + size])
    _, path, node = member[24 + size :].decode().split("!")
    return name, since, path_in(path), int(node)


def _sortable(path: Path) -> bytes:
    return b"".join(b"%08x" % each for each in path)
