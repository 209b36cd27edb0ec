"""The embedded store of credentials keeps its contract; keys come from where they are said to come from."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rune.adapters.encryption import KeyRing, KeySource, key_name, new_key, read_keys
from rune.adapters.sqlite.credentials import SqliteCredentials
from rune.ports.credentials import Bearer, CredentialUnreadableError, EncryptionKeyError, NewCredential
from rune.settings import Settings, SettingsError, load_settings
from tests.contract.suites.secret import SecretContract
from tests.contract.test_embedded import opened


@asynccontextmanager
async def secret_in(folder: Path, keys: KeySource) -> AsyncIterator[SqliteCredentials]:
    async with opened(folder) as embedded:
        yield SqliteCredentials(embedded.database, keys)


def source(folder: Path, text: str = "") -> KeySource:
    return KeySource(text, folder / "secret.key")


class TestSecret(SecretContract):
    @asynccontextmanager
    async def make_secret(self, folder: Path, keys: int = 1) -> AsyncIterator[SqliteCredentials]:
        found = source(folder)
        while keys > 1 and len(found.ring().names) < keys:
            found.add()
        async with secret_in(folder, found) as secret:
            yield secret

    def lose_keys(self, folder: Path) -> None:
        (folder / "secret.key").unlink()

    def other_keys(self, folder: Path) -> None:
        self.lose_keys(folder)
        source(folder).add()

    def written(self, folder: Path) -> bytes:
        return b"".join(path.read_bytes() for path in folder.glob("rune.db*"))

    def stored(self, folder: Path, name: str, column: str) -> Any:
        with sqlite3.connect(folder / "rune.db") as db:
            (found,) = db.execute(f"SELECT {column} FROM credential WHERE name = ?", (name,)).fetchone()
        db.close()
        return found

    def altered(self, folder: Path, name: str, column: str, value: Any) -> None:
        with sqlite3.connect(folder / "rune.db") as db:
            db.execute(f"UPDATE credential SET {column} = ? WHERE name = ?", (value, name))
        db.close()


def test_a_key_file_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = source(tmp_path / "deep").ring_or_new().names
    file = tmp_path / "deep" / "secret.key"

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert source(tmp_path / "deep").ring_or_new().names == first
    assert [path.name for path in file.parent.iterdir()] == ["secret.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666, 0o620])
def test_a_key_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    source(tmp_path).add()
    (tmp_path / "secret.key").chmod(mode)

    for attempt in (source(tmp_path).ring, source(tmp_path).ring_or_new, source(tmp_path).add):
        with pytest.raises(EncryptionKeyError) as problem:
            attempt()
        assert problem.value.code == "SECRET_KEY_UNSAFE"
        assert "chmod 600" in problem.value.message


@pytest.mark.parametrize(
    "text", ["", " \n# nothing\n", "short", "!!", "a" * 44, base64.b64encode(b"x" * 31).decode()]
)
def test_what_is_no_key_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    file.write_text(text)
    file.chmod(0o600)

    with pytest.raises(EncryptionKeyError) as problem:
        source(tmp_path).ring()
    assert problem.value.code == "SECRET_KEY_INVALID"
    assert not text.strip() or text.strip() not in problem.value.message


def test_the_environment_wins_and_its_first_key_seals(tmp_path: Path) -> None:
    source(tmp_path).add()
    one, two = new_key(), new_key()

    ring = source(tmp_path, f"{one}, {two}").ring()

    assert ring.names == tuple(key_name(base64.b64decode(each)) for each in (one, two))
    assert one not in repr(ring) + repr(source(tmp_path, one))
    with pytest.raises(EncryptionKeyError) as problem:
        source(tmp_path, one).add()
    assert problem.value.code == "SECRET_KEY_ENVIRONMENT"


def test_keys_may_be_written_for_urls_and_with_remarks() -> None:
    raw = bytes(range(200, 232))
    text = f"# first\n{base64.urlsafe_b64encode(raw).decode()}  # newest\n\n{base64.b64encode(raw[::-1]).decode()}\n"

    assert read_keys(text, "here") == [raw, raw[::-1]]


def test_a_new_key_is_noticed_without_a_new_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secret_in(tmp_path, source(tmp_path)) as secret:
            await secret.put(draft())
            name = source(tmp_path).add()
            assert await secret.reencrypt() == 1
            assert [each.key for each in await secret.list()] == [name]
            assert await secret.resolve("shop") is not None

    asyncio.run(scenario())


def test_what_was_rekeyed_leaves_nothing_that_an_old_key_opens(tmp_path: Path) -> None:
    sealed = []

    async def scenario() -> None:
        async with secret_in(tmp_path, source(tmp_path)) as secret:
            await secret.put(draft())
            sealed.append(TestSecret().stored(tmp_path, "shop", "sealed"))
            source(tmp_path).add()
            await secret.reencrypt()

    asyncio.run(scenario())
    assert sealed[0] not in TestSecret().written(tmp_path)


def test_a_seal_opens_only_for_what_it_is_bound_to() -> None:
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


def test_resolving_is_quick(tmp_path: Path) -> None:
    """Every call resolves anew, so it must cost next to nothing; the bound is loose for machines under load."""

    async def scenario() -> float:
        async with secret_in(tmp_path, source(tmp_path)) as secret:
            for number in range(200):
                await secret.put(draft(f"shop-{number}", f"c{number:032x}"))
            best = 1.0
            for _ in range(20):
                began = time.perf_counter()
                for number in range(50):
                    await secret.resolve(f"shop-{number}")
                best = min(best, (time.perf_counter() - began) / 50)
            return best

    assert asyncio.run(scenario()) < 100e-6


def test_settings_show_no_key_and_take_none_from_the_file(tmp_path: Path) -> None:
    settings = load_settings({"RUNE_SECRET_KEY": "hush", "RUNE_SMTP_URL": "smtp://me:hush@x"}, tmp_path)
    assert settings.secret_key == "hush"
    assert "hush" not in repr(settings)
    assert Settings(home="h").key_file == Path("h/secret.key")
    assert Settings(home="h", secret_key_file="/k").key_file == Path("/k")

    (tmp_path / "rune.toml").write_text('secret_key = "hush"')
    with pytest.raises(SettingsError) as refused:
        load_settings({}, tmp_path)
    assert "hush" not in refused.value.message


def draft(name: str = "shop", id: str = f"c{1:032x}") -> NewCredential:
    return NewCredential(id=id, name=name, fields=Bearer(token="a-token-of-some-length"), at=1)
