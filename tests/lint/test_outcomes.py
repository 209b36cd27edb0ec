"""Whoever counts or alerts on failed executions counts the halted ones too."""

from __future__ import annotations

import re

from tests.lint.tree import ROOT

SELECTION = re.compile(
    r"rune_execution\w+\{[^}]*status[^}]*\}|by \([^)]*\bstatus\b[^)]*\) \([^)]*rune_execution"
)


def test_alerts_dashboards_and_docs_select_executions_by_outcome() -> None:
    files = [*(ROOT / "deploy").rglob("*"), *(ROOT / "docs").rglob("*.md")]
    texts = {
        str(path): path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file()
    }

    assert [(path, SELECTION.findall(text)) for path, text in texts.items() if SELECTION.search(text)] == []
    assert sum('outcome="failed"' in text for text in texts.values()) >= 1
