"""The page `/docs/what-to-do-when` of the server, made from the guide of that name: `python -m tools.docs.remedies`.

Error documents, the web interface and alerts link to its sections. It is part of the package, so that every server has
the page of its own version and no link leads to another host.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

from rune.core.definition.problems import MEANINGS
from tools.docs.errors import GUIDE, remedies_in
from tools.docs.markdown import LINK, front_matter, slug

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "src" / "rune" / "server" / "static" / "remedies.html"
_PAGE = """\
<!doctype html>
<!-- Generated from docs/guides/operate/what-to-do-when.md by tools/docs/remedies.py, do not edit. -->
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>What to do when … – Rune</title>
  <link rel="icon" href="/static/rune.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/static/remedies.css">
</head>
<body>
<nav aria-label="Rune"><a href="/">Rune</a> <a href="/docs">API reference</a></nav>
<main>
{body}</main>
</body>
</html>
"""


def generate() -> str:
    """Return the page as HTML. Headings have the anchors that they have in the guide."""
    guide = front_matter((ROOT / "docs" / GUIDE).read_text(encoding="utf-8"))[1]
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(LINK.sub(lambda link: _local(link[1], link[2]), guide + _codes_of_documents(guide)))
    for heading, content in pairwise(tokens):
        if heading.type == "heading_open":
            heading.attrSet("id", slug(content.content))
        elif heading.type == "table_open":
            heading.attrSet("tabindex", "0")  # a wide table is scrolled by keys
    return _PAGE.format(body=parser.renderer.render(tokens, parser.options, {}))


def _local(text: str, target: str) -> str:
    """Return a link within the page, and of other links the text: the server has no other page of the documentation."""
    return f"{text}({target})" if target.startswith("#") else text.lstrip("!")[1:-1]


def _codes_of_documents(guide: str) -> str:
    """Return a section for each code of documents that the guide treats in one section for all of them."""
    known = remedies_in(guide)
    sections = [
        f"### {name}\n\n{meaning}\n" for name, meaning in sorted(MEANINGS.items()) if name not in known
    ]
    return "\n## Codes of documents\n\n" + "\n".join(sections)


if __name__ == "__main__":
    TARGET.write_text(generate(), encoding="utf-8")
