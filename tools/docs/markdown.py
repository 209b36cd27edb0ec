"""Markdown: front matter, tables, headings and links of pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
_FRONT = re.compile(r"\A---\n(.*?)\n---\n+", re.DOTALL)


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """Split a page into the fields of its front matter and the rest."""
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    fields = dict(line.split(": ", 1) for line in found[1].splitlines())
    return fields, text[found.end() :]


def page(title: str, body: Iterable[str], *, kind: str = "reference", audience: str = "author") -> str:
    """Return a generated page. `body` holds its blocks."""
    blocks = "\n\n".join(each.rstrip() for each in body if each.strip())
    return f"---\nkind: {kind}\nfor: {audience}\n---\n\n# {title}\n\n{blocks}\n"


def cell(value: object) -> str:
    """Return a value as the text of a table cell."""
    return str(value).replace("|", "\\|").replace("\n", " ").strip()


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; an empty one is an empty text."""
    lines = [f"| {' | '.join(cell(each) for each in row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(headings)} |", "|" + "---|" * len(headings), *lines])


def code(value: object) -> str:
    """Return a value as inline code; an empty one stays empty."""
    text = str(value)
    return f"`{text}`" if text else ""


def fence(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def title_of(text: str) -> str:
    """Return the first heading of a page."""
    found = re.search(r"^# (.+)$", FENCE.sub("", text), re.MULTILINE)
    return found[1].strip() if found else ""


def summary_of(text: str) -> str:
    """Return the first sentence after the first heading, without markup."""
    body = FENCE.sub("", front_matter(text)[1])
    body = re.sub(r"^\s*<!--.*?-->\s*$", "", body, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n", body):
        words = " ".join(block.split())
        if words and words[0] not in "#|!-*<>`1":
            plain = LINK.sub(lambda link: link[1].strip("![]"), words)
            return re.split(r"(?<=[.:])\s", plain, maxsplit=1)[0].rstrip(":")
    return ""


def anchors(text: str) -> set[str]:
    """Return the anchors that a code forge and the site give to the headings of a page."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        name = slug(heading)
        count = found.get(name, 0)
        found[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def schema_type(schema: Mapping[str, object]) -> str:
    """Return the type of a JSON Schema in words."""
    options = schema.get("anyOf")
    if isinstance(options, list):
        kinds = [schema_type(each) for each in options]
        return " or ".join(dict.fromkeys(each for each in kinds if each != "null"))
    choices = schema.get("enum")
    if isinstance(choices, list):
        return ", ".join(f"`{each}`" for each in choices if each is not None)
    if "const" in schema:
        return f"`{schema['const']}`"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return reference.rsplit("/", 1)[1]
    kind = schema.get("type", "any")
    if kind == "array":
        items = schema.get("items")
        inner = schema_type(items) if isinstance(items, dict) else "any"
        return "array" if inner == "any" else f"array of {inner}"
    return " or ".join(each for each in kind if each != "null") if isinstance(kind, list) else str(kind)
