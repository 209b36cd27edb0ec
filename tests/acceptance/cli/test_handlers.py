"""`rune handlers` sets the handlers of workflows that name none, and lists those that could not be started."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli_process import Rune
from tests.support.documents import document, node

TELLS = document([node("in", "input")], id="tell-ops")


def test_default_handlers_are_set_shown_and_removed(tmp_path: Path) -> None:
    rune = Rune(tmp_path)
    path = tmp_path / "tell-ops.json"
    path.write_text(json.dumps(TELLS))
    assert rune.json("handlers") == {"on_failure": None, "on_late": None, "on_missing": None}
    refused = rune("handlers", "set", "--on-failure", "tell-ops")
    assert refused.returncode == 2
    assert "no workflow `tell-ops` was deployed" in refused.stderr
    rune.json("deploy", str(path))
    failure = {"workflow": "tell-ops", "version": None, "statuses": ["failed", "halted"]}
    assert rune.json("handlers", "set", "--on-failure", "tell-ops") == {
        "on_failure": failure,
        "on_late": None,
        "on_missing": None,
    }
    late = {"workflow": "tell-ops", "version": None}
    both = {"on_failure": failure, "on_late": late, "on_missing": None}
    assert rune.json("handlers", "set", "--on-late", "tell-ops") == both
    assert rune.json("handlers", "show") == both
    assert rune("handlers").stdout == "on_failure: tell-ops\non_late: tell-ops\non_missing: none\n"
    assert rune.json("handlers", "set", "--on-failure", "none", "--on-missing", "tell-ops") == {
        "on_failure": None,
        "on_late": late,
        "on_missing": late,
    }
    assert rune("handlers", "set").returncode == 2
    assert rune.json("handlers", "--failed") == {"handlers": []}
    assert rune("handlers", "--failed").stdout == "every handler was started\n"
