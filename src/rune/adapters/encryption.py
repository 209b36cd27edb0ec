"""Encryption of credentials at rest with AES-256-GCM: the key ring, where its keys come from, and the stored rows.

Keys come from RUNE_SECRET_KEY or from a file that only its owner can read. The newest key encrypts, all keys decrypt,
and every encryption uses a random nonce.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rune.adapters.private_files import make_private_folder
from rune.ports.credentials import (
    AnyFields,
    Credential,
    CredentialNameTakenError,
    CredentialSummary,
    CredentialUnreadableError,
    EncryptionKeyError,
    NewCredential,
    fields_of,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
_MAX_FILE_BYTES = 64 * 1024
_HEAD = "# Keys of Rune's credentials. The first one seals, all of them open. Without them the credentials are lost.\n"


class KeyRing:
    """Encryption keys, the newest first: the first key encrypts, every key decrypts."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        # Imported here because it is slow to load and only needed with credentials.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._ciphers: dict[str, AESGCM] = {key_name(key): AESGCM(key) for key in keys}

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys, the newest first."""
        return tuple(self._ciphers)

    def seal(self, data: bytes, bound: bytes) -> tuple[str, bytes]:
        """Encrypt data and return the name of the key with the ciphertext. `bound` is authenticated: decryption
        requires the same bytes."""
        name = self.names[0]
        nonce = os.urandom(NONCE_BYTES)
        return name, nonce + self._ciphers[name].encrypt(nonce, data, bound)

    def open(self, name: str, sealed: bytes, bound: bytes) -> bytes:
        """Decrypt data. CredentialUnreadableError if its key is not in the ring or the data was altered."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        cipher = self._ciphers.get(name)
        if cipher is None:
            raise CredentialUnreadableError(
                f"it is encrypted with the key {name}, which is not among {', '.join(self.names)}"
            )
        try:
            return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise CredentialUnreadableError("the stored data was altered") from None


def key_name(key: bytes) -> str:
    """Return a name that identifies a key and does not reveal it."""
    return hashlib.sha256(b"rune key name\0" + key).hexdigest()[:16]


def new_key() -> str:
    """Generate a key in base64."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def read_keys(text: str, where: str) -> list[bytes]:
    """Parse keys in base64, one per line or separated by commas; `#` starts a comment. Errors never quote the text."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    words = [word.strip() for line in lines for word in line.split(",") if word.strip()]
    if not words:
        raise EncryptionKeyError(f"{where} contains no key", code="SECRET_KEY_INVALID")
    keys: list[bytes] = []
    for number, word in enumerate(words, 1):
        try:
            key = base64.b64decode(word.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise EncryptionKeyError(
                f"{where}: key {number} is not {KEY_BYTES} bytes in base64", code="SECRET_KEY_INVALID"
            )
        keys.append(key)
    return keys


class KeySource:
    """Loads the key ring from the environment or a file. A changed file is reloaded, so that a new key does not need a
    restart."""

    def __init__(self, text: str, file: Path) -> None:
        self._text = text
        self.file = file
        self._ring: KeyRing | None = None
        self._seen: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"KeySource({self.where})"

    @property
    def where(self) -> str:
        """The variable or file that the keys come from, for error messages."""
        return "RUNE_SECRET_KEY" if self._text else str(self.file)

    @property
    def is_file(self) -> bool:
        return not self._text

    def ring(self) -> KeyRing:
        """Return the current keys; EncryptionKeyError if there are none or they cannot be used."""
        if self._text:
            if self._ring is None:
                self._ring = KeyRing(read_keys(self._text, self.where))
            return self._ring
        try:
            found = self.file.stat()
        except FileNotFoundError:
            raise EncryptionKeyError(
                f"there is no key: neither RUNE_SECRET_KEY nor the file {self.file}",
                code="SECRET_KEY_MISSING",
            ) from None
        except OSError as error:
            raise _unreadable(self.file, error) from None
        seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        if self._ring is None or seen != self._seen:
            self._ring, self._seen = KeyRing(self._read()), seen
        return self._ring

    def _read(self) -> list[bytes]:
        try:
            with self.file.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if mode & 0o077:
                    raise EncryptionKeyError(
                        f"{self.file} can be read by other users (mode {mode & 0o777:04o}): chmod 600 it",
                        code="SECRET_KEY_UNSAFE",
                    )
                text = file.read(_MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise _unreadable(self.file, error) from None
        return read_keys(text, str(self.file))

    def ring_beside(self, count: int, key: str | None) -> KeyRing:
        """Return the keys to encrypt a new credential with, given that `count` credentials exist and one of them uses
        `key`. A missing key file is created only if there are none: otherwise the key was lost, which is an error."""
        if not count:
            return self.ring_or_new()
        try:
            return self.ring()
        except EncryptionKeyError as problem:
            if problem.code != "SECRET_KEY_MISSING":
                raise
            encrypted = "1 credential is" if count == 1 else f"{count} credentials are"
            raise EncryptionKeyError(
                f"{problem.message}; {encrypted} encrypted with the key {key}: restore it", code=problem.code
            ) from None

    def ring_or_new(self) -> KeyRing:
        """Return the keys, after creating the key file if it does not exist."""
        if self.is_file and not self.file.exists():
            self.add()
        return self.ring()

    def add(self) -> str:
        """Add a new key in front of the existing ones and return its name. A crash leaves the old file or the new
        one."""
        if not self.is_file:
            raise EncryptionKeyError(
                "the keys come from RUNE_SECRET_KEY: add the new key there, in front of the old ones",
                code="SECRET_KEY_ENVIRONMENT",
            )
        key = new_key()
        try:
            with _locked(self.file.parent):
                old = ""
                if self.file.exists():
                    self._read()
                    old = self.file.read_text()
                _write(self.file, f"{_HEAD}{key}\n{old.removeprefix(_HEAD)}")
        except OSError as error:
            raise _unreadable(self.file, error) from None
        (made,) = read_keys(key, self.where)
        return key_name(made)


def _unreadable(file: Path, error: OSError) -> EncryptionKeyError:
    why = (error.strerror or type(error).__name__).lower()
    return EncryptionKeyError(f"{file}: {why}", code="SECRET_KEY_MISSING")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    make_private_folder(folder, lambda _: False)  # an existing folder may belong to other programs
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(file: Path, text: str) -> None:
    """Write a temporary file and rename it, because a crash during a write in place would lose the keys."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        draft.rename(file)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Content(msgspec.Struct, frozen=True, omit_defaults=True):
    """The encrypted part. It includes name, hosts and `insecure`, so that altering their copies in the row cannot send
    the values to another host or unencrypted."""

    name: str
    fields: AnyFields
    hosts: tuple[str, ...] = ()
    insecure: bool | None = None


class PublicFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part that is stored unencrypted, for lists."""

    fields: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    insecure: bool | None = None


class EncryptedCredential(msgspec.Struct, frozen=True):
    """A row of the credential table."""

    id: str
    name: str
    type: str
    version: int
    key: str
    sealed: bytes
    shown: bytes
    created_at: int
    changed_at: int

    @property
    def bound(self) -> bytes:
        """The authenticated data: a ciphertext cannot be moved to another row or version."""
        return f"{self.id}\0{self.type}\0{self.version}".encode()


_ENCODER = msgspec.msgpack.Encoder()
_CONTENT = msgspec.msgpack.Decoder(Content)
_PUBLIC = msgspec.msgpack.Decoder(PublicFields)


def decrypt(ring: KeyRing, row: EncryptedCredential) -> Content:
    try:
        content = _CONTENT.decode(ring.open(row.key, row.sealed, row.bound))
    except msgspec.DecodeError:
        raise CredentialUnreadableError("it was written by a newer version of Rune") from None
    if content.name != row.name or str(content.fields.__struct_config__.tag) != row.type:
        raise CredentialUnreadableError("the stored data was altered")
    return content


def encrypt(ring: KeyRing, row: EncryptedCredential, content: Content) -> EncryptedCredential:
    key, sealed = ring.seal(_ENCODER.encode(content), row.bound)
    given: dict[str, Any] = msgspec.to_builtins(content.fields)
    names = given["values"] if row.type == "custom" else given.keys() - {"type"}
    shown = _ENCODER.encode(PublicFields(tuple(sorted(names)), content.hosts, content.insecure))
    return msgspec.structs.replace(row, key=key, sealed=sealed, shown=shown)


def first(ring: KeyRing, draft: NewCredential) -> EncryptedCredential:
    """Encrypt a new credential as version 1."""
    type = str(draft.fields.__struct_config__.tag)
    row = EncryptedCredential(draft.id, draft.name, type, 1, "", b"", b"", draft.at, draft.at)
    return encrypt(ring, row, Content(draft.name, draft.fields, draft.hosts, draft.insecure))


def stored_before(known: EncryptedCredential, draft: NewCredential) -> CredentialSummary:
    """Return the credential with the id or name of a draft if it is the same one, stored by an earlier attempt. Raise
    CredentialNameTakenError if it is another one."""
    if (known.id, known.name) != (draft.id, draft.name):
        raise CredentialNameTakenError(f"a credential `{draft.name}` already exists")
    return summary_of(known)


def rotated(
    ring: KeyRing,
    old: EncryptedCredential,
    values: Mapping[str, Any],
    hosts: tuple[str, ...] | None,
    at: int,
    insecure: bool | None = None,
) -> EncryptedCredential:
    """Encrypt a credential with new values as its next version. None keeps the hosts, and `insecure`."""
    content = _merge_values(ring, old, values)
    if hosts is not None:
        content = msgspec.structs.replace(content, hosts=hosts)
    if insecure is not None:
        content = msgspec.structs.replace(content, insecure=insecure)
    new = msgspec.structs.replace(old, version=old.version + 1, changed_at=at)
    return encrypt(ring, new, content)


def reencrypt(ring: KeyRing, rows: Iterable[EncryptedCredential]) -> list[EncryptedCredential]:
    """Encrypt with the newest key the rows that use an older one, and return them."""
    return [_reencrypt_row(ring, row) for row in rows if row.key != ring.names[0]]


def _reencrypt_row(ring: KeyRing, row: EncryptedCredential) -> EncryptedCredential:
    try:
        content = decrypt(ring, row)
    except CredentialUnreadableError as error:
        raise CredentialUnreadableError(f"`{row.name}`: {error.message}; nothing was changed") from None
    return encrypt(ring, row, content)


def _merge_values(ring: KeyRing, old: EncryptedCredential, values: Mapping[str, Any]) -> Content:
    """Return the content with changed fields. If the old values cannot be decrypted, the new ones must be complete."""
    try:
        content = decrypt(ring, old)
    except CredentialUnreadableError:
        shown = _PUBLIC.decode(old.shown)
        return Content(old.name, fields_of(old.type, values), shown.hosts, shown.insecure)
    before: dict[str, Any] = msgspec.to_builtins(content.fields)
    before.pop("type", None)
    if old.type == "custom":
        before = before["values"]
    return msgspec.structs.replace(content, fields=fields_of(old.type, {**before, **values}))


def credential_of(ring: KeyRing, row: EncryptedCredential) -> Credential:
    content = decrypt(ring, row)
    return Credential(
        id=row.id,
        name=row.name,
        type=row.type,
        version=row.version,
        fields=content.fields,
        hosts=content.hosts,
        insecure=content.insecure,
    )


def summary_of(row: EncryptedCredential) -> CredentialSummary:
    shown = _PUBLIC.decode(row.shown)
    return CredentialSummary(
        id=row.id,
        name=row.name,
        type=row.type,
        version=row.version,
        fields=shown.fields,
        hosts=shown.hosts,
        insecure=shown.insecure,
        key=row.key,
        created_at=row.created_at,
        changed_at=row.changed_at,
    )
