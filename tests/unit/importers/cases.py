"""The cases of the importers: source documents, what runs of the imported documents give, and pinned reports.

`python -m tests.unit.importers.cases` rewrites the pinned documents and reports after an intended change.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import msgspec

from rune.documents.importers import Import, import_document
from rune.nodes.registry import standard_catalogue

FOLDER = pathlib.Path(__file__).with_name("cases")
SNAPSHOTS = pathlib.Path(__file__).with_name("snapshots")
FORMATS = ("canvas", "n8n", "asl")

SOURCES = sorted(path for name in FORMATS for path in (FOLDER / name).glob("*.json"))


def case_name(path: pathlib.Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def imported(path: pathlib.Path) -> Import:
    """Import a source document by its file."""
    return import_document(path.read_bytes(), standard_catalogue(), name=path.stem)


def described(found: Import) -> dict[str, Any]:
    """The document and the report as pinned."""
    entries = [
        " ".join(
            filter(
                None,
                (
                    each.status,
                    each.source,
                    each.target and f"-> {each.target}",
                    each.message and f": {each.message}",
                    each.hint and f"({each.hint})",
                ),
            )
        )
        for each in found.report.entries
    ]
    problems = [msgspec.to_builtins(each) for each in found.report.problems]
    pinned = {"test": found.test} if found.test else {}
    return {"document": found.document, "report": entries, "problems": problems, **pinned}


def snapshot(path: pathlib.Path) -> pathlib.Path:
    return SNAPSHOTS / path.parent.name / path.name


def runs() -> list[tuple[str, dict[str, Any]]]:
    """Every run: the name of its case, and `input`, `mocks` and what is expected."""
    found = []
    for name in FORMATS:
        file = FOLDER / f"{name}-runs.json"
        if file.exists():
            table = json.loads(file.read_text(encoding="utf-8"))
            found += [(f"{name}/{case}", run) for case, several in table.items() for run in several]
    return found


if __name__ == "__main__":
    for source in SOURCES:
        target = snapshot(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(described(imported(source)), ensure_ascii=False, indent=1)
        target.write_text(text + "\n", encoding="utf-8")
