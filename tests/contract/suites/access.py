"""What every store of keys, grants and the log promises."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from rune.core.permissions import DEFAULT_GRANTS
from rune.ports.access import (
    ApiKey,
    ApiKeyStore,
    AuditEntry,
    AuditFilter,
    AuditLogStore,
    KeyNotFoundError,
    digest_of,
    new_entry_id,
    new_key,
)
from rune.ports.credentials import Bearer, CredentialGrants, CredentialStore, NewCredential
from tests.contract.suites.scenario import scenario

MANY = 40


def key(at: int = 1, **said: object) -> ApiKey:
    """A key that is like no other."""
    made = new_key()
    whole = ApiKey(
        id=made.id,
        name="ada",
        role="runner",
        digest=digest_of(made.secret),
        created_at=at,
        created_by="local",
    )
    return msgspec.structs.replace(whole, **said)


def entry(action: str = "workflow.deploy", target: str = "orders", **said: object) -> AuditEntry:
    """An entry that is like no other."""
    whole = AuditEntry(id=new_entry_id(), at=5, actor="key:k1", action=action, target=target)
    return msgspec.structs.replace(whole, **said)


class Stores(msgspec.Struct):
    """What is opened together."""

    keys: ApiKeyStore
    grants: CredentialGrants
    log: AuditLogStore
    secret: CredentialStore


class AccessContract:
    """Subclass it and open the stores in a folder; opened again there, they hold what they held."""

    def make_access(self, folder: Path) -> AbstractAsyncContextManager[Stores]:
        raise NotImplementedError

    def tampered(self, folder: Path, statement: str) -> str:
        """What somebody is told who writes to the store past the program."""
        raise NotImplementedError

    @scenario
    async def test_a_key_is_kept_as_it_was_made(self, folder: Path) -> None:
        wanted = key(scopes=("orders-*", "x"), expires_at=99, name="Zoë")
        async with self.make_access(folder) as stores:
            assert not await stores.keys.exist()
            assert await stores.keys.put(wanted) == wanted
            assert await stores.keys.put(msgspec.structs.replace(wanted, role="admin")) == wanted
        async with self.make_access(folder) as stores:
            assert await stores.keys.exist()
            assert await stores.keys.find(wanted.id) == wanted
            assert await stores.keys.list() == [wanted]
            assert await stores.keys.find("k0") is None

    @scenario
    async def test_keys_are_listed_by_age(self, folder: Path) -> None:
        async with self.make_access(folder) as stores:
            for at in (3, 1, 2):
                await stores.keys.put(key(at))
            assert [each.created_at for each in await stores.keys.list()] == [1, 2, 3]

    @scenario
    async def test_the_first_revocation_counts(self, folder: Path) -> None:
        async with self.make_access(folder) as stores:
            made = await stores.keys.put(key())
            await stores.keys.mark_used(made.id, 7)
            assert (await stores.keys.revoke(made.id, 10)).revoked_at == 10
            again = await stores.keys.revoke(made.id, 20)
            assert (again.revoked_at, again.used_at) == (10, 7)
            with pytest.raises(KeyNotFoundError):
                await stores.keys.revoke("k0000000000000000", 1)

    @scenario
    async def test_grants_begin_with_everyone_and_go_with_their_credential(self, folder: Path) -> None:
        id = "c" + "0" * 32
        async with self.make_access(folder) as stores:
            await stores.secret.put(NewCredential(id=id, name="shop", fields=Bearer(token="t"), at=1))
            assert await stores.grants.of(id) == DEFAULT_GRANTS
            assert await stores.grants.change(id, ["queue"], []) == {"everyone", "queue"}
            assert await stores.grants.change(id, [], ["everyone", "local"]) == {"queue"}
        async with self.make_access(folder) as stores:
            assert await stores.grants.change(id, [], ["queue"]) == frozenset()
            assert await stores.grants.of(id) == frozenset()
            await stores.secret.remove("shop")
            assert await stores.grants.of(id) == DEFAULT_GRANTS

    @scenario
    async def test_grants_at_once_are_all_there(self, folder: Path) -> None:
        id = "c" + "1" * 32
        async with self.make_access(folder) as stores:
            await stores.secret.put(NewCredential(id=id, name="shop", fields=Bearer(token="t"), at=1))
            whom = [f"key:k{number}" for number in range(MANY)]
            await asyncio.gather(*(stores.grants.change(id, [each], []) for each in whom))
            assert await stores.grants.of(id) == {"everyone", *whom}

    @scenario
    async def test_entries_are_read_newest_first_in_pages(self, folder: Path) -> None:
        async with self.make_access(folder) as stores:
            for number in range(7):
                await stores.log.write(entry(target=f"w{number}", details={"alias": "é"}))
        async with self.make_access(folder) as stores:
            first = await stores.log.read(limit=4)
            rest = await stores.log.read(before=first[-1].number, limit=4)
            assert [each.target for each in (*first, *rest)] == [f"w{number}" for number in range(6, -1, -1)]
            assert first[0].details == {"alias": "é"}
            assert await stores.log.read(before=rest[-1].number) == []

    @scenario
    async def test_an_entry_that_is_sent_twice_is_there_once(self, folder: Path) -> None:
        async with self.make_access(folder) as stores:
            same = entry()
            await stores.log.write(same)
            await stores.log.write(same)
            (found,) = await stores.log.read()
            assert msgspec.structs.replace(found, number=0) == same

    @scenario
    async def test_entries_are_chosen_by_who_what_and_of_what(self, folder: Path) -> None:
        async with self.make_access(folder) as stores:
            await stores.log.write(entry("workflow.deploy", "a", actor="local"))
            await stores.log.write(entry("workflow.hide", "b"))
            await stores.log.write(entry("workflows.other", "a", outcome="REFUSED"))

            async def found(**wanted: str) -> list[str]:
                return [each.action for each in await stores.log.read(AuditFilter(**wanted))]

            assert await found(action="workflow") == ["workflow.hide", "workflow.deploy"]
            assert await found(action="workflow.hide") == ["workflow.hide"]
            assert await found(action="work_low") == []
            assert await found(target="a") == ["workflows.other", "workflow.deploy"]
            assert await found(target="a", actor="local") == ["workflow.deploy"]
            assert await found(actor="nobody") == []

    def test_nobody_changes_or_removes_an_entry(self, tmp_path: Path) -> None:
        async def filled() -> None:
            async with self.make_access(tmp_path) as stores:
                await stores.log.write(entry())

        asyncio.run(filled())
        for statement in ("UPDATE log SET actor = 'nobody'", "DELETE FROM log"):
            assert "only added to" in self.tampered(tmp_path, statement)
