"""Whoever acts is killed at every named point; somebody else goes on and asks again where nobody had answered. The
outcome is one, nothing is lost and nothing is done twice."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.embedded.act_shapes import ASKS, BEGUN, SIGNAL, STORIES, TOLD, Story, document, effect
from tests.integration.embedded.acts import Acts
from tests.integration.embedded.forks import KILLED
from tests.support.whole import WHOLE

BESIDE = {"early signal"}  # an effect may just have been made when the act beside it dies
MOST = 2  # times that a point is passed before the process dies there


@pytest.fixture
def acts(tmp_path: pathlib.Path) -> Iterator[Acts]:
    with Acts(tmp_path) as asked:
        yield asked


def _ledger(home: pathlib.Path) -> Counter[str]:
    """How often each effect was made."""
    path = home / "ledger"
    return Counter(path.read_text().split() if path.exists() else [])


def _by_node(calls: Counter[str]) -> Counter[str]:
    return Counter(key.split(":", 1)[1].split("@")[0] for key in calls)


def _audited(acts: Acts, home: pathlib.Path) -> None:
    """Nothing is in the file that the rules could not have written."""
    environment = {
        "RUNE_HOME": str(home),
        "RUNE_NODES": "tests.integration.embedded.ledger_nodes",
        "RUNE_FAILPOINT": "",
    }
    code, out, err = acts.rune("audit", "--all", "--json", **environment)
    assert code == 0, out + err
    assert json.loads(out)["violations"] == 0


def _check(story: Story, home: pathlib.Path, told: dict[str, Any], *, repeatable: bool) -> None:
    ends = {name: (told[name]["status"], told[name]["output"]) for name in story.ends}
    assert ends == story.ends
    calls = _ledger(home)
    twice = [key for key, count in calls.items() if count > 1]
    assert len(twice) <= (1 if repeatable else 0), calls
    assert {name: _by_node(calls)[name] for name in story.effects} == story.effects


MATRIX = [(name, point) for name, story in STORIES.items() for point in story.points]


@pytest.mark.parametrize(("name", "point"), MATRIX, ids=["-".join(each) for each in MATRIX])
def test_a_kill_at_any_point_of_an_act_loses_and_doubles_nothing(
    name: str, point: str, tmp_path: pathlib.Path, acts: Acts
) -> None:
    story = STORIES[name]
    latest = 1 + MATRIX.index((name, point)) % MOST
    for times in range(1, MOST + 1) if WHOLE else range(latest, 0, -1):
        home = tmp_path / f"home-{times}"
        died, told = acts.take(home, story.steps, failpoint=f"{point}:{times}")
        if died == KILLED:
            code, told = acts.take(home, story.steps)
            assert code == 0
        _check(story, home, told, repeatable=point == "ran" or name in BESIDE)
        _audited(acts, home)
        assert died == KILLED or times > 1, "the point was never passed"
        if (died == KILLED) is not WHOLE:
            break


ONCE = document(
    "once",
    [effect("e1"), effect("pay", at_most_once=True, error="ignore"), effect("e2")],
    "{{ $pay.did ?? $pay.error.code }}",
)


@pytest.mark.parametrize("point", ["begun", "received", "claimed", "ran", "journaled", "applied", "sent"])
def test_what_must_not_happen_twice_does_not(point: str, tmp_path: pathlib.Path, acts: Acts) -> None:
    """Killed between the announcement and the result, the node fails instead of running again."""
    steps: list[dict[str, Any]] = [{"start": {"document": ONCE, "key": "start"}}, {"await": "ended"}]
    for times in (1, 2, 3) if WHOLE else (1, 2):
        home = tmp_path / f"home-{times}"
        died, told = acts.take(home, steps, failpoint=f"{point}:{times}")
        if died == KILLED:
            _, told = acts.take(home, steps)
        paid = _by_node(_ledger(home))["pay"]
        assert told["it"]["status"] == "completed"
        assert told["it"]["output"] in ("pay", "UNKNOWN_OUTCOME")
        assert paid == 1 if told["it"]["output"] == "pay" else paid <= 1
        assert all(count == 1 for key, count in _ledger(home).items() if ":pay@" in key)
        assert point in ("begun", "ran") or told["it"]["output"] == "pay"
        _audited(acts, home)
        if died != KILLED:
            assert times > 1
            break


OUTSIDE: dict[str, tuple[list[dict[str, Any]], tuple[str, ...], tuple[str, Any]]] = {
    "signal": ([SIGNAL], ("signalled", "heard"), ("completed", TOLD)),
    "pause": ([{"pause": None}, {"resume": None}, SIGNAL], ("controlled", "signalled"), ("completed", TOLD)),
    "cancel": ([{"cancel": None}], ("ending", "ended"), ("cancelled", None)),
    "retry": (
        [{"cancel": None}, {"retry": {"key": "r"}}, {"signal": {"name": "ask", "value": 7, "key": "s1"}}],
        ("ending", "ended", "accepted", "admitted", "signalled"),
        ("completed", TOLD),
    ),
}
OUTSIDE_MATRIX = [(name, point) for name, (_, points, _) in OUTSIDE.items() for point in points]


@pytest.mark.parametrize(("name", "point"), OUTSIDE_MATRIX, ids=["-".join(each) for each in OUTSIDE_MATRIX])
def test_an_act_of_a_process_that_runs_nothing_itself_is_as_safe(
    name: str, point: str, tmp_path: pathlib.Path, acts: Acts
) -> None:
    """A command without an owner takes the file, writes down what was asked, and leaves the rest to the next owner."""
    asked, _, ends = OUTSIDE[name]
    begun: list[dict[str, Any]] = [
        {"start": {"document": ASKS, "key": "start"}},
        {"await": {"waiting": "ask"}},
    ]
    steps = [*begun, *asked, {"await": "ended"}]
    home = tmp_path / "home"

    code, _ = acts.take(home, steps, upto=len(begun))
    died, _ = acts.take(home, steps, failpoint=f"{point}:1", works=False, upto=len(steps) - 1)
    again, _ = acts.take(home, steps, works=False, upto=len(steps) - 1)
    last, told = acts.take(home, steps)

    assert (code, died, again, last) == (0, KILLED, 0, 0)
    assert (told["it"]["status"], told["it"]["output"]) == ends
    assert set(_ledger(home).values()) == {1}
    _audited(acts, home)


def test_every_point_is_in_some_story() -> None:
    from rune.runtime.failpoint import POINTS

    passed = {point for story in STORIES.values() for point in story.points} | {"begun"} | set(BEGUN)
    assert set(POINTS) - passed == {"chosen"}, "`chosen` is the race of test_crash"
