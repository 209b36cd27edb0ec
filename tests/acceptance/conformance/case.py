"""Loads conformance cases and expands them.

Cases use the product only through its command line, so that the same files test every backend.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML

FOLDER = pathlib.Path(__file__).parent / "cases"
BASE_URL = "{{base_url}}"
_COUNTER = re.compile(r"<([a-z0-9+*\- ]+)>")
_TERM = re.compile(r"\s*([a-z]|\d+)\s*")


@dataclasses.dataclass(frozen=True)
class Case:
    """One workflow, its stub servers and its expected result."""

    name: str
    about: str
    covers: tuple[str, ...]
    expect: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    document: Any = None
    text: str | None = None
    suffix: str = "json"
    refused: str | None = None
    input: Any = dataclasses.field(default_factory=dict)
    input_text: str | None = None
    input_blob_bytes: int | None = None
    http: tuple[Mapping[str, Any], ...] = ()
    smtp: bool = False
    fake_time: bool = False
    timeout_s: float = 60
    workflows: tuple[Any, ...] = ()
    steps: tuple[Mapping[str, Any], ...] = ()

    def workflow_source(self, base_url: str) -> str:
        """The document as text, with the URL of the HTTP stub inserted."""
        text = self.text if self.text is not None else json.dumps(expand(self.document))
        return text.replace(BASE_URL, base_url)

    def input_source(self) -> str:
        """The start payload as text; possibly malformed on purpose."""
        if self.input_text is not None:
            return self.input_text
        if self.input_blob_bytes is not None:
            frame = '{"blob": ""}'
            return frame[:-2] + "x" * (self.input_blob_bytes - len(frame)) + frame[-2:]
        return json.dumps(expand(self.input))


def load() -> tuple[Case, ...]:
    """The cases that consist of one run, in file order."""
    return tuple(case for case in _all() if not case.steps)


def load_steps() -> tuple[Case, ...]:
    """The cases with steps."""
    return tuple(case for case in _all() if case.steps)


@functools.cache
def _all() -> tuple[Case, ...]:
    yaml = YAML(typ="safe", pure=True)
    found = [_read(raw) for path in sorted(FOLDER.glob("*.yaml")) for raw in yaml.load(path)]
    names = [case.name for case in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"case names used twice: {sorted(twice)}")
    return tuple(found)


def _read(raw: dict[str, Any]) -> Case:
    fields = dict(raw)
    fields["name"] = fields.pop("case")
    for key in ("covers", "http", "workflows", "steps"):
        if key in fields:
            fields[key] = tuple(fields[key])
    if ("document" in fields) == ("text" in fields) and "steps" not in fields:
        raise ValueError(f"{fields['name']}: give either document or text")
    return Case(**fields)


def expand(value: Any, counters: Mapping[str, int] | None = None) -> Any:
    """The value with each `<repeat>` expanded and each counter such as `<i*20+j>` replaced."""
    counters = counters or {}
    if isinstance(value, dict):
        return {_fill(key, counters): expand(inner, counters) for key, inner in value.items()}
    if isinstance(value, list):
        return [each for inner in value for each in _elements(inner, counters)]
    if isinstance(value, str):
        whole = _COUNTER.fullmatch(value)
        number = _count(whole[1], counters) if whole and counters else None
        return _fill(value, counters) if number is None else number
    return value


def _elements(value: Any, counters: Mapping[str, int]) -> Iterator[Any]:
    if not (isinstance(value, dict) and set(value) == {"<repeat>"}):
        yield expand(value, counters)
        return
    repeat = value["<repeat>"]
    for number in range(repeat["count"]):
        yield from _elements(repeat["item"], {**counters, repeat.get("var", "i"): number})


def _fill(text: str, counters: Mapping[str, int]) -> str:
    def put(match: re.Match[str]) -> str:
        number = _count(match[1], counters)
        return match[0] if number is None else str(number)

    return _COUNTER.sub(put, text) if counters else text


def _count(formula: str, counters: Mapping[str, int]) -> int | None:
    """The value of a formula of counters; None if it is not a formula of known counters."""
    total = 0
    for sign, product in re.findall(r"([+-]?)([^+-]+)", formula):
        value = 1
        for factor in product.split("*"):
            term = _TERM.fullmatch(factor)
            if term is None or not (term[1].isdigit() or term[1] in counters):
                return None
            value *= int(term[1]) if term[1].isdigit() else counters[term[1]]
        total += -value if sign == "-" else value
    return total
