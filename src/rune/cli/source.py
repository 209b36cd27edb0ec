"""Documents named on the command line: files, and `-` for standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from rune.core.limits import LIMITS
from rune.core.parse import Parsed
from rune.core.validate import Verdict
from rune.documents import check_document, load_document
from rune.nodes.catalogue import standard_catalogue


def examine_file(name: str) -> Verdict:
    """Read and check one document."""
    return check_document(read_document(name), standard_catalogue())


def read_document(name: str) -> Parsed:
    """Read one document; a file without a suffix, and standard input, may be JSON or YAML."""
    if name == "-":
        data = sys.stdin.buffer.read(LIMITS.definition_bytes + 1)
        return load_document(data, _guessed(data))
    path = Path(name)
    return load_document(path, path.suffix.lstrip(".") or "json")


def _guessed(data: bytes) -> str:
    return "json" if data.lstrip()[:1] in {b"{", b"["} else "yaml"
