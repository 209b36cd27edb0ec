"""The engine and the oracle agree on random definitions, for each node and each value."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
from typing import Any

import pytest

from tests.acceptance.conformance.command import run as run_command
from tests.simulation.oracle.document import to_document
from tests.simulation.oracle.evaluate import evaluate
from tests.simulation.oracle.generate import random_model
from tests.support.differential import needs_time, run_seeds

pytestmark = pytest.mark.long

TOTAL = int(os.environ.get("RUNE_DIFFERENTIAL", "2000"))
CHUNK = 250
CHUNKS = [range(first, min(first + CHUNK, TOTAL)) for first in range(0, TOTAL, CHUNK)]


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_random_definitions_match_oracle(seeds: range, tmp_path: pathlib.Path) -> None:
    number = seeds.start // CHUNK
    options = {"in_place": number % 2 == 0, "chunk": 64 if number % 4 == 0 else 1}
    assert asyncio.run(run_seeds(tmp_path, seeds, **options)) == []


def _deterministic() -> list[int]:
    """Seeds of definitions whose result does not depend on timing."""
    timed = {"race", "timeout", "cancel_losers"}
    seeds = (seed for seed in range(10_000, 12_000) if not random_model(seed)[0].features & timed)
    found = []
    for seed in seeds:
        model, start = random_model(seed)
        if evaluate(model, start).status == "completed":
            found.append(seed)
        if len(found) == 20:
            break
    return found


@pytest.mark.parametrize("seed", _deterministic())
def test_run_command_output_matches_oracle(
    seed: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNE_HOME", str(tmp_path / "home"))
    model, start = random_model(seed)
    file = tmp_path / "workflow.json"
    file.write_text(json.dumps(to_document(model)))
    payload = tmp_path / "input.json"
    payload.write_text(json.dumps(start))
    arguments = [str(file), "--input", f"@{payload}", "--json", "--nodes", "tests.simulation.effect_nodes"]
    observed = run_command([*arguments, *(["--fake-time"] if needs_time(model) else [])], capsys)
    document = json.loads(observed.stdout)
    expected = evaluate(model, start)
    code = 4 if document["untolerated_items"] else 0
    assert (observed.exit_code, document["status"]) == (code, "completed")
    assert _statuses(document) == {key: status for key, (status, _) in expected.results.items()}
    assert _attempts(document, expected.attempts) == expected.attempts


def _key(node: dict[str, Any]) -> tuple[str, tuple[tuple[str, int], ...]]:
    return node["node_id"], tuple((frame["split_node_id"], frame["item_index"]) for frame in node["lineage"])


def _statuses(document: dict[str, Any]) -> dict[Any, str]:
    return {_key(node): node["status"] for node in document["nodes"]}


def _attempts(document: dict[str, Any], expected: Any) -> dict[Any, int]:
    return {_key(node): node["attempts"] for node in document["nodes"] if _key(node) in expected}
