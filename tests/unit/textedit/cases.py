"""The corpus of text edits: cases as data, which implementations in other languages can run too."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cases"


@dataclasses.dataclass(frozen=True)
class Case:
    """A text, an action, and the text after it; or the error that refuses the action."""

    name: str
    format: str
    text: str
    action: dict[str, Any]
    result: str | None
    error: str | None


def load() -> list[Case]:
    """Return all cases in file order. A text is a list of lines, the last one with a line break unless it is null."""
    found = [
        Case(
            name=f"{path.stem}/{raw['case']}",
            format=raw.get("format", "yaml"),
            text=_text(raw["text"]),
            action=raw["action"],
            result=_text(raw["result"]) if "result" in raw else None,
            error=raw.get("error"),
        )
        for path in sorted(FOLDER.glob("*.json"))
        for raw in json.loads(path.read_text(encoding="utf-8"))
    ]
    names = [each.name for each in found]
    assert len(names) == len(set(names)), "case names are unique"
    return found


def _text(lines: list[str] | str) -> str:
    return lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines)
