"""Functions on text."""

from __future__ import annotations

from typing import Any

from rune.core.expr import operators, regex
from rune.core.expr.budget import Evaluation, ExpressionError
from rune.core.expr.functions.table import Table, list_of, text_of
from rune.core.expr.values import to_text

TEXT = Table("text")


@TEXT.add("upper(text)", "The text in upper case.", 'upper("ada")', '"ADA"')
def upper(run: Evaluation, text: Any, /) -> str:
    run.build(len(text_of(text, "upper")))
    capital = str(text.upper())
    # Some letters become two or three in upper case.
    run.build(len(capital) - len(text))
    return capital


@TEXT.add("lower(text)", "The text in lower case.", 'lower("ÄB")', '"äb"')
def lower(run: Evaluation, text: Any, /) -> str:
    run.build(len(text_of(text, "lower")))
    return str(text.lower())


@TEXT.add("trim(text)", "The text without white space at its ends.", 'trim("  ada ")', '"ada"')
def trim(run: Evaluation, text: Any, /) -> str:
    run.build(len(text_of(text, "trim")))
    return str(text.strip())


@TEXT.add(
    "split(text, separator)",
    "The parts between separators; without one, the words.",
    'split("a,b", ",")',
    '["a", "b"]',
)
def split(run: Evaluation, text: Any, separator: Any = None, /) -> list[Any]:
    run.build(len(text_of(text, "split")))
    if separator is None:
        return run.new_list(text.split())
    if not text_of(separator, "split"):
        raise ExpressionError("split() takes a separator that is not empty")
    return run.new_list(text.split(separator))


@TEXT.add(
    "join(list, separator)",
    "The elements as text, joined by the separator.",
    'join(["a", 1, true], "-")',
    '"a-1-true"',
)
def join(run: Evaluation, items: Any, separator: Any = "", /) -> str:
    run.iterate(len(list_of(items, "join")))
    before = run.left
    run.build(len(text_of(separator, "join")) * len(items))
    run.weigh(items)
    text = str(separator.join(map(to_text, items)))
    run.build(max(0, len(text) - (before - run.left)))
    return text


@TEXT.add(
    "replace(text, old, new)",
    "The text with every `old` replaced.",
    'replace("a.b.c", ".", "/")',
    '"a/b/c"',
)
def replace(run: Evaluation, text: Any, old: Any, new: Any, /) -> str:
    if not text_of(old, "replace"):
        raise ExpressionError("replace() takes a text to replace that is not empty")
    count = text_of(text, "replace").count(old)
    run.build(len(text) + count * (len(text_of(new, "replace")) - len(old)))
    return str(text.replace(old, new))


@TEXT.add(
    "starts_with(text, prefix)",
    "Whether the text begins with the prefix.",
    'starts_with("abc", "ab")',
    "true",
)
def starts_with(run: Evaluation, text: Any, prefix: Any, /) -> bool:
    return operators.starts_with(text, prefix)


@TEXT.add(
    "ends_with(text, suffix)", "Whether the text ends with the suffix.", 'ends_with("abc", "bc")', "true"
)
def ends_with(run: Evaluation, text: Any, suffix: Any, /) -> bool:
    return operators.ends_with(text, suffix)


@TEXT.add(
    "matches(text, pattern)",
    "Whether the regular expression (RE2) matches anywhere in the text.",
    'matches("order-42", "^order-[0-9]+$")',
    "true",
)
def matches(run: Evaluation, text: Any, pattern: Any, /) -> bool:
    return regex.search(text_of(text, "matches"), text_of(pattern, "matches"), run)


@TEXT.add(
    "find_all(text, pattern)",
    "Every match; where the pattern has groups, what they matched.",
    'find_all("a1 b22", "[0-9]+")',
    '["1", "22"]',
)
def find_all(run: Evaluation, text: Any, pattern: Any, /) -> list[Any]:
    return regex.find_all(text_of(text, "find_all"), text_of(pattern, "find_all"), run)
