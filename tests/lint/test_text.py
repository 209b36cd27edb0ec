"""What the text of the project never says."""

from __future__ import annotations

import re

import pytest

from tests.lint.tree import TESTS, files, name, texts

POSTPONED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
BANNER = re.compile(r"^\s*(?:#|//|--)\s*[-=*#~_+]{4,}", re.MULTILINE)
FOR_NOW = re.compile(r"\b(?:simplified|good enough|hack|workaround|stub(?:bed)?) for now", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.:/}])/(?:work|home|root|Users|opt|mnt|private)/\w")
PACKAGE_HOST = re.compile(
    r"\bpypi\.(?:org|io)|pythonhosted\.org|npmjs\.(?:org|com)|\b(?:deb|ftp|security)\.debian\.org"
    r"|crates\.io|(?<!emit-)index-url"
)
ELSEWHERE = re.compile(r"(?<![\w./-])shared/|\bseed document", re.IGNORECASE)
LAZY = re.compile(r"\b(?:asyncio|time)\.sleep\((?!0\))|mark\.(?:skip|xfail)|pytest\.skip\(|importorskip")

# The license is not ours to word, and this file has to name what it forbids.
NOT_READ = {"LICENSE", "tests/lint/test_text.py"}

RULES = {
    "nothing is postponed in a comment": POSTPONED,
    "no banner": BANNER,
    "nothing is provisional": FOR_NOW,
    "no path of somebody's machine": MACHINE_PATH,
    "no host of a package registry": PACKAGE_HOST,
    "the project speaks of itself": ELSEWHERE,
}


@pytest.mark.parametrize("rule", RULES)
def test_the_text_keeps_the_rule(rule: str) -> None:
    found = [
        f"{where}:{text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()}"
        for where, text in texts()
        if where not in NOT_READ
        for match in RULES[rule].finditer(text)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (POSTPONED, "# TODO later"),
        (BANNER, "    # ---- helpers"),
        (FOR_NOW, "simplified for now"),
        (MACHINE_PATH, "open('/home/me/x')"),
        (PACKAGE_HOST, "--index-url=x"),
        (ELSEWHERE, "see shared/x"),
    ],
)
def test_each_rule_can_be_broken(rule: re.Pattern[str], text: str) -> None:
    assert rule.search(text)


def test_no_test_sleeps_or_is_skipped() -> None:
    read = {name(path): path.read_text(encoding="utf-8") for path in files(TESTS, ".py")}

    found = [where for where, text in read.items() if where not in NOT_READ and LAZY.search(text)]

    assert found == []
