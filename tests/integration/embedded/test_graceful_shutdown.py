"""SIGTERM and SIGINT let the running node finish, start no other, and repeat nothing afterwards."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections import Counter

import pytest

from rune.cli.output import INTERRUPTED, TERMINATED
from tests.support.forked_rune import PATHS
from tests.support.paths import ROOT

DOCUMENT = {
    "id": "gated",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "e1", "type": "ledger.gate", "parameters": {"opens": "{{ $trigger.pipe }}"}},
        {"id": "e2", "type": "ledger.effect", "parameters": {"did": "e2"}},
        {"id": "out", "type": "output", "parameters": {"value": "{{ [$e1.said, $e2.did] }}"}},
    ],
    "edges": [{"src": "in", "dst": "e1"}, {"src": "e1", "dst": "e2"}, {"src": "e2", "dst": "out"}],
}


class GatedRun:
    """Runs `rune run` with the gated workflow."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.ledger = folder / "ledger"
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        document = folder / "workflow.json"
        document.write_text(json.dumps(DOCUMENT))
        self._command = [sys.executable, "-m", "rune.cli.main", "run", str(document), "--json", "--key", "k"]
        self._command += [
            "--nodes",
            "tests.support.ledger_nodes",
            "--input",
            json.dumps({"pipe": str(self.pipe)}),
        ]
        self._environment = {**os.environ, "RUNE_HOME": str(folder), "PYTHONPATH": PATHS}
        self._environment["RUNE_TEST_LEDGER"] = str(self.ledger)

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def calls(self) -> Counter[str]:
        lines = self.ledger.read_text().split()
        return Counter(line.split(":", 1)[1] for line in lines)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED)])
def test_os_signal_lets_running_node_finish(sent: signal.Signals, code: int, tmp_path: pathlib.Path) -> None:
    run = GatedRun(tmp_path)
    first = run.start()
    with run.pipe.open("w") as pipe:  # blocks until the node reads, after its effect
        first.send_signal(sent)
        assert first.stderr is not None
        assert "Stopped" in first.stderr.readline()
        pipe.write("finished")
    out, err = first.communicate(timeout=120)
    assert first.returncode == code, out + err
    assert run.calls() == {"e1@/#1": 1}, "nothing new begins after a signal"

    second = run.start()
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert json.loads(out)["output"] == ["finished", "e2"]
    assert run.calls() == {"e1@/#1": 1, "e2@/#1": 1}
