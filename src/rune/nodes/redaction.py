"""The redactor: the one place that takes secrets out of what is shown or kept.

It knows values (those of credentials while they are in use), names that tell of a secret, and the user part of
addresses. A value is found as it stands and as it looks percent-encoded, in base64, escaped in JSON or in HTML.

The values in use in this process, and the log that must not show them.
"""

from __future__ import annotations

import base64
import logging
import re
import weakref
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, unquote_plus

import msgspec
from msgspec.structs import replace

from rune.core.execution.outcome import Error, Failure, FanOut, Outcome, Output

REDACTED = "***"
MIN_SECRET_LENGTH = 6
"""A value shorter than this is only hidden where it stands alone: otherwise it would be found in any text."""

_CUT = 4
"""So many first characters of a value at the end of a text that was cut are hidden as well."""

_LONGEST_URL = 400
_USERINFO = re.compile(r"(?<=//)[^/?#]*@")
_USERINFO_IN_TEXT = re.compile(r"(?<=[A-Za-z0-9]://)[^/?#\s\"'<>@]*@")
_PAIR = re.compile(r"(?P<before>[?&;#])(?P<name>[^=&;#]*)=(?P<value>[^&;#]*)")
_SECRET_NAME = re.compile(
    r"token|secret|passw|pwd|api[-_.]?key|access[-_.]?key|auth|signature|credential|session|cookie|jwt|bearer"
    r"|^(sig|key|code|pass|pin|otp|sid)$",
    re.IGNORECASE,
)
_SECRET_FIELD = re.compile(
    r"token|secret|passw|pwd|api[-_.]?key|access[-_.]?key|private[-_.]?key|credential|cookie|jwt|bearer"
    r"|authorization|authentication|(^|[-_.])auth([-_.]|$)|signature|session[-_.]?id",
    re.IGNORECASE,
)
_HEADER_IN_TEXT = re.compile(
    r"(?P<name>(?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token)(?P<mark>[\"']?\s*[:=]\s*[\"']?)"
    r"(?:(?:bearer|basic|digest|token)\s+)?[^\s\"',;]+",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether a query parameter or header of this name is likely to be a secret."""
    return _SECRET_NAME.search(name) is not None


def redacted(url: str) -> str:
    """The address without what must not be seen; cut if it is long."""
    shown = _PAIR.sub(_pair, _USERINFO.sub(f"{REDACTED}@", url))
    shown = "".join(each if each.isprintable() else " " for each in shown)
    return shown if len(shown) <= _LONGEST_URL else shown[:_LONGEST_URL] + "…"


def _pair(found: re.Match[str]) -> str:
    value = REDACTED if is_secret_name(found["name"]) else found["value"]
    return f"{found['before']}{found['name']}={value}"


def by_name(text: str) -> str:
    """A message without the user part of addresses and the values of headers that carry secrets."""
    if "@" in text:
        text = _USERINFO_IN_TEXT.sub(f"{REDACTED}@", text)
    return _HEADER_IN_TEXT.sub(rf"\g<name>\g<mark>{REDACTED}", text)


class Redactor:
    """Hides given values, in all the forms in which they turn up."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: dict[str, str] = {}  # and the longest part of each that no encoding changes
        self._forms: list[str] = []
        self._words: re.Pattern[str] | None = None
        self._numbers: frozenset[str] = frozenset()
        self._hints: tuple[bytes, ...] = ()
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Hide these too."""
        new = {each for each in values if each} - self._values.keys()
        if not new:
            return
        self._values.update((each, max(_PLAIN.findall(each), key=len, default="")) for each in new)
        # The longer one first: a pair of user and password holds the password.
        forms = {
            *self._forms,
            *(form for value in new if len(value) >= MIN_SECRET_LENGTH for form in encoded_forms(value)),
        }
        self._forms = sorted(forms, key=len, reverse=True)
        parts = [*self._values.values(), *(each for each in forms if _BASE64.fullmatch(each))]
        self._hints = tuple(each.encode() for each in parts)
        short = sorted(
            (each for each in self._values if len(each) < MIN_SECRET_LENGTH), key=len, reverse=True
        )
        together = "|".join(map(re.escape, short))
        self._words = re.compile(rf"(?<!\w)(?:{together})(?!\w)") if short else None
        self._numbers = frozenset(each for each in self._values if each.isascii() and each.isdigit())

    def finds(self, text: str) -> bool:
        """Whether one of the values is in a text."""
        return self.text(text) is not text

    def text(self, text: str) -> str:
        """The text without the values; the same object if there are none."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        if _ENCODED.search(text):
            text = self._decoded(text)
        if self._words is not None and self._words.search(text):
            text = self._words.sub(REDACTED, text)
        return text

    def _decoded(self, text: str) -> str:
        """Without values that are written in escapes. Nobody agrees which characters need one, and text in JSON in
        JSON has them twice, so each character is looked for in every way."""
        plain = {text, unquote(text), unquote_plus(text)} if "%" in text else {text}
        for value, core in self._values.items():
            if len(value) >= MIN_SECRET_LENGTH and any(core in each for each in plain):
                pattern = _loosely(value)
                if pattern.search(text):
                    text = pattern.sub(REDACTED, text)
        return text

    def cut_text(self, text: str) -> str:
        """Like `text`, for what may have been cut in the middle of a value."""
        text = self.text(text)
        bare = text.removesuffix("…")
        for form in self._forms:
            for length in range(min(len(form) - 1, len(bare)), _CUT - 1, -1):
                if bare.endswith(form[:length]):
                    return bare[:-length] + REDACTED
        return self._cut_escapes(bare, text) if _ENCODED.search(bare) else text

    def _cut_escapes(self, bare: str, text: str) -> str:
        for value in self._values:
            end = bare[-_WIDEST * len(value) :]
            if len(value) < MIN_SECRET_LENGTH or not _loosely(value[:_CUT]).search(end):
                continue
            for length in range(len(value) - 1, _CUT - 1, -1):
                found = _loosely(value[:length], _BEGUN).search(end)
                if found:
                    return bare[: len(bare) - len(end) + found.start()] + REDACTED
        return text

    def bytes(self, data: bytes) -> bytes:
        """Bytes without the values; the same object if there are none."""
        text = data.decode("utf-8", "surrogateescape")
        clean = self.text(text)
        return data if clean is text else clean.encode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:
        """JSON without the values; the same object if there are none."""
        return self._value(value) if self._may_hold(value) else value

    def _may_hold(self, value: Any) -> bool:
        """A look at the whole as one text, which is quick, and mostly the end of it: no value is written in JSON
        without a part that JSON leaves as it is."""
        try:
            text = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError):
            return True
        return b"%" in text or any(each in text for each in self._hints)

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
            return value if all(map(_is, listed, value)) else listed
        if kind is int and self._numbers and str(value) in self._numbers:
            return REDACTED
        return value

    def error(self, error: Error) -> Error:
        """An error without values, telling fields and users in addresses."""
        message = self.cut_text(by_name(error.message))
        details = self.details(error.details)
        if message == error.message and details == error.details:
            return error
        return replace(error, message=message, details=details)

    def details(self, details: dict[str, Any]) -> dict[str, Any]:
        """Fields without values, and without text under a telling name."""
        shown: dict[str, Any] = self._details(details)
        return shown

    def _details(self, value: Any, *, hidden: bool = False) -> Any:
        kind = type(value)
        if kind is str:
            return REDACTED if hidden and value else self.cut_text(by_name(value))
        if kind is dict:
            return {
                self.text(key): self._details(each, hidden=hidden or bool(_SECRET_FIELD.search(key)))
                for key, each in value.items()
            }
        if kind is list:
            return [self._details(each, hidden=hidden) for each in value]
        return REDACTED if kind is int and self._numbers and str(value) in self._numbers else value

    def outcome(self, outcome: Outcome) -> Outcome:
        """An outcome as it may be kept."""
        if type(outcome) is Output:
            value = self.value(outcome.value)
            return outcome if value is outcome.value else Output(value, outcome.outlet)
        if type(outcome) is Failure:
            return Failure(self.error(outcome.error))
        if type(outcome) is FanOut and outcome.value is not None:
            return FanOut(outcome.count, self.value(outcome.value))
        return outcome


NAMES_ONLY = Redactor()
"""For errors of calls that used no credential."""


_ENCODED = re.compile(r"[%\\&+]")
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_=-]+")
_WIDEST = 16
"""Characters that one of a value takes up at most, escapes and all."""

_BEGUN = r"(?:\\+(?:u[0-9A-Fa-f]{0,3})?|%[0-9A-Fa-f]?|&[#\w]*)?$"
"""An escape that was cut, at the end."""

_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


def _loosely(value: str, rest: str = "") -> re.Pattern[str]:
    """A pattern for a value of which each character is as it is or escaped, for URLs, JSON (any number of times) or
    HTML."""
    return re.compile("".join(map(_escapes, value)) + rest)


def _escapes(character: str) -> str:
    if character.isascii() and character.isalnum():
        return f"(?:{character}|%{ord(character):02x}|%{ord(character):02X})"
    units = character.encode("utf-16-be", "surrogatepass")
    points = [f"u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)]
    raw = character.encode("utf-8", "surrogatepass")
    ways = [
        rf"\\*{re.escape(character)}" if character != "\\" else r"\\+",
        "".join(rf"\\+(?i:{each})" for each in points),
        "".join(f"(?i:%{byte:02x})" for byte in raw),
        rf"&\#(?:0*{ord(character)}|[xX]0*(?i:{ord(character):x}));",
    ]
    if character in _NAMED:
        ways.append(f"&{_NAMED[character]};")
    if character in _LETTERS:
        ways.append(rf"\\+{_LETTERS[character]}")
    if character == " ":
        ways.append(r"\+")
    return f"(?:{'|'.join(ways)})"


def _is(one: Any, other: Any) -> bool:
    return one is other


def encoded_forms(value: str) -> Iterator[str]:
    """A value as it stands, as misread bytes, and in base64; escapes are looked for where there are any."""
    raw = value.encode("utf-8", "surrogatepass")
    yield value
    if not value.isascii():
        yield raw.decode("latin-1")
    yield from _base64_forms(raw)


def _base64_forms(raw: bytes) -> Iterator[str]:
    """The value by itself, and the characters that it alone decides wherever it stands in something longer."""
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


_URL_SAFE = str.maketrans("+/", "-_")


class SecretsInUse:
    """The redactors of all calls under way, for what belongs to no single one of them: the log."""

    def __init__(self) -> None:
        self._redactors: dict[int, weakref.ref[Redactor]] = {}

    def add(self, redactor: Redactor) -> None:
        """From now on its values are in use, until it leaves or nobody has it any more."""
        key = id(redactor)
        if key not in self._redactors:
            self._redactors[key] = weakref.ref(redactor, lambda _: self._redactors.pop(key, None))

    def remove(self, redactor: Redactor) -> None:
        """They are no more."""
        self._redactors.pop(id(redactor), None)

    def _all(self) -> list[Redactor]:
        # Other threads log too: a copy in one step, before anything is looked at.
        return [found for each in tuple(self._redactors.values()) if (found := each()) is not None]

    def text(self, text: str) -> str:
        """A line of the log."""
        text = by_name(text)
        for redactor in self._all():
            text = redactor.text(text)
        return text

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """What a line of the log carries beside its text."""
        shown = NAMES_ONLY.details(fields)
        for redactor in self._all():
            shown = redactor.details(shown)
        return shown


SECRETS_IN_USE = SecretsInUse()
"""Of this process, as the log is."""


class LogFilter(logging.Filter):
    """Rewrites a record before anybody formats it: the message, its arguments, and the traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit are for the handler to complain about
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


_FORMATTER = logging.Formatter()


def protect_log() -> None:
    """Have every log record of this process pass the filter. A filter on a logger is not asked about the records of
    the loggers below it, so it stands where records are made. Done twice it is done once."""
    make = logging.getLogRecordFactory()
    if getattr(make, "redacts", False):
        return
    judge = LogFilter()

    def made(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        judge.filter(record)
        return record

    made.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(made)
