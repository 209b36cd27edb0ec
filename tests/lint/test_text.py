"""Patterns that must not occur in the text of the project."""

from __future__ import annotations

import re

import pytest

from tests.lint.tree import ROOT, TESTS, files, name, texts
from tests.support.each import for_each

TODO_COMMENT = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
BANNER = re.compile(r"^\s*(?:#|//|--)(?:\s*|[ \w]+ )[-=*#~_+]{4,}", re.MULTILINE)
PROVISIONAL = re.compile(r"\b(?:simplified|good enough|hack|workaround|stub(?:bed)?) for now", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.:/}])/(?:work|home|root|Users|opt|mnt|private)/\w")
PACKAGE_HOST = re.compile(
    r"\bpypi\.(?:org|io)|pythonhosted\.org|npmjs\.(?:org|com)|\b(?:deb|ftp|security)\.debian\.org"
    r"|crates\.io|(?<!emit-)index-url"
)
OUTSIDE_REFERENCE = re.compile(
    r"(?<![\w./-])shared/(?!\{name|`|(?:decide|lease|store|timers|transition|waits)\b)|\bseed document",
    re.IGNORECASE,
)
SLEEP_OR_SKIP = re.compile(
    r"\b(?:asyncio|time)\.sleep\((?!0\))|mark\.(?:skip|xfail)|pytest\.skip\(|importorskip"
)

# Licenses are third-party text, and this file contains the patterns.
EXCLUDED = {"LICENSE", "src/rune/server/assets/THIRD_PARTY.txt", "tests/lint/test_text.py"}

RULES = {
    "no TODO comments": TODO_COMMENT,
    "no banner comments": BANNER,
    "no provisional code": PROVISIONAL,
    "no absolute paths of a machine": MACHINE_PATH,
    "no hosts of package registries": PACKAGE_HOST,
    "no references outside of the project": OUTSIDE_REFERENCE,
}


@for_each("rule", RULES)
def test_pattern_does_not_occur(rule: str) -> None:
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()}"
        for path, text in texts()
        if path not in EXCLUDED
        for match in RULES[rule].finditer(text)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (TODO_COMMENT, "# TODO later"),
        (BANNER, "    # ---- helpers"),
        (BANNER, "    # Helpers ------"),
        (PROVISIONAL, "simplified for now"),
        (MACHINE_PATH, "open('/home/me/x')"),
        (PACKAGE_HOST, "--index-url=x"),
        (OUTSIDE_REFERENCE, "see shared/x"),
    ],
)
def test_pattern_matches_its_example(rule: re.Pattern[str], text: str) -> None:
    assert rule.search(text)


def test_no_link_leads_out_of_the_repository() -> None:
    links = [path for path in files() if path.is_symlink()]

    assert [name(path) for path in links if not path.resolve().is_relative_to(ROOT)] == []


def test_tests_do_not_sleep_or_skip() -> None:
    sources = {name(path): path.read_text(encoding="utf-8") for path in files(TESTS, ".py")}

    found = [path for path, text in sources.items() if path not in EXCLUDED and SLEEP_OR_SKIP.search(text)]

    assert found == []
