"""What every store of credentials promises."""

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
from tests.contract.suites.scenario import scenario

CANARY = "canary-5f1d/0c9a+77e2"
EVERY: dict[str, dict[str, Any]] = {
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


class SecretContract:
    """Subclass it and open the store in a folder; opened again there, it holds what it held."""

    def make_secret(self, folder: Path, keys: int = 1) -> AbstractAsyncContextManager[CredentialStore]:
        """The store with the newest of so many keys first in its ring and all older ones behind it."""
        raise NotImplementedError

    def lose_keys(self, folder: Path) -> None:
        """From now on the store has no key."""
        raise NotImplementedError

    def other_keys(self, folder: Path) -> None:
        """From now on the store has keys, but none of those it had."""
        raise NotImplementedError

    def written(self, folder: Path) -> bytes:
        """Everything that lies on disk, without the keys."""
        raise NotImplementedError

    def stored(self, folder: Path, name: str, column: str) -> Any:
        """What is stored of a credential, past the store."""
        raise NotImplementedError

    def altered(self, folder: Path, name: str, column: str, value: Any) -> None:
        """Change what is stored of a credential, past the store."""
        raise NotImplementedError

    @scenario
    async def test_what_was_put_is_resolved_by_name_and_by_id(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            for type, values in EVERY.items():
                await secret.put(_draft(type, fields_of(type, values), hosts=("a.example", "*.b.example")))
            for type, values in EVERY.items():
                found = await secret.resolve(type)
                assert found is not None
                assert found == await secret.resolve(found.id)
                assert (found.name, found.type, found.version) == (type, type, 1)
                assert found.fields == fields_of(type, values)
                assert found.hosts == ("a.example", "*.b.example")

    @scenario
    async def test_an_unknown_reference_is_none(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop"))
            assert await secret.resolve("shopp") is None
            assert await secret.resolve("") is None
            assert await secret.find("shopp") is None

    @scenario
    async def test_a_name_is_taken_once(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop"))
            with pytest.raises(CredentialNameTakenError):
                await secret.put(_draft("shop", Bearer(token="another"), id=f"c{2:032x}"))
            assert await _token(secret, "shop") == CANARY

    @scenario
    async def test_putting_the_same_one_again_changes_nothing(self, folder: Path) -> None:
        """Whoever lost the connection before the answer asks again."""
        async with self.make_secret(folder) as secret:
            first = await secret.put(_draft("shop"))
            assert await secret.put(_draft("shop")) == first
            with pytest.raises(CredentialNameTakenError):
                await secret.put(_draft("other", id=first.id))

    @scenario
    async def test_of_many_who_put_a_name_at_once_one_succeeds(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            drafts = [
                _draft("shop", Bearer(token=f"token-{number}"), id=f"c{number:032x}") for number in range(5)
            ]
            ended = await asyncio.gather(*(secret.put(each) for each in drafts), return_exceptions=True)
            assert sum(isinstance(each, CredentialNameTakenError) for each in ended) == 4
            assert len(await secret.list()) == 1

    @scenario
    async def test_lists_show_no_value(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            for type, values in EVERY.items():
                await secret.put(_draft(type, fields_of(type, values)))
            found = await secret.list()
            assert [each.name for each in found] == sorted(EVERY)
            shown = {each.type: each.fields for each in found}
            assert shown["basic"] == ("password", "username")
            assert shown["custom"] == ("one", "two")
            assert CANARY not in msgspec.json.encode(found).decode()
            assert await secret.find("basic") == found[1]

    @scenario
    async def test_nothing_is_written_in_the_clear(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            for type, values in EVERY.items():
                await secret.put(_draft(type, fields_of(type, values)))
            await secret.rotate("bearer", {"token": f"{CANARY}-2"}, None, 2)
            await secret.remove("custom")
            assert CANARY.encode() not in self.written(folder)
        assert CANARY.encode() not in self.written(folder)

    @scenario
    async def test_the_same_value_is_sealed_differently_each_time(self, folder: Path) -> None:
        """A nonce that comes twice under one key opens both."""
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop"))
            seals = {self.stored(folder, "shop", "sealed")}
            for version in range(2, 22):
                await secret.rotate("shop", {"token": CANARY}, None, version)
                seals.add(self.stored(folder, "shop", "sealed"))
            assert len({seal[:12] for seal in seals}) == 21

    @scenario
    async def test_credentials_outlive_the_process(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop"))
        async with self.make_secret(folder) as secret:
            assert await _token(secret, "shop") == CANARY

    @scenario
    async def test_rotating_replaces_what_is_given_and_nothing_else(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            fields = fields_of("basic", {"username": "me", "password": "old-password"})
            await secret.put(_draft("shop", fields, hosts=("a.example",)))
            listing = await secret.rotate("shop", {"password": "new-password"}, None, 7)
            assert (listing.version, listing.changed_at, listing.created_at) == (2, 7, 1)
            found = await secret.resolve("shop")
            assert found is not None
            assert found.fields == fields_of("basic", {"username": "me", "password": "new-password"})
            assert (found.version, found.hosts) == (2, ("a.example",))
            await secret.rotate("shop", {}, ("b.example",), 8)
            found = await secret.resolve("shop")
            assert found is not None
            assert (found.version, found.hosts) == (3, ("b.example",))

    @scenario
    async def test_values_that_do_not_fit_change_nothing(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop"))
            with pytest.raises(CredentialError):
                await secret.rotate("shop", {"tokn": "x"}, None, 2)
            assert (await _resolved(secret, "shop")).version == 1

    @scenario
    async def test_what_is_not_there_cannot_be_changed(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            with pytest.raises(CredentialNotFoundError):
                await secret.remove("shop")
            with pytest.raises(CredentialNotFoundError):
                await secret.rotate("shop", {"token": "x"}, None, 1)

    @scenario
    async def test_what_was_removed_is_gone_and_its_name_free(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop"))
            assert (await secret.remove("shop")).name == "shop"
            assert await secret.resolve("shop") is None
            await secret.put(_draft("shop", Bearer(token="another"), id=f"c{2:032x}"))
            assert await _token(secret, "shop") == "another"

    @scenario
    async def test_a_new_key_seals_and_old_ones_open(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            old = await secret.put(_draft("old"))
        async with self.make_secret(folder, keys=2) as secret:
            new = await secret.put(_draft("new", id=f"c{2:032x}"))
            assert new.key != old.key
            assert await _token(secret, "old") == CANARY
            assert await secret.reencrypt() == 1
            assert {each.key for each in await secret.list()} == {new.key}
            assert await secret.reencrypt() == 0
            found = await _resolved(secret, "old")
            assert (found.version, found.fields) == (1, Bearer(token=CANARY))

    @scenario
    async def test_without_its_key_nothing_is_read_and_nothing_is_lost(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop"))
        self.lose_keys(folder)
        async with self.make_secret(folder, keys=0) as secret:
            for attempt in (
                secret.resolve("shop"),
                secret.put(_draft("new", id=f"c{2:032x}")),
                secret.reencrypt(),
                secret.rotate("shop", {"token": "x"}, None, 2),
            ):
                with pytest.raises(EncryptionKeyError) as problem:
                    await attempt
                assert problem.value.code == "SECRET_KEY_MISSING"
            assert [each.name for each in await secret.list()] == ["shop"]

    @scenario
    async def test_with_another_key_nothing_is_read_and_nothing_is_lost(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop"))
        self.other_keys(folder)
        async with self.make_secret(folder, keys=0) as secret:
            with pytest.raises(CredentialUnreadableError):
                await secret.resolve("shop")
            with pytest.raises(CredentialUnreadableError):
                await secret.reencrypt()
            assert [each.version for each in await secret.list()] == [1]
            await secret.rotate("shop", {"token": "whole-again"}, None, 2)
            assert await _token(secret, "shop") == "whole-again"

    @pytest.mark.parametrize(
        ("column", "value"),
        [("type", "header"), ("version", 7), ("name", "moved"), ("id", f"c{9:032x}"), ("sealed", b"x" * 64)],
    )
    def test_what_was_altered_is_not_believed(self, column: str, value: Any, tmp_path: Path) -> None:
        async def go() -> None:
            async with self.make_secret(tmp_path) as secret:
                await secret.put(_draft("shop"))
            self.altered(tmp_path, "shop", column, value)
            async with self.make_secret(tmp_path) as secret:
                with pytest.raises(CredentialUnreadableError):
                    await secret.resolve("moved" if column == "name" else "shop")

        asyncio.run(go())

    @scenario
    async def test_hosts_beside_the_seal_do_not_count(self, folder: Path) -> None:
        async with self.make_secret(folder) as secret:
            await secret.put(_draft("shop", hosts=("a.example",)))
        self.altered(
            folder, "shop", "shown", msgspec.msgpack.encode({"fields": [], "hosts": ["evil.example"]})
        )
        async with self.make_secret(folder) as secret:
            assert (await _resolved(secret, "shop")).hosts == ("a.example",)


def _draft(
    name: str, fields: AnyFields | None = None, *, hosts: tuple[str, ...] = (), id: str | None = None
) -> NewCredential:
    made = id or "c" + name.encode().hex().ljust(32, "0")[:32]
    return NewCredential(id=made, name=name, fields=fields or Bearer(token=CANARY), hosts=hosts, at=1)


async def _resolved(secret: CredentialStore, name: str) -> Credential:
    found = await secret.resolve(name)
    assert found is not None
    return found


async def _token(secret: CredentialStore, name: str) -> str:
    fields = (await _resolved(secret, name)).fields
    assert isinstance(fields, Bearer)
    return fields.token
