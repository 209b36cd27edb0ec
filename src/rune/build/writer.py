"""Workflow documents as YAML and JSON text: loaded ones keep their text, built ones are written anew."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rune.build.graph import Comment, Comments, comment_text
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import Decoded, decode_json
from rune.core.limits import LIMITS
from rune.documents.textedit.document import Format, SourceText, TextEditError, guess_format
from rune.documents.textedit.updates import same, update
from rune.documents.textedit.writer import Writer

_WRITER = Writer()


@dataclasses.dataclass(frozen=True)
class SourceDocument:
    """The text that a workflow was loaded from, and what was read from it."""

    text: str
    format: Format
    value: Any
    problems: tuple[Problem, ...]

    @classmethod
    def read(cls, text: str, suffix: str | None) -> SourceDocument:
        """Read a text as JSON or YAML, by its suffix or by how it begins."""
        format: Format = guess_format(text) if suffix is None else "json" if suffix == "json" else "yaml"
        decoded = _decode(text, format)
        if suffix is None and format == "json" and any(each.code == "NOT_JSON" for each in decoded.problems):
            format, decoded = "yaml", _decode(text, "yaml")
        return cls(text, format, decoded.value, decoded.problems)

    @property
    def data(self) -> dict[str, Any]:
        """The document as plain data; empty if it could not be read."""
        return self.value if isinstance(self.value, dict) else {}

    def is_unchanged(self, data: dict[str, Any]) -> bool:
        return same(data, self.data)

    def comments(self) -> Comments:
        """Return the comments at nodes and edges."""
        if self.format == "json" or self.problems or not self.data:
            return Comments()
        return _comments(SourceText(self.text, "yaml"))


def _decode(text: str, format: Format) -> Decoded:
    if format == "json":
        return decode_json(text, max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)
    from rune.documents.yaml import decode_yaml  # noqa: PLC0415 - a slow import that JSON does not need

    return decode_yaml(text, max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)


def _edited(data: dict[str, Any], source: SourceDocument | None, format: Format) -> str | None:
    """Return the text of the source with the changes applied; None if it has to be written anew."""
    if source is None or source.format != format:
        return None
    if source.is_unchanged(data):
        return source.text
    try:
        return update(source.text, data, format)
    except TextEditError:
        return None


def to_json(data: dict[str, Any], source: SourceDocument | None) -> str:
    """Return a document as JSON."""
    edited = _edited(data, source, "json")
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n" if edited is None else edited


def to_yaml(data: dict[str, Any], source: SourceDocument | None, comments: Comments) -> str:
    """Return a document as YAML."""
    edited = _edited(data, source, "yaml")
    return _write(data, comments) if edited is None else edited


def _write(data: dict[str, Any], comments: Comments) -> str:
    blocks: list[str] = []
    fields: list[str] = []
    for key, value in data.items():
        listed = isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
        if key == "edges" and value == []:
            continue
        if key == "nodes" and listed:
            nodes = [
                _element(each, comments.nodes.get(str(each.get("id")), Comment()), inline=False)
                for each in value
            ]
            blocks.append("nodes:\n" + "\n\n".join(nodes))
        elif key == "edges" and listed:
            edges = [
                _element(each, comments.edges.get(at, Comment()), inline=True)
                for at, each in enumerate(value)
            ]
            blocks.append("edges:\n" + "\n".join(edges))
        elif isinstance(value, dict | list) and value and not _WRITER.fits_inline(value, len(key) + 2):
            blocks.append(_WRITER.block({key: value}, 0))
        else:
            fields.append(_WRITER.block({key: value}, 0))
    if not data:
        return "{}\n"
    header = "".join(f"# {line}".rstrip() + "\n" for line in comments.header)
    top = "\n".join(fields)
    return header + "\n\n".join(each for each in (top, *blocks) if each) + "\n"


def _element(data: dict[str, Any], comment: Comment, *, inline: bool) -> str:
    lead = "".join(f"  # {line}".rstrip() + "\n" for line in comment.lead)
    first, _, rest = _WRITER.element(data, 2, inline=inline).partition("\n")
    trailing = f"  # {comment.trailing}" if comment.trailing else ""
    return f"{lead}  {first}{trailing}" + (f"\n{rest}" if rest else "")


def _comments(source: SourceText) -> Comments:
    """Assign the comments of a document to its nodes and edges."""
    found = Comments()
    owners: dict[int, tuple[Comment, bool]] = {}
    for name in ("nodes", "edges"):
        part = source.root.at((name,))
        if part is None or part.kind != "list":
            continue
        for at, entry in enumerate(part.entries):
            comment = Comment()
            data = entry.part.plain()
            if name == "edges":
                found.edges[at] = comment
            elif isinstance(data, dict) and isinstance(data.get("id"), str):
                found.nodes[data["id"]] = comment
            else:
                continue
            if part.style == "block" and source.begins_line(entry.start):
                _own_lines(source, entry.start, source.chunk(entry)[0], comment, owners)
    first = source.root.entries[0].start if source.root.entries else 0
    in_header = True
    for at, text in source.comments():
        line = source.line_start(at)
        in_header = in_header and at < first
        if in_header:
            found.header.append(comment_text(text))
        elif line in owners:
            comment, above = owners[line]
            if above:
                comment.lead.append(comment_text(text))
            else:
                comment.trailing = comment_text(text)
        else:
            found.others.append((source.text.count("\n", 0, at) + 1, text))
    found.nodes = {id: each for id, each in found.nodes.items() if each}
    found.edges = {at: each for at, each in found.edges.items() if each}
    return found


def _own_lines(
    source: SourceText, start: int, top: int, comment: Comment, owners: dict[int, tuple[Comment, bool]]
) -> None:
    """Note which lines carry the comments of an entry: those above it, and its first one."""
    line = top
    while line < source.line_start(start):
        owners[line] = (comment, True)
        line = source.line_end(line)
    owners[source.line_start(start)] = (comment, False)
