"""Functions on text."""

from __future__ import annotations

from typing import Any

from rune.core.expr import operators, regex
from rune.core.expr.budget import ELEMENT_NS, SHORT_TEXT, Evaluation, ExpressionError, meter_of
from rune.core.expr.functions.table import Table, list_of, text_of
from rune.core.expr.values import write_text

TEXT = Table("text")
# Estimated nanoseconds per character of text that is changed, and of text that becomes parts of a list.
_CHANGE_NS = 30
_SPLIT_NS = 60
_WINDOW_CHARS = 256 * 1024


def _build(run: Evaluation, text: str, cost: int = _CHANGE_NS) -> None:
    run.build(len(text))
    if len(text) > SHORT_TEXT:
        run.charge(len(text) * cost)


@TEXT.add("upper(text)", "The text in upper case.", 'upper("ada")', '"ADA"')
def upper(run: Evaluation, text: Any, /) -> str:
    _build(run, text_of(text, "upper"))
    capital = str(text.upper())
    # Some letters become two or three in upper case.
    run.build(len(capital) - len(text))
    return capital


@TEXT.add("lower(text)", "The text in lower case.", 'lower("ÄB")', '"äb"')
def lower(run: Evaluation, text: Any, /) -> str:
    _build(run, text_of(text, "lower"))
    return str(text.lower())


@TEXT.add("trim(text)", "The text without white space at its ends.", 'trim("  ada ")', '"ada"')
def trim(run: Evaluation, text: Any, /) -> str:
    _build(run, text_of(text, "trim"))
    return str(text.strip())


@TEXT.add(
    "split(text, separator)",
    "The parts between separators; without one, the words.",
    'split("a,b", ",")',
    '["a", "b"]',
)
def split(run: Evaluation, text: Any, separator: Any = None, /) -> list[Any]:
    _build(run, text_of(text, "split"), _SPLIT_NS)
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
    meter = meter_of(run.scope)
    parts = [write_text(each, meter) for each in run.over(items, len(items), 2 * ELEMENT_NS)]
    text = str(separator.join(parts))
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
    if len(text_of(text, "replace")) > _WINDOW_CHARS:
        return _replace_by_window(run, text, old, text_of(new, "replace"))
    run.charge(len(text) * _CHANGE_NS)
    count = text.count(old)
    run.build(len(text) + count * (len(text_of(new, "replace")) - len(old)))
    return str(text.replace(old, new))


def _replace_by_window(run: Evaluation, text: str, old: str, new: str) -> str:
    """Replace in a long text, which may become short enough for the budget."""
    window = max(_WINDOW_CHARS, len(old))
    pieces: list[str] = []
    at = 0
    while at < len(text):
        # Long enough for every occurrence that begins within the window.
        part = text[at : at + window + len(old) - 1]
        run.charge(len(part) * _CHANGE_NS)
        size = len(part) + part.count(old) * (len(new) - len(old))
        *before, last = part.split(old)
        end = len(part) - len(last)
        following = max(window, end)
        run.build(size - max(0, len(part) - following))
        pieces += (new.join([*before, last[: following - end]]),)
        at += following
    return "".join(pieces)


@TEXT.add(
    "starts_with(text, prefix)",
    "Whether the text begins with the prefix.",
    'starts_with("abc", "ab")',
    "true",
)
def starts_with(run: Evaluation, text: Any, prefix: Any, /) -> bool:
    return operators.starts_with(text, prefix, run)


@TEXT.add(
    "ends_with(text, suffix)", "Whether the text ends with the suffix.", 'ends_with("abc", "bc")', "true"
)
def ends_with(run: Evaluation, text: Any, suffix: Any, /) -> bool:
    return operators.ends_with(text, suffix, run)


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
