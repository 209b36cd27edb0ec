"""The last lines of a page of the site: when its file was last changed, and where to report what is wrong with it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def with_footers(texts: Mapping[str, str], days: Mapping[str, str], issues_url: str) -> dict[str, str]:
    """Return the pages with their last lines. Generated pages have no day: they are as new as the release."""
    return {
        place: text + _footer(days.get(place), issues_url) if place.endswith(".md") else text
        for place, text in texts.items()
    }


def last_changes(sources: Mapping[str, Path]) -> dict[str, str]:
    """Return the day of the last commit of the file of each page; nothing without git or outside of a repository."""
    command = ["git", "log", "--format=format:@%as", "--name-only", "--", "*.md"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    found: dict[Path, str] = {}
    day = ""
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            day = line[1:]
        elif line:
            found.setdefault(ROOT / line, day)
    return {place: found[path] for place, path in sources.items() if path in found}


def _footer(day: str | None, issues_url: str) -> str:
    parts = [f"Last changed on {day}."] if day else []
    if issues_url:
        parts.append(f"Not what you needed? [Report it]({issues_url}).")
    return f"\n---\n\n{' '.join(parts)}\n" if parts else ""
