"""Encryption keys, and credentials stored in SQLite."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from rune.adapters.encryption import KeyRing, KeySource, key_name, new_key, read_keys
from rune.adapters.sqlite.access import SqliteCredentials
from rune.ports.credentials import Bearer, CredentialUnreadableError, EncryptionKeyError, NewCredential
from rune.settings import Settings, SettingsError, load_settings
from tests.support.async_test import async_test
from tests.support.sqlite_stores import sqlite_stores


@asynccontextmanager
async def open_credentials(folder: Path, keys: KeySource) -> AsyncIterator[SqliteCredentials]:
    async with sqlite_stores(folder) as stores:
        yield SqliteCredentials(stores.database, keys)


def key_source(folder: Path, text: str = "") -> KeySource:
    return KeySource(text, folder / "secret.key")


def test_key_file_is_created_once_with_owner_permissions(tmp_path: Path) -> None:
    first = key_source(tmp_path / "deep").ring_or_new().names
    file = tmp_path / "deep" / "secret.key"

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key_source(tmp_path / "deep").ring_or_new().names == first
    assert [path.name for path in file.parent.iterdir()] == ["secret.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666, 0o620])
def test_key_file_with_open_permissions_is_rejected(mode: int, tmp_path: Path) -> None:
    key_source(tmp_path).add()
    (tmp_path / "secret.key").chmod(mode)

    for attempt in (key_source(tmp_path).ring, key_source(tmp_path).ring_or_new, key_source(tmp_path).add):
        with pytest.raises(EncryptionKeyError) as raised:
            attempt()
        assert raised.value.code == "SECRET_KEY_UNSAFE"
        assert "chmod 600" in raised.value.message


@pytest.mark.parametrize(
    "text", ["", " \n# nothing\n", "short", "!!", "a" * 44, base64.b64encode(b"x" * 31).decode()]
)
def test_invalid_key_is_rejected_without_showing_it(text: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    file.write_text(text)
    file.chmod(0o600)

    with pytest.raises(EncryptionKeyError) as raised:
        key_source(tmp_path).ring()
    assert raised.value.code == "SECRET_KEY_INVALID"
    assert not text.strip() or text.strip() not in raised.value.message


def test_environment_keys_override_file_and_first_seals(tmp_path: Path) -> None:
    key_source(tmp_path).add()
    one, two = new_key(), new_key()

    ring = key_source(tmp_path, f"{one}, {two}").ring()

    assert ring.names == tuple(key_name(base64.b64decode(each)) for each in (one, two))
    assert one not in repr(ring) + repr(key_source(tmp_path, one))
    with pytest.raises(EncryptionKeyError) as raised:
        key_source(tmp_path, one).add()
    assert raised.value.code == "SECRET_KEY_ENVIRONMENT"


def test_key_file_accepts_urlsafe_base64_and_comments() -> None:
    raw = bytes(range(200, 232))
    text = f"# first\n{base64.urlsafe_b64encode(raw).decode()}  # newest\n\n{base64.b64encode(raw[::-1]).decode()}\n"

    assert read_keys(text, "here") == [raw, raw[::-1]]


@async_test
async def test_added_key_is_used_without_restart(tmp_path: Path) -> None:
    async with open_credentials(tmp_path, key_source(tmp_path)) as credentials:
        await credentials.put(new_credential())
        name = key_source(tmp_path).add()
        assert await credentials.reencrypt() == 1
        assert [each.key for each in await credentials.list()] == [name]
        assert await credentials.resolve("shop") is not None


def test_reencrypt_leaves_no_old_ciphertext_on_disk(tmp_path: Path) -> None:
    sealed = []

    async def measure() -> None:
        async with open_credentials(tmp_path, key_source(tmp_path)) as credentials:
            await credentials.put(new_credential())
            sealed.append(read_sealed(tmp_path, "shop"))
            key_source(tmp_path).add()
            await credentials.reencrypt()

    asyncio.run(measure())
    assert sealed[0] not in b"".join(path.read_bytes() for path in tmp_path.glob("rune.db*"))


def test_seal_opens_only_with_its_key_and_context() -> None:
    ring = KeyRing([bytes(32)])
    name, sealed = ring.seal(b"value", b"id\0type\x001")

    assert ring.open(name, sealed, b"id\0type\x001") == b"value"
    for broken in (sealed[:-1] + bytes([sealed[-1] ^ 1]), sealed[:20], b""):
        with pytest.raises(CredentialUnreadableError):
            ring.open(name, broken, b"id\0type\x001")
    with pytest.raises(CredentialUnreadableError):
        ring.open(name, sealed, b"id\0type\x002")
    with pytest.raises(CredentialUnreadableError):
        KeyRing([bytes(31) + b"1"]).open(name, sealed, b"id\0type\x001")


def test_resolve_is_fast(tmp_path: Path) -> None:
    """Every node call resolves its credentials; the bound is loose for machines under load."""

    async def measure() -> float:
        async with open_credentials(tmp_path, key_source(tmp_path)) as credentials:
            for number in range(200):
                await credentials.put(new_credential(f"shop-{number}", f"c{number:032x}"))
            best = 1.0
            for _ in range(20):
                began = time.perf_counter()
                for number in range(50):
                    await credentials.resolve(f"shop-{number}")
                best = min(best, (time.perf_counter() - began) / 50)
            return best

    assert asyncio.run(measure()) < 100e-6


def test_settings_hide_secret_key_and_reject_it_in_file(tmp_path: Path) -> None:
    settings = load_settings({"RUNE_SECRET_KEY": "hush", "RUNE_SMTP_URL": "smtp://me:hush@x"}, tmp_path)
    assert settings.secret_key == "hush"
    assert "hush" not in repr(settings)
    assert Settings(home="h").key_file == Path("h/secret.key")
    assert Settings(home="h", secret_key_file="/k").key_file == Path("/k")

    (tmp_path / "rune.toml").write_text('secret_key = "hush"')
    with pytest.raises(SettingsError) as raised:
        load_settings({}, tmp_path)
    assert "hush" not in raised.value.message


def new_credential(name: str = "shop", id: str = f"c{1:032x}") -> NewCredential:
    return NewCredential(id=id, name=name, fields=Bearer(token="a-token-of-some-length"), at=1)


def read_sealed(folder: Path, name: str) -> bytes:
    with closing(sqlite3.connect(folder / "rune.db")) as db:
        (sealed,) = db.execute("SELECT sealed FROM credential WHERE name = ?", (name,)).fetchone()
    return bytes(sealed)
