"""`llms.txt`: one line per page, and the full text of the pages that matter most for writing workflows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tools.docs.markdown import front_matter, summary_of, title_of
from tools.docs.navigation import Entry, paths

MAX_FULL_BYTES = 400 * 1024
FIRST = ("reference/language.md", "reference/expressions.md")


def index(navigation: Iterable[Entry], texts: Mapping[str, str]) -> str:
    """Return `llms.txt`: the pages by section, each with its title and first sentence."""
    lines = [
        "# Rune",
        "",
        "> A durable workflow engine: effects run at least once with a stable idempotency key, results are",
    ]
    lines += ["> recorded exactly once.", ""]
    for entry in navigation:
        section, pages = ("Home", [entry]) if isinstance(entry, str) else (entry[0], list(paths(entry[1])))
        lines += [f"## {section}", ""]
        lines += [
            f"- [{title_of(texts[each])}]({each}): {summary_of(texts[each])}".rstrip(": ") for each in pages
        ]
        lines.append("")
    return "\n".join(lines)


def full(navigation: Iterable[Entry], texts: Mapping[str, str]) -> str:
    """Return `llms-full.txt`: whole pages, language and node types first, up to the limit."""
    order = list(paths(navigation))
    nodes = [each for each in order if each.startswith("reference/nodes/")]
    rest = [each for each in order if each not in FIRST and each not in nodes]
    parts: list[str] = []
    size = 0
    for each in (*FIRST, *nodes, *rest):
        text = f"<!-- {each} -->\n\n{front_matter(texts[each])[1].strip()}\n\n"
        size += len(text.encode())
        if size > MAX_FULL_BYTES:
            break
        parts.append(text)
    return "".join(parts)
