"""The report of an import: for each element of the source, what became of it.

Every entry covers the part of the source at its path and everything below. `Recorder.finish` adds an entry for each
part that no entry covers, so that nothing is dropped in silence.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import join

Status = Literal["carried", "changed", "approximated", "by_hand"]
STATUSES: tuple[Status, ...] = ("carried", "changed", "approximated", "by_hand")

Format = Literal["canvas", "n8n", "asl"]
FORMATS: tuple[Format, ...] = ("canvas", "n8n", "asl")


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one element of the source.

    `source` and `target` are paths in the two documents; `target` is empty if nothing in the new document corresponds.
    `carried`: the same meaning. `changed`: the same result, if what `hint` says is done. `approximated`: `message` says
    what differs at run time. `by_hand`: not imported; `message` says why, `hint` what to do.
    """

    source: str
    status: Status
    target: str = ""
    message: str = ""
    hint: str = ""


class Report(msgspec.Struct, frozen=True):
    """All entries in the order of the source, and the problems that `rune check` finds in the new document."""

    format: Format
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything was carried and the new document is valid."""
        return all(each.status == "carried" for each in self.entries) and not any(
            each.severity == "error" for each in self.problems
        )

    def counts(self) -> dict[Status, int]:
        """Return the number of entries by status."""
        found: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        for each in self.entries:
            found[each.status] += 1
        return found


class Import(msgspec.Struct, frozen=True):
    """A new document, the report, Python source of custom nodes to implement (empty if there are none), and a test for
    `rune test` without its workflow (empty if the source has no pinned data)."""

    document: dict[str, Any]
    report: Report
    stubs: str = ""
    test: dict[str, Any] = {}


class Recorder:
    """Collects the entries of a report while a source document is read."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._entries: list[Entry] = []
        self._covered: set[str] = set()

    def add(self, source: str, status: Status, target: str = "", message: str = "", hint: str = "") -> None:
        self._covered.add(source)
        self._entries.append(Entry(source, status, target, message, hint))

    def has(self, source: str) -> bool:
        """Return whether an entry is at this path."""
        return source in self._covered

    def carried(self, source: str, target: str, message: str = "") -> None:
        self.add(source, "carried", target, message)

    def changed(self, source: str, target: str, message: str, hint: str = "") -> None:
        self.add(source, "changed", target, message, hint)

    def approximated(self, source: str, target: str, message: str, hint: str = "") -> None:
        self.add(source, "approximated", target, message, hint)

    def by_hand(self, source: str, message: str, hint: str, target: str = "") -> None:
        self.add(source, "by_hand", target, message, hint)

    def finish(self) -> tuple[Entry, ...]:
        """Return the entries in the order of the source, with one for each part that no entry covers."""
        order: dict[str, int] = {}
        for path in uncovered(self._source, self._covered, order):
            self.by_hand(
                path,
                "the importer does not know this element",
                "check whether the workflow depends on it",
            )
        ranked = sorted(
            range(len(self._entries)),
            key=lambda at: (order.get(self._entries[at].source, len(order)), at),
        )
        return tuple(self._entries[at] for at in ranked)


def uncovered(source: Any, covered: set[str], order: dict[str, int] | None = None) -> list[str]:
    """Return the paths of the outermost parts of which nothing is covered. Nulls and empty parts hold no content.

    `order` receives the position of every visited path.
    """
    found: list[str] = []
    stack: list[tuple[str, Any, bool]] = [("", source, False)]
    holds_covered = _ancestors(covered)
    while stack:
        path, part, inside = stack.pop()
        if order is not None:
            order[path] = len(order)
        is_covered = inside or (path in covered and path != "")
        children = _children(path, part)
        if is_covered or (path and not is_empty(part) and (path not in holds_covered or not children)):
            if not is_covered:
                found.append(path)
            if order is not None:
                kept = [each for each in children if each[0] in covered or each[0] in holds_covered]
                stack.extend((*each, is_covered) for each in reversed(kept))
            continue
        stack.extend((*each, False) for each in reversed(children))
    return found


def _children(path: str, part: Any) -> list[tuple[str, Any]]:
    if isinstance(part, dict):
        return [(join(path, key), each) for key, each in part.items()]
    if isinstance(part, list):
        return [(f"{path}[{at}]", each) for at, each in enumerate(part)]
    return []


def is_empty(part: Any) -> bool:
    """Return whether a part holds no content: null, or a container of nothing else."""
    stack = [part]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)
        elif each is not None:
            return False
    return True


def _ancestors(paths: set[str]) -> set[str]:
    """Return every prefix of the paths that ends before a `.` or a `[`."""
    found: set[str] = set()
    for path in paths:
        for at, char in enumerate(path):
            if char in ".[":
                found.add(path[:at])
    return found
