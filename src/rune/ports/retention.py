"""Retention: rules that select ended executions for removal, and the port that removes them.

An execution is removed if at least one applicable rule selects it. Rules that name its workflow apply; rules without a
workflow apply only if no rule names it. Never removed: executions that have not ended, executions whose results another
one refers to, and children of a running parent.
A rule is written as `{"workflow": "x", "status": ["failed"], "older_than": "30d"}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from rune.core.json_decoder import read_json
from rune.errors import RuneError

ENDED = ("completed", "failed", "halted", "cancelled")
KEY_DAYS = 30
KEY_LIFE_MS = KEY_DAYS * 24 * 3_600_000
"""How long an idempotency key is kept after its execution was removed, in ms."""

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII)


class InvalidRuleError(RuneError):
    """A retention rule is malformed or has no effect."""

    code = "BAD_RULE"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Selects ended executions that meet all of its conditions.

    `keep` excludes the most recently ended executions of the rule's workflow and status.
    """

    workflow: str | None = None
    status: tuple[str, ...] = ()  # empty: any status
    older_than: int | None = None  # ms since the end
    keep: int | None = None  # number per workflow

    def __post_init__(self) -> None:
        unknown = [status for status in self.status if status not in ENDED]
        if unknown:
            raise InvalidRuleError(
                f"status `{unknown[0]}`: an ended execution is {', '.join(ENDED[:-1])} or {ENDED[-1]}"
            )
        if self.workflow == "":
            raise InvalidRuleError("workflow: the name is empty; omit it to select every workflow")
        if self.older_than is None and self.keep is None:
            raise InvalidRuleError("a rule needs `older_than`, `keep` or both; `keep = 0` keeps none")
        if min(self.older_than or 0, self.keep or 0) < 0:
            raise InvalidRuleError("`older_than` and `keep` must not be negative")

    @property
    def statuses(self) -> tuple[str, ...]:
        """The final statuses that it selects: with failed executions halted ones, as lists and counts do."""
        halted = ("halted",) if "failed" in self.status else ()
        return tuple(dict.fromkeys((*self.status, *halted))) or ENDED


class RetentionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection removed. `longest_ms` is the duration of the longest transaction, including its wait for the
    writer; `shrinks` is false for a file of an earlier version, which does not return space to the disk while it is in
    use. A database server decides that itself."""

    executions: int = 0
    facts: int = 0
    blobs: int = 0
    definitions: int = 0
    keys: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    duration_ms: int = 0
    longest_ms: int = 0
    shrinks: bool = True


Progress = Callable[[RetentionResult], None]


class Retention(Protocol):
    """Removes ended executions and returns their space."""

    async def collect(
        self, rules: Sequence[Rule], now: int, *, progress: Progress | None = None
    ) -> RetentionResult:
        """Remove what the rules select, in short transactions between which other writes proceed.

        If the collection is cancelled or the process killed, every execution is either complete or removed; the next
        collection deletes the remaining rows of removed ones.
        """

    async def vacuum(self) -> tuple[int, int]:
        """Return all free space to the disk, blocking other writes, and return the size before and after in bytes."""


def applicable(rules: Sequence[Rule], workflow: str) -> list[Rule]:
    """Return the rules that apply to the executions of a workflow."""
    workflow_rules = [rule for rule in rules if rule.workflow == workflow]
    return workflow_rules or [rule for rule in rules if rule.workflow is None]


def parse_duration(text: object) -> int:
    """Return the milliseconds of a duration such as `90s`, `15m`, `12h`, `30d` or `2w`."""
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    unit = UNITS.get(match[2]) if match else None
    if match is None or unit is None:
        raise InvalidRuleError(
            f"`{text}` is not a duration: use a number and a unit, such as 90s, 15m, 12h, 30d or 2w"
        )
    return round(float(match[1]) * unit)


def parse_rules(given: object) -> tuple[Rule, ...]:
    """Parse rules from a list of tables, or from its JSON text."""
    if isinstance(given, str):
        try:
            given = read_json(given) if given.strip() else []
        except msgspec.DecodeError as error:
            raise InvalidRuleError(
                f'`{given}` is not JSON ({error}); use a list such as [{{"older_than": "30d", "keep": 1000}}]'
            ) from None
    if not isinstance(given, list):
        raise InvalidRuleError("rules must be a list; in `rune.toml` each rule is a [[retention]] table")
    return tuple(_parse_rule(table, number) for number, table in enumerate(given, 1))


def _parse_rule(table: object, number: int) -> Rule:
    fields = [field.name for field in msgspec.structs.fields(Rule)]
    try:
        if not isinstance(table, Mapping):
            raise InvalidRuleError("not a table")
        unknown = [name for name in table if name not in fields]
        if unknown:
            raise InvalidRuleError(
                f"`{unknown[0]}` is unknown; a rule has {', '.join(fields[:-1])} and {fields[-1]}"
            )
        return msgspec.convert(_normalize(table), Rule)
    except InvalidRuleError as error:
        raise InvalidRuleError(f"rule {number}: {error.message}") from None
    except msgspec.ValidationError as error:
        raise InvalidRuleError(f"rule {number}: {error}") from None


def _normalize(table: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(table)
    if "older_than" in fields:
        try:
            fields["older_than"] = parse_duration(fields["older_than"])
        except InvalidRuleError as error:
            raise InvalidRuleError(f"older_than: {error.message}") from None
    if isinstance(fields.get("status"), str):
        fields["status"] = [fields["status"]]
    return fields
