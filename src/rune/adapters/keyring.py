"""The key ring seals what must not be read: AES-256-GCM, a random nonce for every seal, the newest key for new ones."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rune.ports.secret import KeyProblem, Unreadable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12


class KeyRing:
    """The first key seals, every key opens."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - who uses none need not wait

        self._ciphers: dict[str, AESGCM] = {key_name(key): AESGCM(key) for key in keys}

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys, the newest first."""
        return tuple(self._ciphers)

    def seal(self, data: bytes, bound: bytes) -> tuple[str, bytes]:
        """The name of the key, and the sealed data, which opens only with the same `bound`."""
        name = self.names[0]
        nonce = os.urandom(NONCE_BYTES)
        return name, nonce + self._ciphers[name].encrypt(nonce, data, bound)

    def open(self, name: str, sealed: bytes, bound: bytes) -> bytes:
        """The data, if it was sealed with a key of this ring and is unaltered."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        cipher = self._ciphers.get(name)
        if cipher is None:
            raise Unreadable(f"it was sealed with the key {name}, which is not among {', '.join(self.names)}")
        try:
            return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise Unreadable("what is stored was altered") from None


def key_name(key: bytes) -> str:
    """A key's name: tells keys apart and tells nothing of the key."""
    return hashlib.sha256(b"rune key name\0" + key).hexdigest()[:16]


def new_key() -> str:
    """A fresh key as text."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def read_keys(text: str, where: str) -> list[bytes]:
    """The keys in a text, one a line or separated by commas; `#` begins a remark. No refusal shows any of it."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    words = [word.strip() for line in lines for word in line.split(",") if word.strip()]
    if not words:
        raise KeyProblem(f"{where} holds no key", code="SECRET_KEY_INVALID")
    keys: list[bytes] = []
    for number, word in enumerate(words, 1):
        try:
            key = base64.b64decode(word.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise KeyProblem(
                f"{where}: key {number} is not {KEY_BYTES} bytes in base64", code="SECRET_KEY_INVALID"
            )
        keys.append(key)
    return keys
