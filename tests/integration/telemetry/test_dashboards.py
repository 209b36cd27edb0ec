"""Dashboard, alerts and documentation use existing metrics."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rune.telemetry.counters import Counters, QueueStats, StoreStatsSnapshot
from rune.telemetry.prometheus import PrometheusMetrics

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
NAME = re.compile(r"\b(?:rune|process|python)_[a-z_]+\b")


def metric_names() -> set[str]:
    """Return every name that a query may use."""
    readings = StoreStatsSnapshot(
        queues=(QueueStats("default", 0, 0, 0.0),),
        members={"worker": 0},
        dead_letters=0,
        outbox_rows=0,
        outbox_lag=0.0,
        timer_lag=0.0,
    )
    text = PrometheusMetrics(Counters(), "0", ()).text(readings).decode()
    found: set[str] = set()
    for family in text_string_to_metric_families(text):
        more = ("_bucket", "_count", "_sum") if family.type == "histogram" else ()
        total = family.type == "counter" and not family.name.endswith("_total")
        found |= {f"{family.name}_total" if total else family.name, *(family.name + each for each in more)}
    return found


def expressions(dashboard: object) -> list[str]:
    """Return every query of a dashboard."""
    if isinstance(dashboard, dict):
        own = [dashboard["expr"]] if "expr" in dashboard else []
        return own + [found for each in dashboard.values() for found in expressions(each)]
    if isinstance(dashboard, list):
        return [found for each in dashboard for found in expressions(each)]
    return []


def test_dashboard_uses_existing_metrics() -> None:
    queries = expressions(json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text()))
    assert len(queries) > 20
    assert {name for each in queries for name in NAME.findall(each)} <= metric_names()


def test_documented_metrics_are_the_exported_ones() -> None:
    documented = set(NAME.findall((ROOT / "docs" / "operate.md").read_text()))
    exported = {
        re.sub(r"_(bucket|count|sum)$", "", name) for name in metric_names() if name.startswith("rune_")
    }
    assert {name for name in documented if name.startswith("rune_")} == exported


def test_alerts_use_existing_metrics() -> None:
    queries = re.findall(r"(?:expr: \|?)((?:.|\n)*?)(?=\n\s+(?:for|labels):)", RULES.read_text())
    names = {name for each in queries for name in NAME.findall(each)}
    assert len(queries) == 11
    assert names <= metric_names()


@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", "rules.yaml"),
        ("test", "rules", "rules_test.yaml"),
        ("check", "config", "--syntax-only", "prometheus.yaml"),
    ],
)
def test_promtool_accepts_rules(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["promtool", *command], cwd=RULES.parent, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
