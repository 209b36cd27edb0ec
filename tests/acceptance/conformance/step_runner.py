"""Runs the steps of a case."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from rune.testing.expectations import matches
from tests.acceptance.conformance.actor import Actor, RejectedError, Start
from tests.acceptance.conformance.case import BASE_URL, Case, expand
from tests.acceptance.conformance.expectations import NOT_ENDED, TERMINAL, Observation, deviations_from
from tests.acceptance.conformance.stubs import StubServers
from tests.support.waiting import until

_EXIT = {"completed": 0, "failed": 1, "halted": 1, "cancelled": 1}
OPTIONS = frozenset({"as", "of", "refused", "says", "answers", "same", "within"})
TIMED_ACTIONS = frozenset({"start", "resume"})
IT = "it"
_ID_OF = re.compile(r"<id of (\w+)>")


def exit_code(document: Mapping[str, Any]) -> int:
    """The exit code of `rune run` for the document of an execution, which may not have ended."""
    if document["status"] == "completed" and document["untolerated_items"]:
        return 4
    return _EXIT.get(document["status"], 0)


class LateError(Exception):
    """A step missed its deadline, so that its result is not meaningful."""


class StepRunner:
    """Runs one case. `names` maps the names that its steps assign to the ids of executions."""

    def __init__(self, case: Case, actor: Actor, servers: StubServers) -> None:
        self._case = case
        self._actor = actor
        self._servers = servers
        self.names: dict[str, str] = {}
        self._started = time.monotonic()
        self._deadline: float | None = None
        self._actions: dict[str, Callable[[Any, Mapping[str, Any]], Awaitable[Any]]] = {
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

    async def run(self) -> None:
        """Run every step, in order."""
        for each in self._case.workflows:
            await self._actor.deploy(self._source(each), None)
        for number, step in enumerate(self._case.steps, start=1):
            if step.keys() & TIMED_ACTIONS:
                self._started = time.monotonic()
            self._deadline = self._started + step["within"] if "within" in step else None
            try:
                await self.run_step(expand(dict(step)))
                self._check_time()
            except (AssertionError, RejectedError) as error:
                self._check_time()
                raise AssertionError(f"step {number}, {dict(step)}: {error}") from error

    def _check_time(self) -> None:
        """Raise LateError if the current step missed its deadline, whatever its result."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise LateError(f"{self._case.name}: {time.monotonic() - self._deadline:.3f} s late")

    def _timeout(self) -> float:
        """How long to poll for a condition: at most until the deadline of the step."""
        if self._deadline is None:
            return self._case.timeout_s
        return min(self._case.timeout_s, self._deadline - time.monotonic())

    async def run_step(self, step: Mapping[str, Any]) -> Any:
        """Run one step and return its result."""
        (action,) = step.keys() - OPTIONS
        rejection, result = None, None
        try:
            result = await self._actions[action](step[action], step)
        except RejectedError as error:
            if "refused" not in step:
                raise
            rejection = error
        if "refused" in step:
            _check_rejection(step, rejection, result)
        elif "answers" in step:
            assert matches(step["answers"], result), f"answered {result!r}"
        return result

    def _source(self, document: Any) -> str:
        return json.dumps(expand(document)).replace(BASE_URL, self._servers.base_url)

    def _execution(self, step: Mapping[str, Any]) -> str:
        """The id of the execution that a step refers to; an unassigned name is used as an unknown id."""
        name: str = step.get("of", IT) if step.keys() & {"retry", "rerun"} else step.get("as", IT)
        return self.names.get(name, name)

    def _assign_name(self, step: Mapping[str, Any], execution: str) -> str:
        if "same" in step:
            assert execution == self.names[step["same"]], f"{execution} is another one"
        self.names[step.get("as", IT)] = execution
        return execution

    def _insert_ids(self, value: Any) -> Any:
        """Replace `<id of a>` by the id of the execution named `a`."""
        if isinstance(value, dict):
            return {key: self._insert_ids(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._insert_ids(inner) for inner in value]
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
        return self._assign_name(step, await self._actor.start(Start(**fields)))

    async def _signal(self, given: Any, step: Mapping[str, Any]) -> bool:
        fields = {"name": given} if isinstance(given, str) else given
        value = json.dumps(fields.get("value"))
        key, item = fields.get("key"), fields.get("item")
        return await self._actor.signal(self._execution(step), fields["name"], value, key=key, item=item)

    async def _pause(self, given: Any, step: Mapping[str, Any]) -> bool:
        return await self._actor.pause(self._execution(step))

    async def _resume(self, given: Any, step: Mapping[str, Any]) -> bool:
        return await self._actor.resume(self._execution(step))

    async def _cancel(self, given: Any, step: Mapping[str, Any]) -> str:
        return await self._actor.cancel(self._execution(step), (given or {}).get("reason", ""))

    async def _retry(self, given: Any, step: Mapping[str, Any]) -> str:
        fields = given or {}
        failed_items, key = fields.get("failed_items", False), fields.get("key")
        new = await self._actor.retry(self._execution(step), failed_items=failed_items, key=key)
        return self._assign_name(step, new)

    async def _rerun(self, given: Any, step: Mapping[str, Any]) -> str:
        item, key = given.get("item"), given.get("key")
        new = await self._actor.rerun(self._execution(step), given["from"], item=item, key=key)
        return self._assign_name(step, new)

    async def _find(self, given: Any, step: Mapping[str, Any]) -> str:
        """Wait for the n-th execution of a workflow, for example a child."""
        number = given.get("number", 0)

        async def exists() -> bool:
            found = len(await self._actor.executions(given["workflow"]))
            return bool(found > number)

        await until(exists, f"execution {number} of {given['workflow']} exists", self._timeout())
        return self._assign_name(step, (await self._actor.executions(given["workflow"]))[number])

    async def _release(self, given: str, step: Mapping[str, Any]) -> None:
        self._servers.release(given)

    async def _await(self, given: Any, step: Mapping[str, Any]) -> None:
        condition = self._condition(self._execution(step), given)
        await until(condition, given, self._timeout())

    def _condition(self, execution: str, given: Any) -> Callable[[], Awaitable[bool]]:
        async def status() -> bool:
            found = await self._actor.status(execution)
            return found == given or (given == "ended" and found in TERMINAL)

        async def open_nodes() -> bool:
            open_now = [each for each in await self._actor.waiting(execution) if _is_open(given, each)]
            return bool(len(open_now) >= given.get("count", 1))

        async def ended_nodes() -> bool:
            runs = (await self._actor.document(execution))["nodes"]
            done = [each for each in runs if each["node_id"] == given["node"] and each["status"] != "skipped"]
            return bool(len(done) >= given.get("count", 1))

        async def calls() -> bool:
            received = self._servers.http.calls.get(given["calls"])
            return received is not None and received.count >= given.get("count", 1)

        async def events() -> bool:
            counts = Counter(await self._actor.events(execution))
            return all(counts[kind] >= count for kind, count in given["events"].items())

        if isinstance(given, str):
            return status
        for word, condition in (("waiting", open_nodes), ("parked", open_nodes), ("node", ended_nodes)):
            if word in given:
                return condition
        return calls if "calls" in given else events

    async def _expect(self, given: Any, step: Mapping[str, Any]) -> None:
        """Compare an execution with the expected result, after its end unless `now` or an open status is expected."""
        expect: dict[str, Any] = self._insert_ids(dict(given))
        execution = self._execution(step)
        if not expect.pop("now", False) and expect.get("status") not in NOT_ENDED:
            await until(self._condition(execution, "ended"), "ended", self._timeout())
        document = await self._actor.document(execution)
        observed = Observation(
            exit_code=exit_code(document),
            stdout=msgspec.json.encode(document).decode(),
            calls=self._servers.http.calls,
            mails=tuple(self._servers.sink.mails),
        )
        for field in ("retry_of", "parent_id"):
            if field in expect:
                wanted = self.names.get(expect[field], expect[field])
                assert document.get(field) == wanted, f"{field} is {document.get(field)}, expected {wanted}"
        if "events" in expect:
            counted = Counter(await self._actor.events(execution))
            events = {kind: counted[kind] for kind in expect["events"]}
            assert events == expect["events"], f"the events are {dict(counted)}"
        found = deviations_from(expect, observed)
        assert not found, "\n".join(found)


def _check_rejection(step: Mapping[str, Any], rejection: RejectedError | None, result: Any) -> None:
    assert rejection is not None, f"was not refused, but answered {result!r}"
    assert rejection.code == step["refused"], f"was refused otherwise: {rejection}"
    missing = [part for part in step.get("says", []) if part not in rejection.message]
    assert not missing, f"the message does not say {missing}: {rejection.message}"


def _is_open(given: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    word = "waiting" if "waiting" in given else "parked"
    prefix = "waits" if word == "waiting" else "parked"
    item = given.get("item")
    at_item = item is None or entry["lineage"] == f"/{item}"
    return bool(entry["node"] == given[word] and at_item and entry["reason"].startswith(prefix))
