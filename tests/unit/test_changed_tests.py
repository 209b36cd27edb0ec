"""`make test-changed` chooses the tests whose imports reach a changed file, the nearest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.test_changed import nearest_tests, within

FILES = {
    "src/rune/__init__.py": "",
    "src/rune/rules.py": "",
    "src/rune/engine.py": "from rune.rules import decide",
    "src/rune/other.py": "",
    "src/rune/lua/__init__.py": "",
    "src/rune/lua/functions.lua": "",
    "tests/lint/test_text.py": "import rune.rules",
    "tests/cluster/conftest.py": "from rune import engine",
    "tests/cluster/test_cluster.py": "",
    "tests/cluster/process.py": "MODULE = 'rune.other:main'",
    "tests/cluster/test_process.py": "import tests.cluster.process",
    "tests/unit/test_engine.py": "def test() -> None:\n    import rune.engine",
    "tests/unit/test_lua.py": "import rune.lua",
    "tests/unit/test_rules.py": "import rune.rules",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_nearest_tests_come_first_and_rules_of_the_repository_last(root: Path) -> None:
    assert nearest_tests(["src/rune/rules.py"], root) == [
        "tests/unit/test_rules.py",
        "tests/unit/test_engine.py",
        "tests/cluster/test_cluster.py",
        "tests/cluster/test_process.py",
        "tests/lint/test_text.py",
    ]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("src/rune/other.py", ["tests/cluster/test_process.py"]),
        ("src/rune/lua/functions.lua", ["tests/unit/test_lua.py"]),
        ("tests/unit/test_lua.py", ["tests/unit/test_lua.py"]),
        ("docs/cli.md", []),
    ],
)
def test_change_reaches_tests_by_names_conftests_and_folders(
    changed: str, expected: list[str], root: Path
) -> None:
    assert nearest_tests([changed], root) == expected


def test_tests_beyond_the_time_are_left_out() -> None:
    assert within(["a", "b", "c"], {"a": 5.0, "b": 4.0, "c": 2.0}, 10.0) == ["a", "b"]
    assert within(["a"], {"a": 50.0}, 10.0) == ["a"]


def test_rules_of_this_repository_reach_their_tests() -> None:
    assert "tests/unit/core/test_step.py" in nearest_tests(["src/rune/core/execution/step.py"], ROOT)
