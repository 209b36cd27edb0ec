"""A document as text with the positions of its values, and edits that replace parts of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

import msgspec

from rune.core.definition.strict_json import decode_json
from rune.core.limits import LIMITS
from rune.documents.textedit.tree import Entry, Part, TreeBuilder, parse_json
from rune.documents.textedit.writer import Writer
from rune.errors import RuneError

Format = Literal["yaml", "json"]
Path = tuple[str | int, ...]
OnEvent = Callable[[Any], None]

_FLOW_OBJECT = re.compile(r"\{( ?)[^{}\s]")
_COMPACT_COLON = re.compile(r'"\s*:\S')
# The end of a key whose value is on the next lines.
_KEY_END = re.compile(r":[ \t]*+(?:#|$)")
_JSON_STEP = re.compile(r"[\[{]\r?\n( +)\S")


def _list_step(text: str) -> int:
    """Return by how much the first list under a key is indented; 2 if there is none."""
    key: int | None = None
    for line in text.split("\n"):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        indentation = len(line) - len(line.lstrip(" "))
        if key is not None and line.startswith("- ", indentation):
            return max(indentation - key, 0)
        key = indentation if content[0] != "-" and _KEY_END.search(content, 1) else None
    return 2


class TextEditError(RuneError):
    """A text cannot be edited: it is not a document, or the place to edit does not exist."""

    code = "CANNOT_EDIT"


class TextEdit(msgspec.Struct, frozen=True, order=True):
    """Replace the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Apply edits that do not overlap. Insertions at one position are made in the order given."""
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        if edit.start < at:
            raise TextEditError(f"two edits overlap at character {edit.start}")
        pieces += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join([*pieces, text[at:]])


def inverse_edits(text: str, edits: Iterable[TextEdit]) -> list[TextEdit]:
    """Return the edits that take back edits of a text."""
    inverse: list[TextEdit] = []
    shift = 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        start = edit.start + shift
        inverse.append(TextEdit(start, start + len(edit.text), text[edit.start : edit.end]))
        shift += len(edit.text) - (edit.end - edit.start)
    return inverse


def guess_format(text: str) -> Format:
    """Return whether a text is meant as JSON or as YAML: a document in JSON begins with a brace."""
    return "json" if text.lstrip("\ufeff \t\r\n").startswith("{") else "yaml"


def decode(text: str, format: Format, on_event: OnEvent | None = None) -> Any:
    """Return the plain data of a text; raise TextEditError if it has none. `on_event` is called with the events of the
    parser of YAML."""
    max_bytes, max_depth = LIMITS.definition_bytes, LIMITS.json_depth
    if format == "json":
        decoded = decode_json(text, max_bytes=max_bytes, max_depth=max_depth)
    else:
        from rune.documents.yaml import decode_yaml  # noqa: PLC0415 - a slow import that JSON does not need

        decoded = decode_yaml(text, max_bytes=max_bytes, max_depth=max_depth, on_event=on_event)
    if decoded.problems:
        raise TextEditError(f"the text cannot be edited: {decoded.problems[0].message}")
    return decoded.value


class SourceText:
    """The text of a document, its values by position, and its style."""

    def __init__(self, text: str, format: Format | None = None) -> None:
        self.text = text
        self.format: Format = format or guess_format(text)
        if self.format == "json" and not _is_json(text):
            self.format = "yaml"
        if self.format == "json":
            self.value = decode(text, "json")
            return
        # The parser of YAML is slow: the value and the tree come from one pass.
        tree = TreeBuilder(text)
        self.value = decode(text, "yaml", tree.add)
        self.root = tree.root

    @cached_property
    def root(self) -> Part:
        return parse_json(self.text)

    @cached_property
    def writer(self) -> Writer:
        """The style of the document, from the first place that shows each of its properties."""
        text = self.text
        newline = "\r\n" if "\r\n" in text else "\n"
        if self.format == "json":
            step = _JSON_STEP.search(text)
            spaced = _COMPACT_COLON.search(text) is None
            return Writer(as_json=True, spaced=spaced, step=len(step[1]) if step else 2, newline=newline)
        flow = _FLOW_OBJECT.search(text)
        return Writer(
            padded=flow is None or flow[1] == " ",
            list_step=_list_step(text),
            newline=newline,
            ends_with_newline=text.endswith("\n"),
        )

    def part(self, path: Path) -> Part:
        """Return the value at a path."""
        found = self.root.at(path)
        if found is None:
            raise TextEditError(f"the document has no `{path_text(path)}`")
        return found

    def line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def line_end(self, at: int) -> int:
        """Return the position after the line break of a line."""
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found + 1

    def column(self, at: int) -> int:
        return at - self.line_start(at)

    def begins_line(self, at: int) -> bool:
        """Return whether only spaces precede a position on its line."""
        return not self.text[self.line_start(at) : at].strip(" ")

    def after_colon(self, owner: Part, entry: Entry) -> int:
        """Return the position after the colon or the dash of an entry."""
        if owner.kind == "list":
            return entry.start + 1 if owner.style == "block" else entry.start
        return self.text.index(":", entry.key_end) + 1

    def chunk(self, entry: Entry) -> tuple[int, int]:
        """Return the lines of an entry of a block list or object, with the comments directly above at its column and
        those below that are indented more."""
        column = self.column(entry.start)
        start = self.line_start(entry.start)
        while start:
            above = self.line_start(start - 1)
            line = self.text[above : start - 1].rstrip("\r")
            if not line.startswith(" " * column + "#"):
                break
            start = above
        end = self.line_end(max(entry.part.end, entry.key_end))
        while end < len(self.text):
            below = self.line_end(end)
            line = self.text[end:below].rstrip()
            if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) <= column:
                break
            end = below
        return start, end

    def blank_before(self, at: int) -> int:
        """Return the start of the blank lines directly above a line."""
        while at:
            above = self.line_start(at - 1)
            if self.text[above:at].strip():
                break
            at = above
        return at

    def blank_after(self, at: int) -> int:
        """Return the end of the blank lines that begin at a line."""
        while at < len(self.text):
            below = self.line_end(at)
            if self.text[at:below].strip():
                break
            at = below
        return at

    def comments(self) -> Iterator[tuple[int, str]]:
        """Yield position and text of every comment of a YAML document."""
        if self.format == "json":
            return
        at = 0
        for start, end in (*sorted(self.root.leaves()), (len(self.text), len(self.text))):
            for found in re.finditer(r"(?:^|(?<=\s))#[^\r\n\x85\u2028\u2029]*", self.text[at:start]):
                yield at + found.start(), found[0]
            at = max(at, end)


def _is_json(text: str) -> bool:
    """Return whether a text is JSON, or broken JSON that is not YAML either: `{a: b}` is YAML only."""
    decoded = decode_json(text, max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)
    return not any(each.code == "NOT_JSON" for each in decoded.problems)


def path_text(path: Path) -> str:
    """Return a path as problems show it: `nodes[3].timeout`."""
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
    return text.removeprefix(".")
