"""Collects the pages of the site: the files of `docs/`, generated reference pages, examples, changelog.

Hand-written pages are CommonMark that a code forge shows as it is. Here their links that leave `docs/` become links to
pages of the site, or to the file in the repository if its URL is given, and otherwise plain text. A picture of the
light theme that stands alone is followed by that of the dark theme; the style sheet hides the one of the other theme.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rune.documents.draw.formats import draw_svg
from rune.documents.draw.model import draw_definition
from rune.documents.loader import check_document, load_document
from rune.nodes.registry import standard_registry
from tools.docs import api, cli, declarations, errors, messages, nodes, python
from tools.docs.markdown import FENCE, LINK, anchors, front_matter, page
from tools.docs.navigation import place_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RENAMED = {"docs/README.md": "pages.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LOCAL_SERVER = "http://127.0.0.1:8080"
"""The address of `make run`, without settings."""

BINARY = {".png", ".webm", ".ico"}
_FILE_FENCE = re.compile(r"^```(\w+) file=(\S+)$", re.MULTILINE)
_PICTURE_ALONE = re.compile(r"^(!\[[^\]]*\]\(\S+)-light\.png\)$", re.MULTILINE)
_ALERT = re.compile(r"^> \[!(\w+)\]\n((?:^>.*\n?)+)", re.MULTILINE)


def sources() -> dict[str, Path]:
    """Return the files that become a part of the site, by their place in it."""
    found = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*")) if path.is_file()}
    found = {
        place: path
        for place, path in found.items()
        if path.suffix in {".md", ".svg", ".json", ".css", *BINARY}
    }
    found |= {place: ROOT / path for path, place in RENAMED.items()}
    del found["README.md"], found["adr/0000-template.md"]
    found = {place_of(place) if path.suffix == ".md" else place: path for place, path in found.items()}
    for readme in sorted(ROOT.glob("examples/*/README.md")):
        found[f"examples/{readme.parent.name}.md"] = readme
    return found


def generated() -> dict[str, str]:
    """Return the pages that are made from the source."""
    made: dict[str, str] = {}
    for module in (nodes, cli, api, declarations, messages, python):
        made |= module.pages()
    return (
        made | errors.pages(DOCS) | {"examples/index.md": _examples(), "reference/glossary.md": _glossary()}
    )


def staged(source_url: str = "") -> tuple[dict[str, str], dict[str, Path]]:
    """Return the texts of the site and its other files, by their place."""
    places = sources()
    by_source = {path.resolve(): place for place, path in places.items()}
    texts = {
        place: _moved(path, place, by_source, source_url)
        for place, path in places.items()
        if path.suffix == ".md"
    }
    others = {place: path for place, path in places.items() if path.suffix != ".md"}
    made = {place: _relinked(text, place) for place, text in generated().items()}
    return {**texts, **_drawings(), **made}, others


def _drawings() -> dict[str, str]:
    """Return the documents of the examples as pictures, by their place in the site."""
    return {
        f"examples/{file.parent.name}-{file.stem}.svg": draw_svg(
            draw_definition(check_document(load_document(file), standard_registry().catalogue))
        )
        for file in _documents(ROOT / "examples")
    }


def _documents(folder: Path) -> list[Path]:
    """Return the workflows in a folder and below."""
    return [file for file in sorted(folder.rglob("*.yaml")) if file.name != "tests.yaml"]


def _relinked(text: str, place: str) -> str:
    """Return a generated page with its links, which name the files of `docs/`, as seen from its place in the site."""

    def link(found: re.Match[str]) -> str:
        file, _, anchor = found[2].partition("#")
        if re.match(r"[a-z]+:", found[2]) or not file:
            return found[0]
        named = posixpath.normpath(posixpath.join(posixpath.dirname(place), file))
        to = place_of(named)
        if to == named:
            return found[0]
        moved = posixpath.relpath(to, posixpath.dirname(place) or ".")
        return f"{found[1]}({moved}{'#' + anchor if anchor else ''})"

    return _outside_fences(text, link)


def _outside_fences(text: str, link: Callable[[re.Match[str]], str]) -> str:
    parts = re.split(r"(^(?:```|~~~).*?^(?:```|~~~)\s*$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if at % 2 else LINK.sub(link, part) for at, part in enumerate(parts))


def _glossary() -> str:
    """Return the words of the project, a section of the architecture, as a page of its own."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split("## 5. Glossary\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    words = re.sub(r"\]\((?=[a-z-]+\.md)", "](../", section).replace("\n### ", "\n## ")
    return page("Glossary", [words.strip()], audience="developer")


def _examples() -> str:
    lines = [
        f"- [{readme.parent.name}]({readme.parent.name}.md)"
        for readme in sorted(ROOT.glob("examples/*/README.md"))
    ]
    return page(
        "Examples",
        ["Every example has its document, the same in Python, and a test.", "\n".join(lines)],
        kind="tutorial",
    )


def _moved(path: Path, place: str, by_source: Mapping[Path, str], source_url: str) -> str:
    """Return the text of a file with its links as seen from its place in the site."""

    def link(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        file, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not file:
            return found[0]
        source = (path.parent / file).resolve()
        if source.is_dir() and source == ROOT / "examples":
            to = "examples/index.md"
        elif source not in by_source:
            return _outside(text, source, source_url)
        else:
            to = by_source[source]
        moved = posixpath.relpath(to, posixpath.dirname(place) or ".")
        return f"{text}({moved}{'#' + anchor if anchor else ''})"

    text = path.read_text(encoding="utf-8")
    moved = _outside_fences(text, link)
    moved = _FILE_FENCE.sub(r'```\1 title="\2"', moved)
    moved = _ALERT.sub(_admonition, moved)
    moved = _PICTURE_ALONE.sub(r"\1-light.png#only-light)\n\1-dark.png#only-dark)", moved)
    if path.parent.parent == ROOT / "examples":
        moved += _files_of(path.parent)
    return moved


def _outside(text: str, source: Path, source_url: str) -> str:
    """Return a link to a file of the repository, or its text."""
    if source_url and source.is_relative_to(ROOT):
        return f"{text}({source_url.rstrip('/')}/{source.relative_to(ROOT).as_posix()})"
    return text.lstrip("!")[1:-1]


def _admonition(found: re.Match[str]) -> str:
    lines = [line.lstrip(">").strip() for line in found[2].splitlines()]
    return f"!!! {found[1].lower()}\n\n" + "".join(f"    {line}\n" for line in lines)


def _files_of(folder: Path) -> str:
    """Return the documents of an example, and the same in Python."""
    kinds = {".yaml": "yaml", ".py": "python"}
    blocks = [
        f'```{kinds[file.suffix]} title="{file.name}"\n{file.read_text(encoding="utf-8").rstrip()}\n```'
        for file in sorted(folder.iterdir(), key=lambda file: file.suffix != ".yaml")
        if file.suffix in kinds
    ]
    pictures = [f"![The graph of {file.stem}]({folder.name}-{file.stem}.svg)" for file in _documents(folder)]
    return "\n## Files\n\n" + "\n\n".join([*pictures, *blocks, *_links_into(folder)]) + "\n"


def _links_into(folder: Path) -> Iterator[str]:
    """Yield links to the workflows of an example in the server of the reader's machine, which stores those whose node
    types are installed."""
    catalogue = standard_registry().catalogue
    for file in sorted(folder.glob("*.yaml")):
        verdict = check_document(load_document(file), catalogue)
        if verdict.valid and verdict.definition is not None:
            id = verdict.definition.id
            yield (
                f"[Open `{id}` in Rune]({LOCAL_SERVER}/workflows/{id}): `make run` on this machine has it stored."
            )


def broken_links(texts: Mapping[str, str], others: Mapping[str, object]) -> Iterator[str]:
    """Yield the links between pages whose page or heading does not exist."""
    headings = {place: anchors(text) for place, text in texts.items() if place.endswith(".md")}
    for place, text in texts.items():
        if not place.endswith(".md"):
            continue
        prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", front_matter(text)[1]))
        for _, target in LINK.findall(prose):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            to = posixpath.normpath(posixpath.join(posixpath.dirname(place), file)) if file else place
            if to not in texts and to not in others:
                yield f"{place}: {target}: no such page"
            elif anchor and to in headings and anchor not in headings[to]:
                yield f"{place}: {target}: no such heading"
