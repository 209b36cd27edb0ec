"""The desk of a server elsewhere: the verbs, each asked for over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.cli.remote.asking import epoch, not_over_url
from rune.cli.remote.library import RemoteLibrary
from rune.client import AsyncClient, Refusal, models
from rune.errors import RuneError
from rune.ports.journal import Accepted
from rune.ports.library import LATEST, Version, choose
from rune.runtime.desk import Heard
from rune.runtime.launcher import PLAIN, Options
from rune.settings import Settings


class RemoteDesk:
    """What people ask of executions, asked of a server. Values go over as the bytes they are."""

    owns = False  # whoever answers runs executions

    def __init__(self, client: AsyncClient, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._library = RemoteLibrary(client)

    def __getattr__(self, verb: str) -> Any:
        raise not_over_url(f"`{verb.replace('_', ' ')}`", self._settings)

    async def run(
        self, definition: bytes, input: bytes, options: Options = PLAIN, *, execution: str | None = None
    ) -> Accepted:
        """The server names the execution itself."""
        document: Any = msgspec.Raw(definition)
        started = await self._client.run(
            document,
            msgspec.Raw(input),
            key=options.key,
            labels=options.labels,
            fake_time=options.fake_time,
        )
        return _accepted(started, input)

    async def start(
        self,
        workflow: str,
        which: str | None,
        input: bytes,
        options: Options = PLAIN,
        *,
        priority: int | None = None,
        execution: str | None = None,
    ) -> Accepted:
        """The server names the execution itself."""
        started = await self._client.start(
            workflow,
            msgspec.Raw(input),
            version=which,
            key=options.key,
            labels=options.labels,
            priority=priority,
            fake_time=options.fake_time,
        )
        return _accepted(started, input)

    async def signal(
        self,
        execution: str,
        name: str,
        value: bytes = b"null",
        *,
        key: str | None = None,
        item: str | None = None,
    ) -> Heard:
        heard = await self._client.signal(execution, name, msgspec.Raw(value), item=item, key=key)
        return Heard(heard.id, heard.resumed)

    async def cancel(self, execution: str, reason: str = "") -> str:
        """A server says twice that it is cancelled; here the second asker is told that it had ended."""
        acted = await self._client.cancel(execution, reason)
        if acted.status == "cancelled" and not acted.changed:
            raise RuneError("the execution has ended as cancelled", code="ENDED")
        return acted.status

    async def pause(self, execution: str) -> bool:
        return (await self._client.pause(execution)).changed

    async def resume(self, execution: str) -> bool:
        return (await self._client.resume(execution)).changed

    async def retry(self, execution: str, *, failed_items: bool = False, key: str | None = None) -> Accepted:
        return _accepted(await self._client.retry(execution, failed_items=failed_items, key=key))

    async def rerun(
        self, execution: str, node: str, *, item: str | None = None, key: str | None = None
    ) -> Accepted:
        return _accepted(await self._client.rerun(execution, node, item=item, key=key))

    async def requeue(self, letter: str) -> Accepted:
        return _accepted(await self._client.requeue(letter))

    async def drop(self, letter: str) -> bool:
        try:
            await self._client.drop(letter)
        except Refusal as refused:
            if refused.code != "UNKNOWN_DEAD_LETTER":
                raise
            return False
        return True

    async def deploy(self, definition: bytes, *, alias: str | None = None) -> Version:
        """Two acts where an alias is named: whoever asks again after the first finds the version there."""
        name = msgspec.json.decode(definition)["id"]
        document: Any = msgspec.Raw(definition)
        made = await self._client.deploy(document, workflow=name)
        change: Any = made.change
        if alias is not None and alias != LATEST:
            pointed = await self.point(name, alias, made.version)
            change = pointed.change if change == "none" else change
        return await self._version(name, made.version, change)

    async def point(
        self,
        workflow: str,
        alias: str,
        version: int | None,
        *,
        weights: dict[int, float] | None = None,
    ) -> Version:
        before = {each.name: each.revision for each in await self._library.aliases(workflow)}
        after = await self._client.point(workflow, alias, version, weights=weights)
        change = "none" if before.get(alias) == after.revision else "moved"
        return await self._version(workflow, after.version, change)

    async def hide(self, workflow: str) -> bool:
        seen = {each.workflow for each in await self._library.entries()}
        await self._client.delete(workflow)
        return workflow in seen

    async def _version(self, workflow: str, number: int, change: Any) -> Version:
        found = choose(workflow, await self._library.versions(workflow), str(number))
        return msgspec.structs.replace(found, change=change)


def _accepted(started: models.Started, input: bytes = b"") -> Accepted:
    return Accepted(
        id=started.execution_id,
        workflow=started.workflow_id,
        hash=started.hash,
        at=epoch(started.started_at),
        input=input,
        retry_of=started.retry_of,
    )
