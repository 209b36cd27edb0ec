"""Redaction: removes secrets from everything that is displayed, logged or stored.

Redacts the values of credentials in use, fields, headers and text whose names indicate a secret, and the user part of
URLs. A value is found in plain form, percent-encoded, in base64 (also in lines), in hex, and escaped for JSON or HTML;
a value that is not short also in other letter case.
"""

from __future__ import annotations

import base64
import logging
import operator
import re
import weakref
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, unquote_plus

import msgspec
from msgspec.structs import replace

from rune.core.execution.outcome import Error, Failure, FanOut, Outcome, Output

REDACTED = "***"

# A shorter value is redacted only as a whole word: otherwise it would match in any text.
MIN_SECRET_LENGTH = 6

# A value of this length is also redacted in other letter case and in hex.
MIN_FOLDED_LENGTH = 8

# A text truncated inside a value is redacted if it ends with at least this many characters of the value.
_MIN_CUT_LENGTH = 4

_MAX_URL_LENGTH = 400
_USERINFO = re.compile(r"(?<=//)[^/?#]*@")
_USERINFO_IN_TEXT = re.compile(r"(?<=[A-Za-z0-9]://)[^/?#\s\"'<>@]*@")
# Also matches a name without value, so that the search does not start again at each character of the name.
_PAIR = re.compile(r"(?P<before>[?&;#])(?P<name>[^=&;#]*+)(?:=(?P<value>[^&;#]*+))?+")
_SECRET_NAME = re.compile(
    r"token|secret|passw|pwd|api[-_.]?key|access[-_.]?key|auth|signature|credential|session|cookie|jwt|bearer"
    r"|^(sig|key|code|pass|pin|otp|sid)$",
    re.IGNORECASE,
)
_ENCODED = re.compile(r"[%\\&+]")
# A whole run of backslashes. A search that started inside the run as well would take quadratic time.
_BACKSLASHES = r"(?<!\\)\\++"
_UNICODE_ESCAPE = re.compile(rf"{_BACKSLASHES}[uU]([0-9A-Fa-f]{{4}})")
# A letter or digit escaped for HTML.
_HTML_ESCAPE = re.compile(r"&\#(?:0*+([0-9]{2,3})|[xX]0*+([0-9A-Fa-f]{2}));")
# A line break in encoded text, as it is or escaped for JSON, with the indentation of the next line.
_BREAK = rf"(?:\r?\n|(?:{_BACKSLASHES}r)?{_BACKSLASHES}n)(?:[ \t]|{_BACKSLASHES}t)*+"
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_=-]+")
_ESCAPED_BREAKS = re.compile(rf"{_BACKSLASHES}[rnt][ \t]*+")

# Maximum number of characters that one character of a value takes when escaped.
_MAX_ESCAPE_LENGTH = 16

# A truncated escape sequence at the end of a text.
_CUT_ESCAPE = rf"(?:(?:{_BACKSLASHES})?+(?<=\\)(?:[uU][0-9A-Fa-f]{{0,3}})?|%[0-9A-Fa-f]?|&[#\w]*+)?$"

_HTML_NAMES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_JSON_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_URL_SAFE = str.maketrans("+/", "-_")
# A sequence of backslashes, or one other character.
_RUNS = re.compile(r"\\+|[^\\]")
_FORMATTER = logging.Formatter()


def is_secret_name(name: str) -> bool:
    """Return whether a query parameter or header of this name is likely a secret."""
    return _SECRET_NAME.search(name) is not None


def redacted(url: str) -> str:
    """Return a URL without user part and secret query parameters, truncated if long."""
    shown = _PAIR.sub(_redact_pair, _USERINFO.sub(f"{REDACTED}@", url))
    shown = "".join(each if each.isprintable() else " " for each in shown)
    return shown if len(shown) <= _MAX_URL_LENGTH else shown[:_MAX_URL_LENGTH] + "…"


def _redact_pair(found: re.Match[str]) -> str:
    if found["value"] is None or not is_secret_name(found["name"]):
        return found[0]
    return f"{found['before']}{found['name']}={REDACTED}"


def by_name(text: str) -> str:
    """Redact the user part of URLs, and the values that stand after names which indicate a secret, in a message."""
    from rune.nodes.named_secrets import hide_named  # noqa: PLC0415 - its patterns take 3 ms

    if "@" in text:
        text = _USERINFO_IN_TEXT.sub(f"{REDACTED}@", text)
    return hide_named(text)


def _is_secret_field(name: str) -> bool:
    from rune.nodes.named_secrets import SECRET_FIELD  # noqa: PLC0415 - its patterns take 3 ms

    return SECRET_FIELD.search(name) is not None


class Redactor:
    """Redacts given values in all their encoded forms."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        # Each value with its longest part that no encoding changes.
        self._values: dict[str, str] = {}
        self._forms: list[str] = []
        self._encoded: tuple[str, ...] = ()  # the forms in base64 and hex, longest first
        self._folded: tuple[tuple[str, str], ...] = ()  # long values with their lower case, longest first
        self._words: re.Pattern[str] | None = None
        self._numbers: frozenset[str] = frozenset()
        self._hints: tuple[bytes, ...] = ()
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Redact further values."""
        new = {each for each in values if each} - self._values.keys()
        if not new:
            return
        self._values.update((each, max(_PLAIN.findall(each), key=len, default="")) for each in new)
        # Longest first: a user:password pair contains the password.
        forms = {
            *self._forms,
            *(form for value in new if len(value) >= MIN_SECRET_LENGTH for form in encoded_forms(value)),
        }
        self._forms = sorted(forms, key=len, reverse=True)
        self._encoded = tuple(each for each in self._forms if _BASE64.fullmatch(each))
        self._folded = tuple(
            (each, each.lower())
            for each in sorted(self._values, key=len, reverse=True)
            if len(each) >= MIN_FOLDED_LENGTH
        )
        self._hints = tuple(each.lower().encode() for each in (*self._values.values(), *self._encoded))
        short = sorted(
            (each for each in self._values if len(each) < MIN_SECRET_LENGTH), key=len, reverse=True
        )
        alternatives = "|".join(map(re.escape, short))
        self._words = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)") if short else None
        self._numbers = frozenset(each for each in self._values if each.isascii() and each.isdigit())

    def finds(self, text: str) -> bool:
        """Return whether a text contains one of the values."""
        return self.text(text) is not text

    def text(self, text: str) -> str:
        """Redact a text; return the same object if it contains no value."""
        if not self._values:
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        text = self._redact_folded(text)
        if "\n" in text or "\\n" in text:
            text = self._redact_wrapped(text)
        if _ENCODED.search(text):
            text = self._redact_escaped(text)
        if self._words is not None and self._words.search(text):
            text = self._words.sub(REDACTED, text)
        return text

    def _redact_folded(self, text: str) -> str:
        """Redact long values in other letter case."""
        lower = text.lower()
        for value, folded in self._folded:
            if folded in lower:
                text = re.sub(re.escape(value), REDACTED, text, flags=re.IGNORECASE)
                lower = text.lower()
        return text

    def _redact_wrapped(self, text: str) -> str:
        """Redact base64 and hex that is broken into lines, such as the 76 columns of MIME."""
        joined = "".join(map(str.strip, text.splitlines()))
        if "\\n" in joined:
            joined = _ESCAPED_BREAKS.sub("", joined)
        for form in self._encoded:
            if form in joined:
                text = re.sub(f"(?:{_BREAK})?+".join(map(re.escape, form)), REDACTED, text)
        return text

    def _redact_escaped(self, text: str) -> str:
        """Redact escaped values.

        Encoders differ in which characters they escape, and JSON nested in JSON is escaped twice, so every
        character is matched in each of its forms.
        """
        plain = {each.lower() for each in _decoded(text)}
        for value, core in self._values.items():
            if len(value) >= MIN_SECRET_LENGTH and any(core.lower() in each for each in plain):
                pattern = _escaped_pattern(value)
                if pattern.search(text):
                    text = pattern.sub(REDACTED, text)
        return text

    def cut_text(self, text: str) -> str:
        """Redact a text that may have been truncated in the middle of a value."""
        if not self._values:
            return text
        text = self.text(text)
        bare = text.removesuffix("…")
        for form in self._forms:
            for length in range(min(len(form) - 1, len(bare)), _MIN_CUT_LENGTH - 1, -1):
                if bare.endswith(form[:length]):
                    return bare[:-length] + REDACTED
        return self._redact_cut_escape(bare, text) if _ENCODED.search(bare) else text

    def _redact_cut_escape(self, bare: str, text: str) -> str:
        for value in self._values:
            end = bare[-_MAX_ESCAPE_LENGTH * len(value) :]
            if len(value) < MIN_SECRET_LENGTH or not _escaped_pattern(value[:_MIN_CUT_LENGTH]).search(end):
                continue
            found = _cut_pattern(value).search(end)
            if found:
                return bare[: len(bare) - len(end) + found.start()] + REDACTED
        return text

    def bytes(self, data: bytes) -> bytes:
        """Redact bytes; return the same object if they contain no value."""
        text = data.decode("utf-8", "surrogateescape")
        clean = self.text(text)
        return data if clean is text else clean.encode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:
        """Redact JSON; return the same object if it contains no value."""
        return self._value(value) if self._values and self._may_hold(value) else value

    def _may_hold(self, value: Any) -> bool:
        """Return whether encoded JSON may contain a value.

        A fast check for the common case: every value has a part that JSON does not escape.
        """
        try:
            text = msgspec.json.encode(value).lower()
        except (TypeError, ValueError, RecursionError):
            return True
        if b"%" in text or b"&#" in text or b"\\\\u" in text:
            return True
        if any(each in text for each in self._hints):
            return True
        joined = _without_breaks(text) if b"\\n" in text else b""
        return any(each in joined for each in self._hints)

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is dict:
            items = {self.text(key): self._value(each) for key, each in value.items()}
            same = len(items) == len(value) and all(
                key in value and each is value[key] for key, each in items.items()
            )
            return value if same else items
        if kind is list:
            listed = [self._value(each) for each in value]
            return value if all(map(operator.is_, listed, value)) else listed
        if kind is int and self._numbers and str(value) in self._numbers:
            return REDACTED
        return value

    def error(self, error: Error) -> Error:
        """Redact an error: values, secret fields and the user part of URLs."""
        message = self.cut_text(by_name(error.message))
        details = self.details(error.details)
        traceback = self.cut_text(by_name(error.traceback)) if error.traceback else ""
        if message == error.message and details == error.details and traceback == error.traceback:
            return error
        return replace(error, message=message, details=details, traceback=traceback)

    def details(self, details: dict[str, Any]) -> dict[str, Any]:
        """Redact fields: values, and all text under a name that indicates a secret."""
        shown: dict[str, Any] = self._details(details, {})
        return shown

    def _details(self, value: Any, seen: dict[tuple[int, bool], Any], *, hidden: bool = False) -> Any:
        """Redact a part of the details. `seen` has the objects and lists that were redacted before: what is the same
        object stays the same object."""
        kind = type(value)
        if kind is str:
            return REDACTED if hidden and value else self.cut_text(by_name(value))
        if kind is dict or kind is list:
            known = seen.get((id(value), hidden))
            if known is None:
                if kind is dict:
                    known = {
                        self.text(key): self._details(each, seen, hidden=hidden or _is_secret_field(key))
                        for key, each in value.items()
                    }
                else:
                    known = [self._details(each, seen, hidden=hidden) for each in value]
                seen[(id(value), hidden)] = known
            return known
        return REDACTED if kind is int and self._numbers and str(value) in self._numbers else value

    def outcome(self, outcome: Outcome) -> Outcome:
        """Redact an outcome before it is stored."""
        if type(outcome) is Output:
            value = self.value(outcome.value)
            return outcome if value is outcome.value else Output(value, outcome.outlet)
        if type(outcome) is Failure:
            return Failure(self.error(outcome.error))
        if type(outcome) is FanOut and outcome.value is not None:
            return FanOut(outcome.count, self.value(outcome.value))
        return outcome


def _without_breaks(text: bytes) -> bytes:
    """Return encoded JSON without white space and escapes of it. A regular expression would take ten times as long."""
    while b"\\\\" in text:  # JSON nested in JSON: an escape with several backslashes is removed whole
        text = text.replace(b"\\\\", b"\\")
    for escape in (b"\\r", b"\\n", b"\\t"):
        text = text.replace(escape, b"")
    return text.translate(None, b" \\")


NAMES_ONLY = Redactor()
"""Redacts by name only, for calls without a credential."""


def _decoded(text: str) -> Iterator[str]:
    """Yield a text as it is, and decoded in each of the ways that escape letters and digits."""
    yield text
    if "%" in text:
        yield unquote(text)
        yield unquote_plus(text)
    if "&#" in text:
        yield _HTML_ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 10 if found[1] else 16)), text)
    if _UNICODE_ESCAPE.search(text):
        yield _UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _escaped_pattern(value: str) -> re.Pattern[str]:
    """Return a pattern for a value with each character plain or escaped for URLs, JSON (repeatedly) or HTML."""
    return re.compile("".join(_escaped_characters(value)))


def _cut_pattern(value: str) -> re.Pattern[str]:
    """Return a pattern for the beginning of an escaped value at the end of a text."""
    parts = _escaped_characters(value[:-1], cut=True)
    count = len(_escaped_characters(value[:_MIN_CUT_LENGTH], cut=True))
    rest = "".join(f"(?:{each}|{_CUT_ESCAPE})" for each in parts[count:])
    return re.compile("".join(parts[:count]) + rest + _CUT_ESCAPE)


def _escaped_characters(value: str, *, cut: bool = False) -> list[str]:
    """Return one pattern for each character, and one for each sequence of backslashes, which may be incomplete if the
    text is cut.

    Any number of backslashes may precede an escaped character, so a sequence of them also matches those of the
    next character: each backslash of the text is compared once.
    """
    fold = len(value) >= MIN_FOLDED_LENGTH
    parts: list[str] = []
    before = _BACKSLASHES
    for run in _RUNS.findall(value):
        if run[0] == "\\":
            parts.append(_escaped_backslashes(1 if cut else len(run), len(run)))
            before = ""
        else:
            parts.append(_escaped_character(run, before, fold=fold))
            before = _BACKSLASHES
    return parts


def _escaped_backslashes(least: int, most: int) -> str:
    """Return a pattern for a sequence of backslashes: a run of them stands for one or more, an escape for one."""
    escape = r"(?:[uU]005[cC])?"
    one = rf"(?:{_BACKSLASHES}{escape}|%5[cC]|&\#(?:0*92|[xX]0*5[cC]);)"
    if least == 1:
        return rf"{one}{{1,{most + 1}}}"
    return rf"(?:{one}{{2,{most + 1}}}|(?<!\\)\\{{{least},}}+{escape})"


def _escaped_character(character: str, before: str, *, fold: bool) -> str:
    """Return a pattern for a character; `before` matches the backslashes of its escapes."""
    if character.isascii() and character.isalnum():
        cases = sorted({character.lower(), character.upper()}) if fold else [character]
        return f"(?:{'|'.join(_escaped_letter(each, before) for each in cases)})"
    units = character.encode("utf-16-be", "surrogatepass")
    points = [f"(?i:u{units[at]:02x}{units[at + 1]:02x})" for at in range(0, len(units), 2)]
    raw = character.encode("utf-8", "surrogatepass")
    ways = [
        f"{before and f'(?:{before})?+'}{re.escape(character)}",
        before + _BACKSLASHES.join(points),
        "".join(f"(?i:%{byte:02x})" for byte in raw),
        rf"&\#(?:0*{ord(character)}|[xX]0*(?i:{ord(character):x}));",
    ]
    if character in _HTML_NAMES:
        ways.append(f"&{_HTML_NAMES[character]};")
    if character in _JSON_ESCAPES:
        ways.append(before + _JSON_ESCAPES[character])
    if character == " ":
        ways.append(r"\+")
    return f"(?{'i' if fold and character.isalpha() else ''}:{'|'.join(ways)})"


def _escaped_letter(character: str, before: str) -> str:
    """Return a pattern for an ASCII letter or digit, which some encoders escape too."""
    code = ord(character)
    return rf"{character}|%(?i:{code:02x})|{before}[uU](?i:{code:04x})|&\#(?:0*{code}|[xX]0*(?i:{code:x}));"


def encoded_forms(value: str) -> Iterator[str]:
    """Yield a value in plain form, as UTF-8 misread as Latin-1, in base64, and unless it is short in hex. Escapes are
    matched separately."""
    raw = value.encode("utf-8", "surrogatepass")
    yield value
    if not value.isascii():
        yield raw.decode("latin-1")
    yield from _base64_forms(raw)
    if len(value) >= MIN_FOLDED_LENGTH:
        yield raw.hex()
        yield raw.hex().upper()


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the base64 of the value, and the characters it determines at each offset inside a longer text."""
    alone = base64.b64encode(raw).decode()
    forms = [alone, alone.rstrip("=")]
    for offset, foreign in enumerate((0, 2, 3)):
        text = base64.b64encode(b"\0" * offset + raw).decode()
        whole = len(text) if (offset + len(raw)) % 3 == 0 else len(text.rstrip("=")) - 1
        forms.append(text[foreign:whole])
    for form in forms:
        yield form
        if "+" in form or "/" in form:
            yield form.translate(_URL_SAFE)


class SecretsInUse:
    """The redactors of all running calls, for the process-wide log."""

    def __init__(self) -> None:
        self._redactors: dict[int, weakref.ref[Redactor]] = {}

    def add(self, redactor: Redactor) -> None:
        """Register a redactor until it is removed or garbage-collected."""
        key = id(redactor)
        if key not in self._redactors:
            self._redactors[key] = weakref.ref(redactor, lambda _: self._redactors.pop(key, None))

    def remove(self, redactor: Redactor) -> None:
        self._redactors.pop(id(redactor), None)

    def _all(self) -> list[Redactor]:
        # Copy atomically first: other threads log at the same time.
        return [found for each in tuple(self._redactors.values()) if (found := each()) is not None]

    def text(self, text: str) -> str:
        """Redact a log message."""
        text = by_name(text)
        for redactor in self._all():
            text = redactor.text(text)
        return text

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Redact the fields of a log record."""
        shown = NAMES_ONLY.details(fields)
        for redactor in self._all():
            shown = redactor.details(shown)
        return shown


SECRETS_IN_USE = SecretsInUse()
"""One per process, like the log."""


class LogFilter(logging.Filter):
    """Redacts the message, arguments and traceback of a record before it is formatted."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:
            # The handler reports arguments that do not match the format.
            return True
        shown = SECRETS_IN_USE.text(message)
        if shown != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0] is not None:
            trace = _FORMATTER.formatException(record.exc_info)
            clean = SECRETS_IN_USE.text(trace)
            if clean != trace:
                record.exc_text, record.exc_info = clean, None
        return True


def protect_log() -> None:
    """Redact every log record of this process. Idempotent.

    Wraps the record factory because a filter on a logger does not see the records of its child loggers.
    """
    make = logging.getLogRecordFactory()
    if getattr(make, "redacts", False):
        return
    log_filter = LogFilter()

    def make_redacted(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        log_filter.filter(record)
        return record

    make_redacted.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make_redacted)
