"""Edits that change a value of a document, insert an entry or remove one, in the style of what is around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from rune.documents.textedit.document import (
    Format,
    Path,
    SourceText,
    TextEdit,
    TextEditError,
    apply_edits,
    decode,
    path_text,
)
from rune.documents.textedit.tree import Entry, Part

_ENCODER = msgspec.json.Encoder(order="sorted")


def update(text: str, value: Any, format: Format | None = None) -> str:
    """Return the text with its value replaced by another one; only the lines that differ in value change."""
    source = SourceText(text, format)
    if same(source.value, value):
        return text
    edited = apply_edits(text, Editor(source).change(source.root, value))
    if not same(decode(edited, source.format), value):
        raise TextEditError("the text uses syntax that cannot be edited in place")
    return edited


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; 1, 1.0 and true differ."""
    return one is other or _ENCODER.encode(one) == _ENCODER.encode(other)


class Editor:
    """Computes the text edits of changes to one document."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._text = source.text
        self._writer = source.writer

    def put(self, path: Path, value: Any) -> list[TextEdit]:
        """Set the value at a path; a key that an object does not have is added."""
        if not path:
            return self.change(self._source.root, value)
        owner = self._source.part(path[:-1])
        if owner.entry(path[-1]) is not None:
            return self._change_entry(owner, path[-1], value)
        if owner.kind == "list" or isinstance(path[-1], int):
            raise TextEditError(f"the document has no `{path_text(path)}`")
        if owner.kind == "scalar":
            if owner.value is not None:
                raise TextEditError(f"`{path_text(path[:-1])}` is not an object")
            return self.put(path[:-1], {path[-1]: value})
        if not owner.entries:
            return self.put(path[:-1], {path[-1]: value})
        return self._insert_keys(owner, owner.entries[-1], {path[-1]: value})

    def remove(self, path: Path) -> list[TextEdit]:
        """Remove an entry with the comments that belong to it."""
        owner = self._source.part(path[:-1])
        if not path or owner.entry(path[-1]) is None:
            raise TextEditError(f"the document has no `{path_text(path)}`")
        if len(owner.entries) == 1:
            return self.put(path[:-1], [] if owner.kind == "list" else {})
        at = next(at for at, each in enumerate(owner.entries) if each.key == path[-1])
        return self._remove(owner, [at])

    def remove_elements(self, path: Path, positions: Sequence[int]) -> list[TextEdit]:
        """Remove elements of a list at positions in ascending order."""
        owner = self._source.part(path)
        if len(positions) == len(owner.entries):
            return self.put(path, [])
        return self._remove(owner, positions)

    def insert(self, path: Path, index: int, value: Any) -> list[TextEdit]:
        """Insert an element into a list."""
        owner = self._source.part(path)
        if owner.kind == "scalar" and owner.value is None:
            return self.put(path, [value])
        if owner.kind != "list" or not 0 <= index <= len(owner.entries):
            raise TextEditError(f"nothing can be inserted at `{path_text((*path, index))}`")
        if not owner.entries:
            return self.put(path, [value])
        return self._insert_elements(owner, index, [value])

    def change(self, part: Part, value: Any) -> list[TextEdit]:
        """Return the edits that change the value at the root, or one that stays of the same kind."""
        if part.kind == "object" and isinstance(value, Mapping) and part.entries and value:
            return self._change_object(part, value)
        if part.kind == "list" and isinstance(value, list) and part.entries and value:
            return self._change_list(part, value)
        if part is self._source.root:
            if self._writer.as_json:
                return [TextEdit(part.start, part.end, self._writer.pretty(value, 0))]
            whole = isinstance(value, dict | list) and value
            shown = self._writer.block(value, 0) if whole else self._writer.inline(value)
            return [TextEdit(part.start, part.end, shown)]
        raise TextEditError("a value can be replaced only in its list or object")

    def _change_entry(self, owner: Part, key: str | int, value: Any) -> list[TextEdit]:
        entry = owner.entry(key)
        assert entry is not None
        part = entry.part
        if same(part.plain(), value):
            return []
        kind = "list" if isinstance(value, list) else "object" if isinstance(value, Mapping) else "scalar"
        if kind == part.kind != "scalar" and part.entries and value:
            return self.change(part, value)
        if kind == part.kind == "scalar" and not part.empty:
            return [TextEdit(part.start, part.end, self._scalar(part, owner, value))]
        return [self._replace(owner, entry, value)]

    def _scalar(self, part: Part, owner: Part, value: Any) -> str:
        style = "literal" if part.style == "folded" else part.style
        column = max(part.column, 0) + 2
        if style == "literal":
            body = self._text[part.start : part.end].split("\n")[1:]
            indents = [len(line) - len(line.lstrip(" ")) for line in body if line.strip()]
            column = indents[0] if indents else column
            if isinstance(value, str) and "\n" not in value:
                style = "plain"
        return self._writer.scalar(value, style, flow=owner.style == "flow", column=column)

    def _replace(self, owner: Part, entry: Entry, value: Any) -> TextEdit:
        """Replace a value by one of another kind, or an empty collection by one with entries."""
        part, writer = entry.part, self._writer
        if owner.style == "flow":
            if writer.as_json and self._is_multiline(owner):
                shown = writer.pretty(value, self._source.column(self._line_content(entry.start)))
            else:
                shown = writer.inline(value)
            start = part.start
            if part.empty:
                start, shown = self._source.after_colon(owner, entry), " " + shown
            return TextEdit(start, part.end, shown)
        column = self._source.column(entry.start)
        start = self._source.after_colon(owner, entry)
        end = max(part.end, start)
        if _ends_with_lines(value) and self._is_commented(end):
            # Behind a block of text the comment would become part of it.
            return TextEdit(start, end, " " + writer.inline(value))
        if owner.kind == "list":
            return TextEdit(start, end, writer.element(value, column)[1:])
        # A list of nodes or edges has one entry per line from its first entry on.
        lines = isinstance(value, list) and any(isinstance(each, Mapping) for each in value)
        shown = writer.after_key(value, column, force_block=lines)
        note = self._text[start : part.start].split("\n", 1)
        if shown.startswith(writer.newline) and len(note) > 1 and "#" in note[0]:
            # A comment on the line of the key stays there.
            return TextEdit(start + len(note[0].rstrip("\r")), end, shown)
        return TextEdit(start, end, shown)

    def _is_commented(self, at: int) -> bool:
        """Return whether a comment follows on the line of a position."""
        return self._text[at:].split("\n", 1)[0].lstrip().startswith("#")

    def _line_content(self, at: int) -> int:
        """Return the position of the first character of a line that is not a space."""
        start = self._source.line_start(at)
        return start + len(self._text[start:at]) - len(self._text[start:at].lstrip(" "))

    def _is_multiline(self, owner: Part) -> bool:
        return "\n" in self._text[owner.start : owner.end]

    def _change_object(self, part: Part, value: Mapping[Any, Any]) -> list[TextEdit]:
        edits: list[TextEdit] = []
        removed = [at for at, each in enumerate(part.entries) if each.key not in value]
        if len(removed) == len(part.entries):
            return [self._rewrite(part, value)]
        if removed:
            edits += self._remove(part, removed)
        stayed = {each.key: each for each in part.entries if each.key in value}
        for key in stayed:
            edits += self._change_entry(part, key, value[key])
        after = next(reversed(stayed.values()))
        added: dict[str, Any] = {}
        groups: list[tuple[Entry, dict[str, Any]]] = []
        for key, each in value.items():
            if key in stayed:
                after, added = stayed[key], {}
            else:
                if not added:
                    groups.append((after, added))
                added[key] = each
        for anchor, keys in groups:
            edits += self._insert_keys(part, anchor, keys, removed)
        return edits

    def _rewrite(self, part: Part, value: Any) -> TextEdit:
        """Write a list or object anew in its own style."""
        writer = self._writer
        if part.style == "flow":
            if writer.as_json and self._is_multiline(part):
                shown = writer.pretty(value, self._source.column(self._line_content(part.start)))
            else:
                shown = writer.inline(value)
            return TextEdit(part.start, part.end, shown)
        column = self._source.column(part.start)
        return TextEdit(part.start, part.end, writer.block(value, column)[column:])

    def _insert_keys(
        self, owner: Part, after: Entry, keys: Mapping[str, Any], removed: Sequence[int] = ()
    ) -> list[TextEdit]:
        writer = self._writer
        if owner.style == "flow":
            shown = [
                f"{writer.key(key, flow=True)}{self._gap(owner)}{self._nested(owner, after, each)}"
                for key, each in keys.items()
            ]
            return [self._insert_flow(owner, owner.entries.index(after) + 1, shown, removed)]
        column = self._source.column(after.start)
        lines = [
            f"{' ' * column}{writer.key(key, flow=False)}"
            f"{writer.after_key(each, column, force_block=key in ('nodes', 'edges'))}"
            for key, each in keys.items()
        ]
        _, end = self._source.chunk(after)
        return [self._insert_lines(end, lines)]

    def _gap(self, owner: Part) -> str:
        return "" if self._writer.as_json and not self._writer.spaced else " "

    def _nested(self, owner: Part, beside: Entry, value: Any) -> str:
        """Return a value for a list or object in flow style, on several lines if its neighbour is."""
        if self._writer.as_json and "\n" in self._text[beside.part.start : beside.part.end]:
            return self._writer.pretty(value, self._source.column(self._line_content(beside.start)))
        if self._writer.as_json and self._is_multiline(owner) and owner.kind == "object":
            return self._writer.pretty(value, self._source.column(self._line_content(beside.start)))
        return self._writer.inline(value)

    def _insert_lines(self, at: int, lines: Sequence[str]) -> TextEdit:
        newline = self._writer.newline
        shown = "".join(f"{line}{newline}" for line in lines)
        if at and not self._text[:at].endswith("\n"):
            # The last line of the document has no line break, and keeps none.
            shown = newline + shown.removesuffix(newline)
        return TextEdit(at, at, shown)

    def _insert_flow(
        self, owner: Part, index: int, shown: Sequence[str], removed: Sequence[int] = ()
    ) -> TextEdit:
        entries = owner.entries
        # What follows the last entry that stays is removed together with the comma before it.
        is_last = all(at in removed for at in range(index, len(entries)))
        beside = entries[index - 1] if is_last else entries[index]
        separator = ", " if self._writer.spaced else ","
        if self._source.begins_line(beside.start):
            separator = f",{self._writer.newline}{' ' * self._source.column(beside.start)}"
        body = separator.join(shown)
        if not is_last:
            return TextEdit(beside.start, beside.start, body + separator)
        end = max(beside.part.end, beside.key_end)
        return TextEdit(end, end, separator + body)

    def _remove(self, owner: Part, positions: Sequence[int]) -> list[TextEdit]:
        """Remove some entries, but not all of them."""
        if owner.style == "flow":
            return [self._remove_flow(owner, positions, at) for at in positions]
        edits: list[TextEdit] = []
        gone = set(positions)
        for at in positions:
            entry = owner.entries[at]
            if self._source.begins_line(entry.start):
                edits.append(self._remove_lines(owner, at, gone))
            else:
                edits.append(self._remove_compact(owner, at, gone))
        return edits

    def _remove_flow(self, owner: Part, positions: Sequence[int], at: int) -> TextEdit:
        entries = owner.entries
        gone = set(positions)
        kept_after = any(later not in gone for later in range(at + 1, len(entries)))
        if kept_after:
            return TextEdit(entries[at].start, entries[at + 1].start, "")
        before = entries[at - 1]
        return TextEdit(
            max(before.part.end, before.key_end), max(entries[at].part.end, entries[at].key_end), ""
        )

    def _remove_lines(self, owner: Part, at: int, gone: set[int]) -> TextEdit:
        start, _ = self._source.chunk(owner.entries[at])
        end = self._removed_end(owner, at, gone)
        if any(earlier not in gone for earlier in range(at)):
            before = owner.entries[at - 1]
            # Blank lines may belong to the block of text above.
            above = self._source.line_end(max(before.part.end, before.key_end))
            start = max(self._source.blank_before(start), above)
            if end == len(self._text) and not self._text.endswith("\n"):
                start -= len(self._writer.newline)
        if at and at - 1 in gone:
            start = max(start, self._removed_end(owner, at - 1, gone))
        return TextEdit(start, end, "")

    def _removed_end(self, owner: Part, at: int, gone: set[int]) -> int:
        """Return where the removal of an entry ends; the removal of the next one begins there."""
        if not self._source.begins_line(owner.entries[at].start):
            return owner.entries[at + 1].start
        _, end = self._source.chunk(owner.entries[at])
        kept = [earlier for earlier in range(at) if earlier not in gone]
        if not kept:
            return min(self._source.blank_after(end), self._source.chunk(owner.entries[at + 1])[0])
        return self._source.blank_after(end) if self._takes_blank_lines(owner.entries[kept[-1]]) else end

    def _takes_blank_lines(self, entry: Entry) -> bool:
        """Return whether blank lines below an entry are part of its value, which ends with a block `|+` or `>+`."""
        part = entry.part
        while part.entries:
            part = part.entries[-1].part
        header = self._text[part.start : self._source.line_end(part.start)].split("#", maxsplit=1)[0]
        return part.style in {"literal", "folded"} and "+" in header

    def _remove_compact(self, owner: Part, at: int, gone: set[int]) -> TextEdit:
        """Remove the first entry of an object or list that begins on the line of a dash: the next one moves there."""
        entry, following = owner.entries[at], owner.entries[at + 1]
        between = self._text[max(entry.part.end, entry.key_end) : following.start]
        if "#" in between:
            raise TextEditError("a comment stands between the dash and the next key")
        return TextEdit(entry.start, following.start, "")

    def _insert_elements(self, owner: Part, index: int, values: Sequence[Any]) -> list[TextEdit]:
        entries = owner.entries
        beside = entries[index] if index < len(entries) else entries[-1]
        if owner.style == "flow":
            shown = [self._nested(owner, beside, each) for each in values]
            return [self._insert_flow(owner, index, shown)]
        column = self._source.column(owner.start)
        neighbour = entries[min(max(index - 1, 0), len(entries) - 1)]
        return [
            self._insert_chunks(owner, index, [self._element(neighbour, each, column) for each in values])
        ]

    def _element(self, neighbour: Entry, value: Any, column: int) -> str:
        """Return the lines of a new element: on one line if its neighbour is, else as a block."""
        inline = None
        if isinstance(value, Mapping) and neighbour.part.kind == "object":
            inline = neighbour.part.style == "flow"
        return " " * column + self._writer.element(value, column, inline=inline)

    def _insert_chunks(self, owner: Part, index: int, chunks: Sequence[str]) -> TextEdit:
        """Insert whole entries into a block list, with blank lines between them if its entries have some."""
        entries = owner.entries
        newline = self._writer.newline
        separated = self._is_separated(owner, index)
        if index < len(entries):
            if not self._source.begins_line(entries[index].start):
                first = chunks[0].lstrip(" ")
                column = self._source.column(owner.start)
                rest = [f"{chunk}{newline}" for chunk in chunks[1:]]
                return TextEdit(owner.start, owner.start, f"{first}{newline}{''.join(rest)}{' ' * column}")
            at = self._source.chunk(entries[index])[0]
            return TextEdit(
                at, at, "".join(f"{each}{newline}{newline if separated else ''}" for each in chunks)
            )
        at = self._source.chunk(entries[-1])[1]
        lines = [line for chunk in chunks for line in (*([""] if separated else []), chunk)]
        if separated and self._takes_blank_lines(entries[-1]):
            del lines[0]
        return self._insert_lines(at, lines)

    def _is_separated(self, owner: Part, index: int) -> bool:
        """Return whether blank lines stand between the entries around an index."""
        if len(owner.entries) == 1:
            return False
        right = min(max(index, 1), len(owner.entries) - 1)
        start = self._source.chunk(owner.entries[right])[0]
        return self._source.blank_before(start) < start

    def _change_list(self, part: Part, value: list[Any]) -> list[TextEdit]:
        """Align two lists by the identity of their elements; change those that stay, insert and remove the others."""
        old = [_identity(each.part.plain()) for each in part.entries]
        new = [_identity(each) for each in value]
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        removed: list[int] = []
        inserted: list[tuple[int, list[int]]] = []
        edits: list[TextEdit] = []
        for kind, start, end, first, last in matcher.get_opcodes():
            if kind == "equal" or (
                kind == "replace" and end - start == last - first and _scalars(part, start, end)
            ):
                for at, to in zip(range(start, end), range(first, last), strict=True):
                    edits += self._change_entry(part, at, value[to])
            elif kind == "replace" and not _identified(value[first:last]):
                both = min(end - start, last - first)
                for at in range(both):
                    edits += self._change_entry(part, start + at, value[first + at])
                removed += range(start + both, end)
                if first + both < last:
                    inserted.append((start + both, list(range(first + both, last))))
            else:
                removed += range(start, end)
                if first < last:
                    inserted.append((end, list(range(first, last))))
        if len(removed) == len(part.entries):
            return [self._rewrite(part, value)]
        moved = {old[at]: at for at in removed if part.style == "block"}
        for index, which in inserted:
            edits += self._insert_or_move(part, index, [value[at] for at in which], moved)
        if removed:
            edits += self._remove(part, removed)
        return edits

    def _insert_or_move(
        self, part: Part, index: int, values: Sequence[Any], moved: Mapping[Any, int]
    ) -> list[TextEdit]:
        """Insert elements; one that is removed elsewhere keeps its lines and comments."""
        if not any(_identity(each) in moved for each in values) or part.style == "flow":
            return self._insert_elements(part, index, values)
        column = self._source.column(part.start)
        neighbour = part.entries[min(max(index - 1, 0), len(part.entries) - 1)]
        chunks: list[str] = []
        for each in values:
            at = moved.get(_identity(each))
            if at is None or not self._source.begins_line(part.entries[at].start):
                chunks.append(self._element(neighbour, each, column))
                continue
            start, end = self._source.chunk(part.entries[at])
            inner = [
                TextEdit(edit.start - start, edit.end - start, edit.text)
                for edit in self._change_entry(part, at, each)
            ]
            chunks.append(apply_edits(self._text[start:end], inner).rstrip("\r\n"))
        return [self._insert_chunks(part, index, chunks)]


def _identity(value: Any) -> Any:
    """Return what identifies an element of a list: the id of a node or edge, the ends of an edge, else the value."""
    if isinstance(value, Mapping):
        if isinstance(value.get("id"), str):
            return "id", value["id"]
        if "src" in value and "dst" in value:
            return "edge", str(value["src"]), str(value["dst"]), str(value.get("label"))
    return _ENCODER.encode(value)


def _identified(values: Sequence[Any]) -> bool:
    """Return whether elements are identified by something else than their whole value."""
    return any(isinstance(_identity(each), tuple) for each in values)


def _scalars(part: Part, start: int, end: int) -> bool:
    return all(part.entries[at].part.kind == "scalar" for at in range(start, end))


def _ends_with_lines(value: Any) -> bool:
    """Return whether the last text of a value has several lines, so that its block form ends with them."""
    if isinstance(value, Mapping):
        return bool(value) and _ends_with_lines(list(value.values())[-1])
    if isinstance(value, list):
        return bool(value) and _ends_with_lines(value[-1])
    return isinstance(value, str) and "\n" in value
