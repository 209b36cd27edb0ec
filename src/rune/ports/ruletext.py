"""Rules of retention as people write them: `{"workflow": "x", "status": ["failed"], "older_than": "30d"}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rune.ports.retention import BadRule, Rule

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII)


def parse_duration(text: object) -> int:
    """Milliseconds of `90s`, `15m`, `12h`, `30d`, `2w`."""
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    unit = UNITS.get(found[2]) if found else None
    if found is None or unit is None:
        raise BadRule(f"`{text}` is no duration: write a number and a unit, such as 90s, 15m, 12h, 30d or 2w")
    return round(float(found[1]) * unit)


def parse_rules(given: object) -> tuple[Rule, ...]:
    """Rules from a list of tables, or from its JSON text."""
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given) if given.strip() else []
        except msgspec.DecodeError as error:
            raise BadRule(
                f'`{given}` is no JSON ({error}); write a list such as [{{"older_than": "30d", "keep": 1000}}]'
            ) from None
    if not isinstance(given, list):
        raise BadRule("write a list of rules, in `rune.toml` each below its own [[retention]]")
    return tuple(_rule(each, number) for number, each in enumerate(given, 1))


def _rule(given: object, number: int) -> Rule:
    fields = [field.name for field in msgspec.structs.fields(Rule)]
    try:
        if not isinstance(given, Mapping):
            raise BadRule("it is no table")
        unknown = [name for name in given if name not in fields]
        if unknown:
            raise BadRule(f"`{unknown[0]}` is unknown; a rule has {', '.join(fields[:-1])} and {fields[-1]}")
        return msgspec.convert(_read(given), Rule)
    except BadRule as error:
        raise BadRule(f"rule {number}: {error.message}") from None
    except msgspec.ValidationError as error:
        raise BadRule(f"rule {number}: {error}") from None


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    read = dict(given)
    if "older_than" in read:
        try:
            read["older_than"] = parse_duration(read["older_than"])
        except BadRule as error:
            raise BadRule(f"older_than: {error.message}") from None
    if isinstance(read.get("status"), str):
        read["status"] = [read["status"]]
    return read
