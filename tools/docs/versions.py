"""Folders of versions: the newest state of the pages is `latest`, each minor release has a folder of its own.

`make docs FOLDER=0.1 NEWEST=0.2` builds `build/site/0.1` beside the folders that are there. Each of its pages then
begins with a notice that links to the same page of the newest version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LATEST = "latest"
_FOLDER = re.compile(r"latest|\d+\.\d+")
_HEADING = re.compile(r"^# .+$", re.MULTILINE)


def check_folder(folder: str) -> str:
    """Return the name of a folder; raise ValueError if it is neither `latest` nor a minor release, such as `0.1`."""
    if not _FOLDER.fullmatch(folder):
        raise ValueError(f"`{folder}` is neither `{LATEST}` nor a minor release such as `0.1`")
    return folder


def is_old(folder: str, newest: str) -> bool:
    """Return whether a folder is of an older release than the newest."""
    if not folder or not newest or LATEST in (folder, newest):
        return False
    return _number(folder) < _number(newest)


def _number(folder: str) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.split("."))


def with_notices(texts: Mapping[str, str], folder: str, newest: str) -> dict[str, str]:
    """Return the pages of an old version with a notice under their headings; those of other versions as they are."""
    if not is_old(folder, newest):
        return dict(texts)
    return {
        place: _noticed(text, place, folder, newest) if place.endswith(".md") else text
        for place, text in texts.items()
    }


def _noticed(text: str, place: str, folder: str, newest: str) -> str:
    heading = _HEADING.search(text)
    end = heading.end() if heading else 0
    return f"{text[:end]}\n\n{_notice(place, folder, newest)}{text[end:]}"


def _notice(place: str, folder: str, newest: str) -> str:
    up = "../" * (place.count("/") + 1)
    page = f"{up}{newest}/{place.removesuffix('.md')}.html"
    link = f'<a href="{page}">{newest}</a>'
    return f"!!! warning\n\n    This page describes version {folder}. The newest version is {link}.\n"
