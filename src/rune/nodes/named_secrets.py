"""Finds the values that stand after a name which indicates a secret, in any text: `password=x`, `"api_key": "x"`,
`?token=x`, `Authorization: Bearer x`.

A name is followed by `=` or `:`. Its value is what is quoted or in brackets, else one word. Every character is looked
at a bounded number of times: a value that does not end takes the rest of its line, and the search goes on behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rune.nodes.redaction import REDACTED

SECRET_FIELD = re.compile(
    r"token(?!i[sz])|secret(?!ar)|passw(?!ordless)|passphrase|pwd|api[-_. ]?key|access[-_. ]?key|private[-_. ]?key"
    r"|credential|cookie|jwt|bearer|authorization|authentication|(^|[-_.])auth([-_.]|$)|signature|session[-_.]?id",
    re.IGNORECASE,
)
"""A name that indicates a secret."""

# A part of each of these names: a text without it is not looked at any further.
_HINT = re.compile(
    r"token|secret|pass|pwd|key|credential|cookie|jwt|bearer|auth|signature|session", re.IGNORECASE
)
# A name as a whole, so that the search does not start again inside it; and what stands between it and its value.
_NAMED = re.compile(
    r"(?<![\w.-])(?P<name>(?:(?:api|access|private) (?=key))?[A-Za-z_-][\w.-]*+)(?:\\*+[\"'])?(?:\[\])?"
    r"[ \t]*+(?::=|=>|==?|:)(?!:)[ \t]*+(?:\r?\n[ \t]++)?(?:[bru](?=[\"']))?",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"(?P<escape>\\*+)(?P<quote>[\"'])")
_SCHEME = re.compile(
    r"(?:bearer|basic|digest|token|negotiate|ntlm|apikey|hawk|aws4-hmac-sha256)[ \t]++", re.IGNORECASE
)
_PART = re.compile(r"[^\s\\\"'`<>,;&(){}\[\]]++|\\++(?![\"'])")
# A character that closes what surrounds a value, or separates it from the next one, is part of the value unless one of
# these follows.
_SEPARATOR = re.compile(r"[\"'`<>,;&(){}\[\]](?:[\s\"'`<>,;&(){}\[\]\\.:]|\Z|[\w.-]{1,64}[\"']?[ \t]?[=:])")
_MORE_COOKIES = re.compile(r"(?>(?:;[ \t]*[^\s;=,\"']+=[^\s;,\"']*)+)")
# What an authorization has instead of one word, as in Digest.
_PARAMETER = r"[A-Za-z][\w-]*=(?:\"[^\"\n]*\"|[^\s,\"'=]+)"
_PARAMETERS = re.compile(rf"(?>{_PARAMETER}(?:[ \t]*,[ \t]*{_PARAMETER})*)(?![^\s,;\"'])")
_COOKIE = re.compile(r"(?:^|-)cookie$", re.IGNORECASE)
_AUTHORIZATION = re.compile(r"authorization$", re.IGNORECASE)
_NO_VALUES = frozenset((REDACTED, "[]", "{}", "()"))
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
_INSIDE = re.compile(r"[\"'\[\]{}()\\]")
# How a sentence about a secret goes on, types, and values that are none.
_KEPT = re.compile(
    r"(?:must|is|are|was|were|has|have|may|can|cannot|should|does|do|not|no|expected|required|missing|invalid|unknown"
    r"|expired|denied|none|null|nil|true|false|undefined|empty|str|string|bytes|int|number|bool|boolean|any|object"
    r"|optional|\*\*\*)(?![\w-])",
    re.IGNORECASE,
)
# How many tokens a text has is no secret.
_COUNTED = re.compile(r"tokens|token[-_.]?(?:count|limit|budget|usage|total)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9][0-9.,_]*+(?![\w-])")


def hide_named(text: str) -> str:
    """Return a text without the values of names that indicate a secret."""
    parts: list[str] = []
    done = 0
    for start, end in _values(text):
        parts += text[done:start], REDACTED
        done = end
    return "".join([*parts, text[done:]]) if parts else text


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the values, in order."""
    if _HINT.search(text) is None:
        return
    at = 0
    while (named := _NAMED.search(text, at)) is not None:
        at = named.end()
        if SECRET_FIELD.search(named["name"]) is None:
            continue
        quote = _QUOTE.match(text, at)
        if quote is not None:
            start, at = quote.end(), _end_of_quoted(text, quote)
        elif text[at : at + 1] in _BRACKETS:
            start, at = at, _end_of_brackets(text, at)
        else:
            start, at = at, _end_of_word(text, at, named["name"])
        if start < at and text[start:at] not in _NO_VALUES:
            yield start, at


def _end_of_quoted(text: str, opening: re.Match[str]) -> int:
    """Return where a quoted value ends: at the next quote that is escaped as often as the first one, or at the end of
    the line."""
    depth, quote = len(opening["escape"]), opening["quote"]
    line = _end_of_line(text, opening.end())
    at = opening.end()
    while (found := text.find(quote, at, line)) >= 0:
        before = found
        while before > at and text[before - 1] == "\\":
            before -= 1
        if found - before >= depth and (found - before - depth) % (2 * (depth + 1)) == 0:
            return found - depth
        at = found + 1
    return line


def _end_of_brackets(text: str, start: int) -> int:
    """Return where a value in brackets ends: behind the last bracket, or at the end of the line."""
    line = _end_of_line(text, start)
    opened: list[str] = []
    quote = ""
    at = start
    while (found := _INSIDE.search(text, at, line)) is not None:
        mark, at = found[0], found.end()
        if mark == "\\":
            at += 1
        elif quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'":
            quote = mark
        elif mark in _BRACKETS:
            opened.append(_BRACKETS[mark])
        elif mark == opened[-1]:
            opened.pop()
            if not opened:
                return at
    return line


def _end_of_word(text: str, start: int, name: str) -> int:
    """Return where an unquoted value ends; at its start if it is none."""
    if _KEPT.match(text, start) or (_COUNTED.search(name) and _NUMBER.match(text, start)):
        return start
    scheme = _SCHEME.match(text, start)
    word = at = start if scheme is None else scheme.end()
    if _AUTHORIZATION.search(name) and (parameters := _PARAMETERS.match(text, at)) is not None:
        return parameters.end()
    while at < len(text) and not text[at].isspace():
        part = _PART.match(text, at)
        if part is not None:
            at = part.end()
        elif text[at] == "\\" or _SEPARATOR.match(text, at):
            break
        else:
            at += 1
    if at == word:
        return start
    more = _MORE_COOKIES.match(text, at) if _COOKIE.search(name) else None
    return at if more is None else more.end()


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end
