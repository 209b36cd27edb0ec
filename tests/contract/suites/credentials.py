"""Contract of credential stores."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.ports.credentials import (
    AnyFields,
    Bearer,
    Credential,
    CredentialError,
    CredentialNameTakenError,
    CredentialNotFoundError,
    CredentialStore,
    CredentialUnreadableError,
    EncryptionKeyError,
    NewCredential,
    fields_of,
)
from tests.support.async_test import async_test

CANARY = "canary-5f1d/0c9a+77e2"
FIELDS_BY_TYPE: dict[str, dict[str, Any]] = {
    "basic": {"username": "me", "password": CANARY},
    "bearer": {"token": CANARY},
    "header": {"name": "X-Shop", "value": CANARY},
    "api_key": {"key": CANARY, "place": "query", "name": "k"},
    "oauth2": {
        "token_url": "https://id.example/token",
        "client_id": "me",
        "client_secret": CANARY,
        "scope": "a b",
    },
    "smtp": {
        "host": "mail.example",
        "port": 2525,
        "security": "starttls",
        "username": "me",
        "password": CANARY,
    },
    "custom": {"one": CANARY, "two": "line 1\nline 2"},
}


class CredentialContract:
    """Subclasses open the store in a folder; opened again there, it has the same content."""

    def make_credentials(self, folder: Path, keys: int = 1) -> AbstractAsyncContextManager[CredentialStore]:
        """Open the store with this many keys in its ring, newest first."""
        raise NotImplementedError

    def lose_keys(self, folder: Path) -> None:
        """Remove all keys of the store."""
        raise NotImplementedError

    def replace_keys(self, folder: Path) -> None:
        """Replace all keys of the store by new ones."""
        raise NotImplementedError

    def read_disk(self, folder: Path) -> bytes:
        """Return everything on disk except the keys."""
        raise NotImplementedError

    def read_column(self, folder: Path, name: str, column: str) -> Any:
        """Read a column of a credential directly from the database."""
        raise NotImplementedError

    def write_column(self, folder: Path, name: str, column: str, value: Any) -> None:
        """Write a column of a credential directly to the database."""
        raise NotImplementedError

    @async_test
    async def test_credential_resolves_by_name_and_id(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            for type, values in FIELDS_BY_TYPE.items():
                await credentials.put(
                    _draft(type, fields_of(type, values), hosts=("a.example", "*.b.example"))
                )
            for type, values in FIELDS_BY_TYPE.items():
                found = await credentials.resolve(type)
                assert found is not None
                assert found == await credentials.resolve(found.id)
                assert (found.name, found.type, found.version) == (type, type, 1)
                assert found.fields == fields_of(type, values)
                assert found.hosts == ("a.example", "*.b.example")

    @async_test
    async def test_unknown_reference_resolves_to_none(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
            assert await credentials.resolve("shopp") is None
            assert await credentials.resolve("") is None
            assert await credentials.find("shopp") is None

    @async_test
    async def test_put_with_taken_name_is_rejected(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
            with pytest.raises(CredentialNameTakenError):
                await credentials.put(_draft("shop", Bearer(token="another"), id=f"c{2:032x}"))
            assert await _token(credentials, "shop") == CANARY

    @async_test
    async def test_repeated_put_is_idempotent(self, tmp_path: Path) -> None:
        """A client repeats the put when it loses the connection before the answer."""
        async with self.make_credentials(tmp_path) as credentials:
            first = await credentials.put(_draft("shop"))
            assert await credentials.put(_draft("shop")) == first
            with pytest.raises(CredentialNameTakenError):
                await credentials.put(_draft("other", id=first.id))

    @async_test
    async def test_concurrent_puts_of_one_name_have_one_winner(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            drafts = [
                _draft("shop", Bearer(token=f"token-{number}"), id=f"c{number:032x}") for number in range(5)
            ]
            ended = await asyncio.gather(*(credentials.put(each) for each in drafts), return_exceptions=True)
            assert sum(isinstance(each, CredentialNameTakenError) for each in ended) == 4
            assert len(await credentials.list()) == 1

    @async_test
    async def test_list_contains_no_secret_values(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            for type, values in FIELDS_BY_TYPE.items():
                await credentials.put(_draft(type, fields_of(type, values)))
            found = await credentials.list()
            assert [each.name for each in found] == sorted(FIELDS_BY_TYPE)
            shown = {each.type: each.fields for each in found}
            assert shown["basic"] == ("password", "username")
            assert shown["custom"] == ("one", "two")
            assert CANARY not in msgspec.json.encode(found).decode()
            assert await credentials.find("basic") == found[1]

    @async_test
    async def test_secret_values_are_not_stored_in_plaintext(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            for type, values in FIELDS_BY_TYPE.items():
                await credentials.put(_draft(type, fields_of(type, values)))
            await credentials.rotate("bearer", {"token": f"{CANARY}-2"}, None, 2)
            await credentials.remove("custom")
            assert CANARY.encode() not in self.read_disk(tmp_path)
        assert CANARY.encode() not in self.read_disk(tmp_path)

    @async_test
    async def test_every_seal_uses_a_new_nonce(self, tmp_path: Path) -> None:
        """A nonce that is reused with one key would reveal both values."""
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
            seals = {self.read_column(tmp_path, "shop", "sealed")}
            for version in range(2, 22):
                await credentials.rotate("shop", {"token": CANARY}, None, version)
                seals.add(self.read_column(tmp_path, "shop", "sealed"))
            assert len({seal[:12] for seal in seals}) == 21

    @async_test
    async def test_credentials_survive_reopen(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
        async with self.make_credentials(tmp_path) as credentials:
            assert await _token(credentials, "shop") == CANARY

    @async_test
    async def test_rotate_replaces_only_given_values(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            fields = fields_of("basic", {"username": "me", "password": "old-password"})
            await credentials.put(_draft("shop", fields, hosts=("a.example",)))
            listing = await credentials.rotate("shop", {"password": "new-password"}, None, 7)
            assert (listing.version, listing.changed_at, listing.created_at) == (2, 7, 1)
            found = await credentials.resolve("shop")
            assert found is not None
            assert found.fields == fields_of("basic", {"username": "me", "password": "new-password"})
            assert (found.version, found.hosts) == (2, ("a.example",))
            await credentials.rotate("shop", {}, ("b.example",), 8)
            found = await credentials.resolve("shop")
            assert found is not None
            assert (found.version, found.hosts) == (3, ("b.example",))

    @async_test
    async def test_rotate_with_invalid_values_changes_nothing(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
            with pytest.raises(CredentialError):
                await credentials.rotate("shop", {"tokn": "x"}, None, 2)
            assert (await _resolved(credentials, "shop")).version == 1

    @async_test
    async def test_change_of_unknown_credential_is_rejected(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            with pytest.raises(CredentialNotFoundError):
                await credentials.remove("shop")
            with pytest.raises(CredentialNotFoundError):
                await credentials.rotate("shop", {"token": "x"}, None, 1)

    @async_test
    async def test_removed_credential_frees_its_name(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
            assert (await credentials.remove("shop")).name == "shop"
            assert await credentials.resolve("shop") is None
            await credentials.put(_draft("shop", Bearer(token="another"), id=f"c{2:032x}"))
            assert await _token(credentials, "shop") == "another"

    @async_test
    async def test_new_key_seals_and_old_keys_open(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            old = await credentials.put(_draft("old"))
        async with self.make_credentials(tmp_path, keys=2) as credentials:
            new = await credentials.put(_draft("new", id=f"c{2:032x}"))
            assert new.key != old.key
            assert await _token(credentials, "old") == CANARY
            assert await credentials.reencrypt() == 1
            assert {each.key for each in await credentials.list()} == {new.key}
            assert await credentials.reencrypt() == 0
            found = await _resolved(credentials, "old")
            assert (found.version, found.fields) == (1, Bearer(token=CANARY))

    @async_test
    async def test_missing_key_fails_reads_but_keeps_credentials(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
        self.lose_keys(tmp_path)
        async with self.make_credentials(tmp_path, keys=0) as credentials:
            for attempt in (
                credentials.resolve("shop"),
                credentials.put(_draft("new", id=f"c{2:032x}")),
                credentials.reencrypt(),
                credentials.rotate("shop", {"token": "x"}, None, 2),
            ):
                with pytest.raises(EncryptionKeyError) as problem:
                    await attempt
                assert problem.value.code == "SECRET_KEY_MISSING"
            assert [each.name for each in await credentials.list()] == ["shop"]

    @async_test
    async def test_wrong_key_fails_reads_but_keeps_credentials(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
        self.replace_keys(tmp_path)
        async with self.make_credentials(tmp_path, keys=0) as credentials:
            with pytest.raises(CredentialUnreadableError):
                await credentials.resolve("shop")
            with pytest.raises(CredentialUnreadableError):
                await credentials.reencrypt()
            assert [each.version for each in await credentials.list()] == [1]
            await credentials.rotate("shop", {"token": "restored-token"}, None, 2)
            assert await _token(credentials, "shop") == "restored-token"

    @pytest.mark.parametrize(
        ("column", "value"),
        [("type", "header"), ("version", 7), ("name", "moved"), ("id", f"c{9:032x}"), ("sealed", b"x" * 64)],
    )
    def test_tampered_row_is_unreadable(self, column: str, value: Any, tmp_path: Path) -> None:
        async def go() -> None:
            async with self.make_credentials(tmp_path) as credentials:
                await credentials.put(_draft("shop"))
            self.write_column(tmp_path, "shop", column, value)
            async with self.make_credentials(tmp_path) as credentials:
                with pytest.raises(CredentialUnreadableError):
                    await credentials.resolve("moved" if column == "name" else "shop")

        asyncio.run(go())

    @async_test
    async def test_hosts_outside_seal_are_ignored(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop", hosts=("a.example",)))
        self.write_column(
            tmp_path, "shop", "shown", msgspec.msgpack.encode({"fields": [], "hosts": ["evil.example"]})
        )
        async with self.make_credentials(tmp_path) as credentials:
            assert (await _resolved(credentials, "shop")).hosts == ("a.example",)

    @async_test
    async def test_insecure_is_stored_sealed_and_rotated(self, tmp_path: Path) -> None:
        async with self.make_credentials(tmp_path) as credentials:
            await credentials.put(_draft("shop"))
            assert (await _resolved(credentials, "shop")).insecure is False
            listing = await credentials.rotate("shop", {}, None, 2, insecure=True)
            assert listing.insecure is True
            await credentials.rotate("shop", {}, None, 3, insecure=False)
        self.write_column(tmp_path, "shop", "shown", msgspec.msgpack.encode({"insecure": True}))
        async with self.make_credentials(tmp_path) as credentials:
            assert (await _resolved(credentials, "shop")).insecure is False


def _draft(
    name: str, fields: AnyFields | None = None, *, hosts: tuple[str, ...] = (), id: str | None = None
) -> NewCredential:
    made = id or "c" + name.encode().hex().ljust(32, "0")[:32]
    return NewCredential(id=made, name=name, fields=fields or Bearer(token=CANARY), hosts=hosts, at=1)


async def _resolved(credentials: CredentialStore, name: str) -> Credential:
    found = await credentials.resolve(name)
    assert found is not None
    return found


async def _token(credentials: CredentialStore, name: str) -> str:
    fields = (await _resolved(credentials, name)).fields
    assert isinstance(fields, Bearer)
    return fields.token
