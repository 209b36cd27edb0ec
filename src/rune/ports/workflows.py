"""Store for workflows: immutable numbered definitions, aliases that point at them, and triggers that start them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from rune.core.definition.parser import SourceText
from rune.core.definition.problems import Problem
from rune.core.execution.token import fraction
from rune.core.schedules import Schedule, ScheduleState
from rune.core.webhooks import WebhookConfig
from rune.errors import RuneError
from rune.ports.journal import Missing

LATEST = "latest"
"""The alias that every deploy moves to its version."""

NOTHING, ANYTHING = "", "*"
Expected: TypeAlias = tuple[str, ...]
"""Precondition of a change, checked in its transaction: a current tag must be one of these. `NOTHING`: it must not
exist; `ANYTHING`: it must exist. The tags of a workflow are the tag of the text of its latest version and the hash of
that version, which leaves out comments, positions and notes; the tag of an alias is its revision."""

Change = Literal["created", "moved", "none"]

_ALIAS_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")
_NUMBER_PATTERN = re.compile(r"[vV]?([0-9]{1,15})")


class WorkflowNotFoundError(RuneError):
    """No workflow has this name, or it has no such version or alias."""

    code = "UNKNOWN_WORKFLOW"


class ChildForbiddenError(RuneError):
    """A workflow may not start another one as a child: it is outside of the scopes of its principal."""

    code = "CHILD_FORBIDDEN"


class InvalidAliasError(RuneError):
    """An alias has characters that are not permitted, or looks like a version number."""

    code = "BAD_ALIAS"


class InvalidWeightsError(RuneError):
    """Weights of an alias are out of range, or set on `latest`."""

    code = "BAD_WEIGHTS"


class ConcurrentChangeError(RuneError):
    """The current state does not meet the caller's precondition, because another change came first."""

    code = "CHANGED"


class VersionSource(msgspec.Struct, frozen=True):
    """The text that a version was deployed with. Texts with the same content, such as one with moved boxes, share a
    version, which keeps the newest."""

    data: bytes
    media_type: str

    @property
    def tag(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


class Version(msgspec.Struct, frozen=True):
    """One version of a workflow. `at` is when it was first deployed, by `principal` (None if unknown); `aliases` point
    at it now. `scopes`: the workflows that it may start as children, those of all principals that have deployed it;
    none: all."""

    workflow: str
    number: int
    hash: str
    at: int
    aliases: tuple[str, ...] = ()
    change: Change = "none"  # what the call that returned this did: created the version, or moved an alias
    principal: str | None = None
    note: str = ""
    scopes: tuple[str, ...] = ()


class ChosenVersion(msgspec.Struct, frozen=True):
    """The version of an execution with its scopes, and the alias that selected it; None if the start named the
    number."""

    number: int
    alias: str | None = None
    scopes: tuple[str, ...] = ()


class DeployedVersion(Version, frozen=True):
    """A version that a server deployed, with the warnings of its check."""

    problems: tuple[Problem, ...] = ()


class Alias(msgspec.Struct, frozen=True):
    """A name that points at a version. `weights` sends a percentage of the starts to other versions; any move of the
    alias removes them. `revision` counts its changes."""

    name: str
    number: int
    revision: int = 1
    weights: dict[int, float] = {}


class WorkflowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One workflow in a list. `name` is the display name in its latest version; `hidden`: it is archived."""

    workflow: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: int
    hidden: bool = False


class WorkflowStore(Protocol):
    """Definitions by workflow and version. Version numbers of a workflow start at 1 and have no gaps."""

    async def deploy(
        self,
        definition: bytes,
        hash: str,
        workflow: str,
        at: int,
        *,
        alias: str | None = None,
        expected: Expected | None = None,
        source: VersionSource | None = None,
        principal: str | None = None,
        note: str = "",
        scopes: tuple[str, ...] = (),
    ) -> Version:
        """Store a definition as a new version, unless a version has the same content, and return the version. An
        existing version keeps its principal, and its source and note unless new ones are given; `scopes` are added to
        those it has, and no scopes remove them: then it may start any workflow.

        The same transaction moves `latest` and `alias` to it and restores an archived workflow. For `expected`, an
        archived workflow does not exist. If the latest version already has this content, and this source if one is
        given, a repeated deploy succeeds whatever tag it expects; only a deploy that expects `NOTHING` fails with
        ConcurrentChangeError.
        """

    async def set_alias(
        self,
        workflow: str,
        alias: str,
        version: int | None,
        at: int,
        *,
        weights: Mapping[int, float] | None = None,
        expected: Expected | None = None,
    ) -> Version:
        """Point an alias at a version and replace its weights. `version` None: change only the weights.

        Moving `latest` restores an archived workflow. If the alias already has this version and these weights, the
        call succeeds whatever tag it expects. WorkflowNotFoundError for an unknown version, ConcurrentChangeError if
        the alias does not match `expected`.
        """

    async def archive(self, workflow: str, at: int) -> bool:
        """Archive a workflow: `find` and `list` no longer return it, its versions are kept. False if it was archived
        before; WorkflowNotFoundError if it is unknown."""

    async def find(self, workflow: str, which: str | None = None, *, by: str | None = None) -> Version:
        """Return the version with this number (`3`, `v3`) or alias; None: the latest. WorkflowNotFoundError if there
        is none or the workflow is archived.

        `by` selects a version by the weights of the alias; the same text always selects the same version.
        """

    async def aliases(self, workflow: str) -> list[Alias]:
        """Return all aliases ordered by name, also of an archived workflow."""

    async def versions(self, workflow: str) -> list[Version]:
        """Return all versions, the oldest first, also of an archived workflow."""

    async def source(self, workflow: str, number: int) -> VersionSource | None:
        """Return the newest text that a version was deployed with; None if it has none."""

    async def list(self, *, hidden: bool = False) -> list[WorkflowEntry]:
        """Return the workflows ordered by name; `hidden`: include archived ones."""


YAML_TYPE, JSON_TYPE = "application/yaml", "application/json"


def version_source(text: SourceText) -> VersionSource:
    """Return the text of a document as it is kept with its version."""
    return VersionSource(text.data, JSON_TYPE if text.suffix == "json" else YAML_TYPE)


def number_of(which: str) -> int | None:
    """Parse a version number such as `3` or `v3`; None if the text is not one."""
    match = _NUMBER_PATTERN.fullmatch(which)
    return int(match[1]) if match else None


def check_alias(alias: str) -> None:
    """Raise InvalidAliasError for a text that cannot be an alias."""
    if number_of(alias) is not None:
        raise InvalidAliasError(f"`{alias}` is a version number and cannot be an alias")
    if not _ALIAS_PATTERN.fullmatch(alias):
        raise InvalidAliasError(
            f"`{alias}` is not an alias: use a letter, then letters, digits, `_` and `-`, at most 128 characters"
        )


def check_weights(alias: str, weights: Mapping[int, float]) -> None:
    """Raise InvalidWeightsError for weights that are out of range or set on `latest`."""
    if alias == LATEST and weights:
        raise InvalidWeightsError("`latest` cannot have weights; use another alias")
    for number, share in weights.items():
        if not 0 < share <= 100:
            raise InvalidWeightsError(
                f"version {number} cannot get {share:g} % of the starts: weights are above 0 and at most 100"
            )
    total = round(math.fsum(weights.values()), 9)
    if total > 100:
        raise InvalidWeightsError(f"the weights add up to {total:.10g} %: together they are at most 100")


def check_others(alias: str, number: int, weights: Mapping[int, float]) -> None:
    """Raise InvalidWeightsError if one of the weights is for the version that the alias points at."""
    if number in weights:
        raise InvalidWeightsError(
            f"`{alias}` points at version {number}, which gets what the weights leave: give weights for other versions"
        )


def shares_of(alias: str, weights: Mapping[int, float] | None) -> dict[int, float]:
    """Check an alias and its weights, and return the weights ordered by version."""
    check_alias(alias)
    shares = dict(sorted((weights or {}).items()))
    check_weights(alias, shares)
    return shares


def weighted_choice(workflow: str, alias: str, weights: Mapping[int, float], by: str) -> int | None:
    """Return the version that the weights select for the text `by`; None: the one that the alias points at."""
    position = fraction(workflow, alias, by) * 100
    for number, share in sorted(weights.items()):
        if position < share:
            return number
        position -= share
    return None


def matches(now: Sequence[str], expected: Expected | None, *, already: bool) -> bool:
    """Return whether the current tags `now`, none if the object does not exist, meet a precondition. `already`: the
    change has taken place, as a client that repeats its request finds it."""
    if expected is None:
        return True
    accepted = (*now, ANYTHING) if now else (NOTHING,)
    return any(tag in expected for tag in accepted) or (already and repeatable(expected))


def repeatable(expected: Expected | None) -> bool:
    """Return whether a repeated request succeeds like the first one; not if it expects `NOTHING`."""
    return expected is None or any(tag != NOTHING for tag in expected)


def chosen_by(which: str | None, version: Version) -> ChosenVersion:
    """Return the version that a start chose by a number, an alias, or without either: by `latest`."""
    choice = LATEST if which is None else which
    return ChosenVersion(version.number, None if number_of(choice) is not None else choice, version.scopes)


def choose(workflow: str, versions: Sequence[Version], which: str | None = None) -> Version:
    """Return the version with this number or alias; None: the latest."""
    choice = LATEST if which is None else which
    number = number_of(choice)
    for version in versions:
        if version.number == number if number is not None else choice in version.aliases:
            return version
    raise workflow_not_found(workflow, versions, choice)


def workflow_not_found(workflow: str, versions: Sequence[Version], which: str | int) -> WorkflowNotFoundError:
    """Return an error that lists the existing versions and aliases."""
    if not versions:
        return WorkflowNotFoundError(f"no workflow `{workflow}` was deployed")
    last = versions[-1].number
    numbers = "version 1" if last == 1 else f"versions 1 to {last}"
    aliases = sorted((name, version.number) for version in versions for name in version.aliases)
    listed_aliases = ", ".join(f"{name} ({number})" for name, number in aliases)
    return WorkflowNotFoundError(
        f"`{workflow}` has no version `{which}`: it has {numbers}, and {listed_aliases}"
    )


def child_forbidden(caller: str, child: str) -> ChildForbiddenError:
    """Return the error of a forbidden child, whether or not the workflow exists."""
    return ChildForbiddenError(
        f"`{caller}` may not start `{child[:128]}`: the scope of its key does not contain that workflow, and none of"
        f" this name lists `{caller}` in `callable_by`"
    )


def archived_error(workflow: str) -> WorkflowNotFoundError:
    return WorkflowNotFoundError(f"workflow `{workflow}` was removed; a new deploy restores it")


def concurrent_change_error(what: str, now: Sequence[str]) -> ConcurrentChangeError:
    current = f'it is "{now[0]}"' if now else "it does not exist"
    return ConcurrentChangeError(f"{what} does not match the expected state: {current}")


class TriggerNotFoundError(RuneError):
    """No trigger matches this name, or more than one does."""

    code = "UNKNOWN_TRIGGER"


class PathTakenError(RuneError):
    """Another workflow has a webhook at this path."""

    code = "PATH_TAKEN"


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger node of the deployed version. `revision` counts its changes; 0: not stored yet."""

    id: str
    workflow: str
    node: str
    version: int
    hash: str
    at: int  # when it was created
    alias: str | None = None  # the alias that selected the version
    hook: WebhookConfig | None = None
    schedule: Schedule | None = None
    path: str | None = None  # of a webhook
    credential: str | None = None  # credential with the secret that callers of the webhook prove to know
    made_secret: bool = False  # the credential was created for this trigger
    enabled: bool = True
    anchor: int = 0  # start of an interval schedule
    standing: ScheduleState = ScheduleState()
    due: int | None = None  # when the scheduler has to process the schedule
    trouble: str = ""  # why the last tick started nothing
    scopes: tuple[str, ...] = ()  # of the version
    revision: int = 0

    @property
    def kind(self) -> Literal["webhook", "schedule"]:
        return "webhook" if self.hook is not None else "schedule"


def trigger_id(workflow: str, node: str) -> str:
    """Return the id of a trigger, which is the same in all versions of its workflow."""
    return "t" + hashlib.blake2b(f"{workflow}\x1f{node}".encode(), digest_size=12).hexdigest()


def path_taken_error(path: str | None, workflow: str | None) -> PathTakenError:
    """Return the error for a path that a webhook of this workflow has; None: it has been removed meanwhile."""
    owner = "another workflow" if workflow is None else f"workflow `{workflow}`"
    return PathTakenError(f"{owner} already has a webhook at `{path}`")


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """A deployed workflow of which an execution has to complete within `every` ms after `since`: the last completion
    that is known, or the begin of the period (epoch ms). `due`: when the period is over. `revision` counts its
    changes; 0: not stored yet."""

    workflow: str
    version: int
    hash: str
    every: int
    since: int
    due: int
    scopes: tuple[str, ...] = ()  # of the version
    revision: int = 0


def moved_on(expectation: Expectation, since: int) -> Expectation:
    """Return an expectation whose period begins at a time (epoch ms)."""
    return replace(expectation, since=since, due=since + expectation.every)


class ExpectationStore(Protocol):
    """Expectations, at most one for each workflow. A change succeeds only if the caller has the stored revision
    (optimistic locking), so that of several schedulers one finds that an execution is missing."""

    async def list(self) -> Sequence[Expectation]:
        """Return all expectations, ordered by workflow."""

    async def find(self, workflow: str) -> Expectation | None:
        """Return the expectation of a workflow."""

    async def put(self, expectation: Expectation, missing: Missing | None = None) -> Expectation | None:
        """Replace the stored expectation of the same revision (0: insert it) and return it with its new revision, None
        if the stored revision differs. `missing` is recorded as the row of a handler in the same transaction."""

    async def remove(self, expectation: Expectation) -> bool:
        """Delete an expectation; False if the stored revision differs."""

    async def due(self, now: int, limit: int) -> Sequence[Expectation]:
        """Return expectations whose period is over, the longest due first."""

    async def last_completed(self, workflow: str, after: int) -> int | None:
        """Return when the last execution of a version of this workflow completed in real time, if after a time (epoch
        ms). Executions that retention removes meanwhile move the expectation on instead."""


class TriggerStore(Protocol):
    """Triggers by id. A change succeeds only if the caller has the stored revision (optimistic locking)."""

    async def list(self, workflow: str | None = None) -> Sequence[Trigger]:
        """Return the triggers of a workflow, or all of them, ordered by workflow and node."""

    async def find(self, id: str) -> Trigger | None:
        """Return the trigger with this id."""

    async def at_path(self, path: str) -> Trigger | None:
        """Return the webhook at a path."""

    async def put(self, trigger: Trigger, missing: Missing | None = None) -> Trigger | None:
        """Replace the stored trigger of the same revision (0: insert it) and return it with its new revision. `missing`
        is recorded as the row of a handler in the same transaction.

        None if the stored revision differs. PathTakenError if another trigger has its path.
        """

    async def remove(self, trigger: Trigger) -> bool:
        """Delete a trigger; False if the stored revision differs."""

    async def due(self, now: int, limit: int) -> Sequence[Trigger]:
        """Return schedules that are due, the longest due first."""

    async def next_due(self) -> int | None:
        """Return when the next schedule is due (epoch ms); None if there is none."""

    async def remember_delivery(self, trigger: str, mark: str, delivery: str, until: int) -> str:
        """Record the delivery id under which a signature (`mark`) was received, until the signature expires.

        Write-once: return the delivery id of the first call, so that a replay under another id is detected.
        """

    async def forget_deliveries(self, now: int) -> int:
        """Delete the records of expired signatures and return how many there were."""
