"""The limit: a loop without an engine that writes the same rows to the same schema with the same fsync."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from rune.adapters.embedded.migrations import migrate
from rune.adapters.embedded.rows import Rows, write_rows

AT_ONCE = 200


def bare_rate(path: Path, *, nodes: int, claims: bool, per_commit: int, relaxed: bool = False) -> float:
    """Nodes a second: one fact each, one claim each where asked, this many to a commit."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'NORMAL' if relaxed else 'FULL'}")
    migrate(db)
    body = b"x" * 90
    began = time.perf_counter()
    for start in range(0, nodes, per_commit):
        group = []
        for i in range(start, min(start + per_commit, nodes)):
            fact = (i % AT_ONCE, 1, i // AT_ONCE, b"", 0, i, 0, body)
            claim = (i % AT_ONCE, i // AT_ONCE, b"", i, i)
            group.append(Rows("x", [fact], [claim] if claims else [], None))
        db.execute("BEGIN IMMEDIATE")
        write_rows(db, group)
        db.execute("COMMIT")
    rate = nodes / (time.perf_counter() - began)
    db.close()
    return rate
