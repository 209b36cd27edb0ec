"""Retention: which ended executions go, and what became of the space they took.

An execution goes if at least one rule selects it. The rules that name its workflow are asked; the rules that name none
are asked only if no rule names it, so `keep everything of x` is a rule for x that selects nothing.
Whatever the rules say, these stay: executions that have not ended, executions whose results another one holds by
reference, and children whose parent has not ended.

Rules of retention as people write them: `{"workflow": "x", "status": ["failed"], "older_than": "30d"}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from rune.errors import RuneError

ENDED = ("completed", "failed", "halted", "cancelled")
KEY_DAYS = 30
KEY_LIFE_MS = KEY_DAYS * 24 * 3_600_000
"""How long a client key outlives its execution, in ms."""


class InvalidRuleError(RuneError):
    """A rule that cannot be meant."""

    code = "BAD_RULE"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Selects ended executions: all that it says must hold.

    `keep` spares the newest of those that have the rule's workflow and status, by the time they ended.
    """

    workflow: str | None = None
    status: tuple[str, ...] = ()  # none: however it ended
    older_than: int | None = None  # ms since it ended
    keep: int | None = None  # per workflow

    def __post_init__(self) -> None:
        unknown = [each for each in self.status if each not in ENDED]
        if unknown:
            raise InvalidRuleError(
                f"status `{unknown[0]}`: an ended execution is {', '.join(ENDED[:-1])} or {ENDED[-1]}"
            )
        if self.workflow == "":
            raise InvalidRuleError("workflow: the name is empty; leave it out to mean every workflow")
        if self.older_than is None and self.keep is None:
            raise InvalidRuleError("a rule says `older_than`, `keep` or both; `keep = 0` keeps none")
        if min(self.older_than or 0, self.keep or 0) < 0:
            raise InvalidRuleError("`older_than` and `keep` are not negative")


class RetentionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed. `longest_ms` is the time that the longest act took, waiting for others included; `shrinks`
    says whether the backend can give space back while it is in use."""

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
    """Removes what is no longer wanted."""

    async def collect(
        self, rules: Sequence[Rule], now: int, *, progress: Progress | None = None
    ) -> RetentionResult:
        """Remove what the rules select, in short acts between which others go on. Cancelled or killed at any instant
        it leaves every execution whole or gone; what is left over is removed by the next."""

    async def vacuum(self) -> tuple[int, int]:
        """Give back what `collect` cannot, while nothing else is written; the size before and after."""


def applicable(rules: Sequence[Rule], workflow: str) -> list[Rule]:
    """The rules that are asked about executions of a workflow."""
    own = [rule for rule in rules if rule.workflow == workflow]
    return own or [rule for rule in rules if rule.workflow is None]


UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII)


def parse_duration(text: object) -> int:
    """Milliseconds of `90s`, `15m`, `12h`, `30d`, `2w`."""
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    unit = UNITS.get(found[2]) if found else None
    if found is None or unit is None:
        raise InvalidRuleError(
            f"`{text}` is no duration: write a number and a unit, such as 90s, 15m, 12h, 30d or 2w"
        )
    return round(float(found[1]) * unit)


def parse_rules(given: object) -> tuple[Rule, ...]:
    """Rules from a list of tables, or from its JSON text."""
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given) if given.strip() else []
        except msgspec.DecodeError as error:
            raise InvalidRuleError(
                f'`{given}` is no JSON ({error}); write a list such as [{{"older_than": "30d", "keep": 1000}}]'
            ) from None
    if not isinstance(given, list):
        raise InvalidRuleError("write a list of rules, in `rune.toml` each below its own [[retention]]")
    return tuple(_rule(each, number) for number, each in enumerate(given, 1))


def _rule(given: object, number: int) -> Rule:
    fields = [field.name for field in msgspec.structs.fields(Rule)]
    try:
        if not isinstance(given, Mapping):
            raise InvalidRuleError("it is no table")
        unknown = [name for name in given if name not in fields]
        if unknown:
            raise InvalidRuleError(
                f"`{unknown[0]}` is unknown; a rule has {', '.join(fields[:-1])} and {fields[-1]}"
            )
        return msgspec.convert(_read(given), Rule)
    except InvalidRuleError as error:
        raise InvalidRuleError(f"rule {number}: {error.message}") from None
    except msgspec.ValidationError as error:
        raise InvalidRuleError(f"rule {number}: {error}") from None


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    read = dict(given)
    if "older_than" in read:
        try:
            read["older_than"] = parse_duration(read["older_than"])
        except InvalidRuleError as error:
            raise InvalidRuleError(f"older_than: {error.message}") from None
    if isinstance(read.get("status"), str):
        read["status"] = [read["status"]]
    return read
