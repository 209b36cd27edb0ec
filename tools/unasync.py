"""Generate the synchronous client from the asynchronous one: `make generate`.

The two differ only in keywords and in a few names, which are replaced here; ruff removes what is then superfluous.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "src" / "rune" / "client"
TARGETS = {
    CLIENT / "async_client.py": CLIENT / "client.py",
}
HEADER = "# Generated from {name} by tools/unasync.py; do not edit.\n"

REPLACEMENTS = {
    r"\basync (def|for|with)\b": r"\1",
    r"\bawait ": "",
    r"\basyncio\.sleep\b": "time.sleep",
    r"\bAsync(BaseTransport|Client|Iterator|Run)\b": r"\1",
    r"\basync_client\b": "client",
    r"\basync_transport\b": "sync_transport",
    r"\bAsynchronous\b": "Synchronous",
    r"\b__a(enter|exit)__\b": r"__\1__",
    r"\ba(close|read|iter_bytes|iter_lines)\b": r"\1",
}
RUFF = (
    # unused imports, order of imports, `yield from` for loops that only yield
    ("check", "--fix-only", "--unsafe-fixes", "--select", "F401,I,UP028"),
    ("format",),
)


def generate(path: Path) -> str:
    """Return the synchronous twin of an asynchronous module."""
    source = path.read_text(encoding="utf-8")
    for pattern, replacement in REPLACEMENTS.items():
        source = re.sub(pattern, replacement, source)
    source = HEADER.format(name=path.name) + source
    for command in RUFF:
        source = _run_ruff(*command, source=source, target=TARGETS[path])
    return source


def _run_ruff(*command: str, source: str, target: Path) -> str:
    arguments = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(target), "-"]
    return subprocess.run(arguments, input=source, text=True, check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    for source, target in TARGETS.items():
        target.write_text(generate(source), encoding="utf-8")
