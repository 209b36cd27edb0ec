"""Takes a case through its steps."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.acceptance.conformance.actor import Actor, Refusal, Start
from tests.acceptance.conformance.case import BASE_URL, Case, expand, matches
from tests.acceptance.conformance.stubs import Surroundings
from tests.acceptance.conformance.verdict import TERMINAL, UNDER_WAY, Observed, complaints_about
from tests.support.waiting import until

EXIT = {"completed": 0, "failed": 1, "halted": 1, "cancelled": 1}
BESIDE = frozenset({"as", "of", "refused", "says", "answers", "same", "within"})
CLOCKS = frozenset({"start", "resume"})
IT = "it"
_ID_OF = re.compile(r"<id of (\w+)>")


class Late(Exception):
    """A step that had to be taken in time was not, so what follows from it shows nothing."""


class Walk:
    """One case on its way. Executions have the names that its steps give them."""

    def __init__(self, case: Case, actor: Actor, around: Surroundings) -> None:
        self._case = case
        self._actor = actor
        self._around = around
        self.names: dict[str, str] = {}
        self._clock = time.monotonic()
        self._until: float | None = None
        self._acts: dict[str, Callable[[Any, Mapping[str, Any]], Awaitable[Any]]] = {
            "deploy": self._deploy,
            "alias": self._alias,
            "start": self._start,
            "signal": self._signal,
            "pause": self._pause,
            "resume": self._resume,
            "cancel": self._cancel,
            "retry": self._retry,
            "rerun": self._rerun,
            "find": self._find,
            "release": self._release,
            "await": self._await,
            "expect": self._expect,
        }

    async def to_end(self) -> None:
        """Every step, in order."""
        for each in self._case.workflows:
            await self._actor.deploy(self._source(each), None)
        for number, step in enumerate(self._case.steps, start=1):
            if step.keys() & CLOCKS:
                self._clock = time.monotonic()
            self._until = self._clock + step["within"] if "within" in step else None
            try:
                await self.take(expand(dict(step)))
                self._check_time()
            except (AssertionError, Refusal) as wrong:
                self._check_time()
                raise AssertionError(f"step {number}, {dict(step)}: {wrong}") from wrong

    def _check_time(self) -> None:
        """Whatever came of a step that was not in time, it is not held against anybody."""
        if self._until is not None and time.monotonic() > self._until:
            raise Late(f"{self._case.name}: {time.monotonic() - self._until:.3f} s too late")

    def _patience(self) -> float:
        """How long a fact is looked for: a step in time gives up as soon as it cannot be."""
        if self._until is None:
            return self._case.timeout_s
        return min(self._case.timeout_s, self._until - time.monotonic())

    async def take(self, step: Mapping[str, Any]) -> Any:
        """One step; answers what it was answered."""
        (act,) = step.keys() - BESIDE
        refusal, answer = None, None
        try:
            answer = await self._acts[act](step[act], step)
        except Refusal as refused:
            if "refused" not in step:
                raise
            refusal = refused
        if "refused" in step:
            _check_refusal(step, refusal, answer)
        elif "answers" in step:
            assert matches(step["answers"], answer), f"answered {answer!r}"
        return answer

    def _source(self, document: Any) -> str:
        return json.dumps(expand(document)).replace(BASE_URL, self._around.base_url)

    def _about(self, step: Mapping[str, Any]) -> str:
        """The id of the execution that a step is about; one that nobody started may be meant too."""
        name: str = step.get("of", IT) if step.keys() & {"retry", "rerun"} else step.get("as", IT)
        return self.names.get(name, name)

    def _named(self, step: Mapping[str, Any], execution: str) -> str:
        if "same" in step:
            assert execution == self.names[step["same"]], f"{execution} is another one"
        self.names[step.get("as", IT)] = execution
        return execution

    def _filled(self, value: Any) -> Any:
        """With `<id of a>` as the id of the execution that the steps call `a`."""
        if isinstance(value, dict):
            return {key: self._filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner) for inner in value]
        if isinstance(value, str):
            return _ID_OF.sub(lambda match: self.names[match[1]], value)
        return value

    async def _deploy(self, given: Any, step: Mapping[str, Any]) -> int:
        return await self._actor.deploy(self._source(given["document"]), given.get("alias"))

    async def _alias(self, given: Any, step: Mapping[str, Any]) -> int:
        return await self._actor.alias(given["workflow"], given["alias"], given["version"])

    async def _start(self, given: Any, step: Mapping[str, Any]) -> str:
        fields = dict(given or {})
        document = fields.pop("document", self._case.document)
        fields["input"] = json.dumps(fields.get("input", {}))
        fields["source"] = "" if "workflow" in fields else self._source(document)
        return self._named(step, await self._actor.start(Start(**fields)))

    async def _signal(self, given: Any, step: Mapping[str, Any]) -> bool:
        fields = {"name": given} if isinstance(given, str) else given
        value = json.dumps(fields.get("value"))
        key, item = fields.get("key"), fields.get("item")
        return await self._actor.signal(self._about(step), fields["name"], value, key=key, item=item)

    async def _pause(self, given: Any, step: Mapping[str, Any]) -> bool:
        return await self._actor.pause(self._about(step))

    async def _resume(self, given: Any, step: Mapping[str, Any]) -> bool:
        return await self._actor.resume(self._about(step))

    async def _cancel(self, given: Any, step: Mapping[str, Any]) -> str:
        return await self._actor.cancel(self._about(step), (given or {}).get("reason", ""))

    async def _retry(self, given: Any, step: Mapping[str, Any]) -> str:
        fields = given or {}
        failed_items, key = fields.get("failed_items", False), fields.get("key")
        again = await self._actor.retry(self._about(step), failed_items=failed_items, key=key)
        return self._named(step, again)

    async def _rerun(self, given: Any, step: Mapping[str, Any]) -> str:
        item, key = given.get("item"), given.get("key")
        again = await self._actor.rerun(self._about(step), given["from"], item=item, key=key)
        return self._named(step, again)

    async def _find(self, given: Any, step: Mapping[str, Any]) -> str:
        """An execution that nobody here started: the n-th of a workflow."""
        number = given.get("number", 0)

        async def there() -> bool:
            found = len(await self._actor.executions(given["workflow"]))
            return bool(found > number)

        await until(there, f"execution {number} of {given['workflow']} is there", self._patience())
        return self._named(step, (await self._actor.executions(given["workflow"]))[number])

    async def _release(self, given: str, step: Mapping[str, Any]) -> None:
        self._around.release(given)

    async def _await(self, given: Any, step: Mapping[str, Any]) -> None:
        fact = self._fact(self._about(step), given)
        await until(fact, given, self._patience())

    def _fact(self, execution: str, given: Any) -> Callable[[], Awaitable[bool]]:
        async def status() -> bool:
            found = await self._actor.status(execution)
            return found == given or (given == "ended" and found in TERMINAL)

        async def open_nodes() -> bool:
            open_now = [each for each in await self._actor.waiting(execution) if _fits(given, each)]
            return bool(len(open_now) >= given.get("count", 1))

        async def ended_nodes() -> bool:
            runs = (await self._actor.document(execution))["nodes"]
            done = [each for each in runs if each["node_id"] == given["node"] and each["status"] != "skipped"]
            return bool(len(done) >= given.get("count", 1))

        async def calls() -> bool:
            seen = self._around.http.calls.get(given["calls"])
            return seen is not None and seen.count >= given.get("count", 1)

        async def events() -> bool:
            seen = Counter(await self._actor.events(execution))
            return all(seen[kind] >= count for kind, count in given["events"].items())

        if isinstance(given, str):
            return status
        for word, fact in (("waiting", open_nodes), ("parked", open_nodes), ("node", ended_nodes)):
            if word in given:
                return fact
        return calls if "calls" in given else events

    async def _expect(self, given: Any, step: Mapping[str, Any]) -> None:
        """An execution is seen to its end, unless the case says that it is under way, or must be where it is now."""
        expect: dict[str, Any] = self._filled(dict(given))
        execution = self._about(step)
        if not expect.pop("now", False) and expect.get("status") not in UNDER_WAY:
            await until(self._fact(execution, "ended"), "ended", self._patience())
        document = await self._actor.document(execution)
        seen = Observed(
            exit_code=EXIT.get(document["status"], 0),
            stdout=json.dumps(document),
            calls=self._around.http.calls,
            mails=tuple(self._around.sink.mails),
        )
        for field in ("retry_of", "parent_id"):
            if field in expect:
                wanted = self.names.get(expect[field], expect[field])
                assert document.get(field) == wanted, f"{field} is {document.get(field)}, expected {wanted}"
        if "events" in expect:
            counted = Counter(await self._actor.events(execution))
            told = {kind: counted[kind] for kind in expect["events"]}
            assert told == expect["events"], f"the events are {dict(counted)}"
        found = complaints_about(expect, seen)
        assert not found, "\n".join(found)


def _check_refusal(step: Mapping[str, Any], refusal: Refusal | None, answer: Any) -> None:
    assert refusal is not None, f"was not refused, but answered {answer!r}"
    assert refusal.code == step["refused"], f"was refused otherwise: {refusal}"
    missing = [part for part in step.get("says", []) if part not in refusal.message]
    assert not missing, f"the refusal does not say {missing}: {refusal.message}"


def _fits(given: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    word = "waiting" if "waiting" in given else "parked"
    begins = "waits" if word == "waiting" else "parked"
    item = given.get("item")
    here = item is None or entry["lineage"] == f"/{item}"
    return bool(entry["node"] == given[word] and here and entry["reason"].startswith(begins))
