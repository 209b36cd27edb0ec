"""Documents named on the command line: files, folders that hold one, and `-` for standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from rune.core import codes
from rune.core.limits import LIMITS
from rune.core.parse import Parsed
from rune.core.problem import Problem
from rune.core.validate import Verdict
from rune.documents import check_document, load_document
from rune.errors import RuneError
from rune.nodes.catalogue import standard_catalogue
from rune.nodes.discovery import full_registry
from rune.settings import load_settings

SUFFIXES = ("yaml", "yml", "json")


def examine_file(name: str) -> Verdict:
    """Read and check one document, with every node type that is installed or configured."""
    try:
        known = full_registry(load_settings().nodes).catalogue
    except RuneError as error:
        return check_document(Parsed(None, (Problem("", error.code, error.message),)), standard_catalogue())
    return check_document(read_document(name), known)


def read_document(name: str) -> Parsed:
    """Read one document; a file without a suffix, and standard input, may be JSON or YAML."""
    if name == "-":
        data = sys.stdin.buffer.read(LIMITS.definition_bytes + 1)
        return load_document(data, _guessed(data))
    path = Path(name)
    if path.is_dir():
        found = _in_folder(path)
        if isinstance(found, Problem):
            return Parsed(None, (found,))
        path = found
    return load_document(path, path.suffix.lstrip(".") or "json")


def _in_folder(folder: Path) -> Path | Problem:
    """The workflow of a folder: the file that is called like the folder, or `workflow`."""
    for stem in (folder.resolve().name, "workflow"):
        found = [path for suffix in SUFFIXES if (path := folder / f"{stem}.{suffix}").is_file()]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f"`{path.name}`" for path in found)
            return Problem("", codes.CONFLICT, f"the folder holds {names}", "name the file that is meant")
    expected = f"`{folder.resolve().name}.yaml` or `workflow.yaml` (or .yml, .json)"
    return Problem("", codes.UNREADABLE, f"the folder {folder} holds no workflow", f"looked for {expected}")


def _guessed(data: bytes) -> str:
    return "json" if data.lstrip()[:1] in {b"{", b"["} else "yaml"
