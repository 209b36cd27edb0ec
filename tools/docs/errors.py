"""The reference of the error codes: where each occurs, found in the source, and the remedy that the guide gives."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import rune
from rune.core.definition.problems import MEANINGS
from rune.nodes.registry import described, full_registry
from rune.server.responses import STATUS
from tools.docs.markdown import FENCE, code, page, slug, table

PACKAGE = Path(rune.__file__).parent
GUIDE = "guides/operate/what-to-do-when.md"
FOLDER = "reference/errors"
_CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\Z")
_CONSTRUCTORS = frozenset({"Error", "Problem", "problem"})


class Uses(NamedTuple):
    """Where a code occurs: node types with its class and cause, modules, and whether it is one of documents."""

    nodes: list[tuple[str, str, str]]
    modules: set[str]


def pages(docs: Path) -> dict[str, str]:
    """Return the page of each code, and the page that lists them."""
    guide = (docs / GUIDE).read_text(encoding="utf-8")
    remedies = remedies_in(guide)
    uses = find_codes()
    made = {f"{FOLDER}/{name}.md": _page(name, each, remedies.get(name, "")) for name, each in uses.items()}
    made[f"{FOLDER}/index.md"] = _index(uses, remedies)
    return made


def remedies_in(guide: str) -> dict[str, str]:
    """Return the text under each heading of the guide that is a code."""
    parts = re.split(r"^### ([A-Z][A-Z0-9_]+)$", guide, flags=re.MULTILINE)
    return {
        name: re.split(r"^## ", text, flags=re.MULTILINE)[0].strip()
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def find_codes() -> dict[str, Uses]:
    """Return every code with its uses, sorted by name."""
    found: dict[str, Uses] = defaultdict(lambda: Uses([], set()))
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in _codes_in(ast.parse(path.read_text(encoding="utf-8"))):
            found[name].modules.add(path.relative_to(PACKAGE).as_posix())
    for name in (*STATUS, *MEANINGS):
        found.setdefault(name, Uses([], set()))
    for each in described(full_registry(())):
        for name, cause in each["errors"].items():
            found[name].nodes.append((each["type"], each["error_classes"][name], cause))
    return dict(sorted(found.items()))


def _codes_in(tree: ast.Module) -> Iterator[str]:
    """Yield the codes of exceptions, of errors and problems, and constants that are named like their value."""
    for node in ast.walk(tree):
        given: list[ast.expr | None] = []
        if isinstance(node, ast.ClassDef):
            given = [
                each.value
                for each in node.body
                if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "code"
            ]
        elif isinstance(node, ast.Call):
            given = [each.value for each in node.keywords if each.arg == "code"]
            if ast.unparse(node.func).rsplit(".", 1)[-1] in _CONSTRUCTORS:
                given += node.args[:2]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            named = isinstance(node.value, ast.Constant) and ast.unparse(target) == node.value.value
            given = [node.value] if named else []
        for each in given:
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and _CODE.match(each.value):
                yield each.value


def _page(name: str, uses: Uses, remedy: str) -> str:
    facts = [("HTTP status", STATUS[name])] if name in STATUS else []
    blocks = []
    if remedy:
        blocks.append(_moved(remedy))
    if name in MEANINGS:
        blocks.append(
            f"In a document: {MEANINGS[name]}. The problem has the place and usually a hint; `rune check` prints it."
        )
    blocks.append(table(("", ""), facts))
    if uses.nodes:
        rows = [(f"[`{kind}`](../nodes/{kind}.md)", severity, cause) for kind, severity, cause in uses.nodes]
        blocks += ["## Node types", table(("type", "class", "when"), rows)]
    if uses.modules:
        blocks += ["## Raised in", ", ".join(code(each) for each in sorted(uses.modules))]
    where = f"#{slug(name)}" if remedy else "#a-document-is-rejected"
    blocks.append(f"See [what to do when …](../../{GUIDE}{where}).")
    return page(f"`{name}`", blocks, audience="operator")


def _moved(remedy: str) -> str:
    """Return the text of the guide with its links as seen from the page of a code."""
    text = re.sub(r"\]\(#", f"](../../{GUIDE}#", remedy)
    return text if FENCE.search(text) else text.replace("](../../../", "](../../")


def _index(uses: dict[str, Uses], remedies: dict[str, str]) -> str:
    def meaning(name: str) -> str:
        text = remedies.get(name) or MEANINGS.get(name, "")
        return re.split(
            r"(?<=[.:])\s", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("\n", " "), maxsplit=1
        )[0]

    documents = [name for name in uses if name in MEANINGS and name not in remedies]
    others = [name for name in uses if name not in documents]
    blocks = [
        f"Every error code. [What to do when …](../../{GUIDE}) has the remedies.",
        "## Of executions, requests and commands",
        table(
            ("code", "status", "meaning"),
            [(f"[`{name}`]({name}.md)", STATUS.get(name, ""), meaning(name)) for name in others],
        ),
        "## Of documents",
        table(("code", "meaning"), [(f"[`{name}`]({name}.md)", MEANINGS[name]) for name in documents]),
    ]
    return page("Error codes", blocks, audience="operator")
