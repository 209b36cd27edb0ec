"""Translate an expression into Python source that contains only placeholders and safe operators.

Python's parser never receives a word, text or number of the source: each becomes `t0`, `t1`, … So the treatment of
keywords, literals and identifiers by Python cannot matter. Syntax that Python lacks is mapped to syntax that this
language does not use otherwise:

    a ?? b          a | b                `|` has the right precedence
    a contains b    a is b
    c ? a : b       c if T(a) else b     the compiler reorders the operands
    x | f | g(y)    P(x, f, g(y))

`T` and `P` cannot be forged, because all names of the source become placeholders.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import msgspec

from rune.core.expr.budget import MAX_NESTING, MAX_TOKENS, ExpressionSyntaxError
from rune.core.expr.names import (
    Names,
    id_ends,
    is_word_start,
    known_references,
    read_number,
    read_text,
    refuse_dunder,
    root_at,
    unknown,
    word_end,
)

_SPACE = frozenset(" \t\r\n")
_DIGITS = frozenset("0123456789")
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_WORDS = frozenset({"and", "or", "not", "in", "if", "else", "for", "contains"})
_INFIX = {
    "and": "a and b",
    "or": "a or b",
    "in": "a in b",
    "contains": "a contains b",
    "if": "a if condition else b",
}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_OPERATORS = {
    "??": "|",
    "&&": "and",
    "||": "or",
    "**": "**",
    "//": "//",
    "==": "==",
    "!=": "!=",
    "<=": "<=",
    ">=": ">=",
    "+": "+",
    "-": "-",
    "*": "*",
    "/": "/",
    "%": "%",
    "<": "<",
    ">": ">",
    "!": "not",
}
# Near the limit every token is counted.
_MAX_UNCOUNTED_PIECES = 2 * MAX_TOKENS - 1
_MEMBER = re.compile(r"\.(?!__)([A-Za-z_]\w*+)")
_PREFIXES = frozenset({"not", "-", "+"})
_PUNCTUATION = frozenset(",:|?=")
_QUOTE_OR_BRACE = re.compile(r"""["'{}]""")
# Possessive quantifiers: a long unclosed text needs no memory for backtracking.
_QUOTED = {
    '"': re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL),
    "'": re.compile(r"'[^'\\]*+(?:\\.[^'\\]*+)*+'", re.DOTALL),
}


class Token(msgspec.Struct, frozen=True, gc=False):
    """The meaning of a placeholder: a `word`, a `literal`, or the root of a reference (`$` or `bare`)."""

    kind: str
    value: Any
    offset: int


_START_TOKEN = Token("mark", None, 0)


class Lexed(msgspec.Struct, frozen=True):
    """Python source, the meaning of its placeholders, and a mapping from its columns to the source."""

    code: str
    tokens: dict[str, Token]
    pieces: list[str]
    offsets: list[int]

    def offset(self, column: int) -> int:
        """Return the offset in the source that a column corresponds to."""
        columns = list(accumulate((len(piece) + 1 for piece in self.pieces), initial=0))
        return self.offsets[bisect_right(columns, column, hi=len(self.offsets)) - 1]

    def token(self, placeholder: str) -> Token:
        """Return the token of a placeholder; the marks `P` and `T` have none."""
        return self.tokens.get(placeholder, _START_TOKEN)


class _Level:
    """An open bracket or `?`. `slot` is the piece where a pipe of this segment begins."""

    __slots__ = ("loop", "offset", "opener", "piped", "slot")

    def __init__(self, opener: str, offset: int) -> None:
        self.opener = opener
        self.offset = offset
        self.slot = 0
        self.piped = False
        self.loop = ""


def lex(source: str, names: Names) -> Lexed:
    """Return the placeholder form of an expression."""
    return _Lexer(source, names).lex()


class _Lexer:
    def __init__(self, source: str, names: Names) -> None:
        self.source = source
        self.names = names
        self.at = 0
        self.pieces: list[str] = []
        self.offsets: list[int] = []
        self.tokens: dict[str, Token] = {}
        self.levels = [_Level("", 0)]
        self.prefixes = 0

    def lex(self) -> Lexed:
        source = self.source
        self._emit("(", 0)
        self._open_segment()
        while self.at < len(source):
            char = source[self.at]
            if char in _SPACE:
                self.at += 1
                continue
            reader = _READERS.get(char)
            if reader is not None:
                reader(self)
            elif is_word_start(char):
                self._word()
            else:
                raise self._unexpected(char)
            if len(self.pieces) > 2 * MAX_TOKENS:
                problem = f"the expression is too long (limit: {MAX_TOKENS} tokens)"
                raise ExpressionSyntaxError(problem, self.at)
        top = self.levels[-1]
        if top.opener:
            missing = _CLOSERS.get(top.opener, ":")
            raise ExpressionSyntaxError(f"{top.opener} is not closed", top.offset, f"a {missing} is missing")
        self._close_segment()
        self._emit(")", len(source))
        return Lexed(" ".join(self.pieces), self.tokens, self.pieces, self.offsets)

    def _unexpected(self, char: str) -> ExpressionSyntaxError:
        shown = char if char.isprintable() else f"U+{ord(char):04X}"
        return ExpressionSyntaxError(f"unexpected character {shown}", self.at)

    def _number(self) -> None:
        at = self.at
        number, self.at = read_number(self.source, at)
        self._placeholder("literal", number, at)

    def _quoted(self) -> None:
        at = self.at
        text, self.at = read_text(self.source, at)
        self._placeholder("literal", text, at)

    def _dot(self) -> None:
        if self._begins_number():
            self._number()
        else:
            self._punctuation(".")

    def _sign(self) -> None:
        """Read the longest operator or punctuation."""
        at = self.at
        char, pair = self.source[at], self.source[at : at + 2]
        if pair in _OPERATORS:
            self._operator(pair)
        elif char in _PUNCTUATION:
            self._punctuation(char)
        elif char in _OPERATORS:
            self._operator(char)
        else:
            raise self._unexpected(char)

    def _emit(self, piece: str, offset: int) -> None:
        self.pieces.append(piece)
        self.offsets.append(offset)

    def _placeholder(self, kind: str, value: Any, offset: int) -> None:
        self.prefixes = 0
        name = f"t{len(self.tokens)}"
        self.pieces.append(name)
        self.offsets.append(offset)
        self.tokens[name] = Token(kind, value, offset)

    def _begins_number(self) -> bool:
        """Return whether the dot begins a number such as .5, instead of a lookup in the preceding value."""
        return self.source[self.at + 1 : self.at + 2] in _DIGITS and not self._ends_value(self.pieces[-1])

    @staticmethod
    def _ends_value(piece: str) -> bool:
        return piece in _CLOSERS.values() or piece.startswith("t")

    def _reference(self) -> None:
        at = self.at
        found = root_at(self.source, at, self.names)
        if found is None:
            ends = id_ends(self.source, at + 1)
            shown = self.source[at : ends[0]] if ends else self.source[at : at + 2]
            raise unknown(shown, at, known_references(self.names))
        self._placeholder("$", found[0], at)
        at = found[1]
        # Most references continue with names, which are read here without returning to the main loop.
        while len(self.pieces) < _MAX_UNCOUNTED_PIECES and (member := _MEMBER.match(self.source, at)):
            self._emit(".", at)
            self._placeholder("word", member[1], at + 1)
            at = member.end()
        self.at = at

    def _word(self) -> None:
        at, source = self.at, self.source
        end = word_end(source, at)
        word = source[at:end]
        self.at = end
        refuse_dunder(word, at)
        if self.pieces[-1] == ".":
            self._placeholder("word", word, at)
        elif source[end : end + 1] in ('"', "'"):
            self._prefixed_text(word)
        elif word in _CONSTANTS:
            self._placeholder("literal", _CONSTANTS[word], at)
        elif word in _WORDS:
            self._keyword(word)
        else:
            dashed = self._dashed_id(word)
            if dashed:
                self.at = at + len(dashed)
                self._placeholder("bare", "$" + dashed, at)
            else:
                self._placeholder("word", word, at)

    def _prefixed_text(self, prefix: str) -> None:
        start = self.at - len(prefix)
        if prefix not in ("r", "R"):
            problem = f"unexpected {prefix[:40]} before a text"
            raise ExpressionSyntaxError(problem, start, 'only r"…" is known')
        value, self.at = read_text(self.source, self.at, raw=True)
        self._placeholder("literal", value, start)

    def _dashed_id(self, word: str) -> str:
        """Return the node id with dashes that begins with this word, unless the word itself is a name."""
        if word in self.names.nodes or not self.source.startswith("-", self.at):
            return ""
        start = self.at - len(word)
        for end in id_ends(self.source, start):
            dashed = self.source[start:end]
            if dashed in self.names.nodes:
                return "" if word in _loop_words(self.source) else dashed
        return ""

    def _keyword(self, word: str) -> None:
        level, at = self.levels[-1], self.at - len(word)
        if word in _INFIX and not self._ends_value(self.pieces[-2 if self.pieces[-1] == "not" else -1]):
            raise ExpressionSyntaxError(
                f"{word} is an operator between two values", at, f"write {_INFIX[word]}"
            )
        if word == "contains":
            if self.pieces[-1] == "not":
                self.pieces[-1] = "is not"
            else:
                self._emit("is", at)
        elif word == "for" and level.opener in _CLOSERS:
            self._close_segment()
            self._emit(word, at)
            level.loop = "target"
        elif (word == "in" and level.loop == "target") or (word == "if" and level.loop == "source"):
            self._close_segment()
            self._emit(word, at)
            level.loop = "source"
            self._open_segment()
        elif word == "for":
            raise ExpressionSyntaxError("a loop must be in brackets: [x for x in list]", at)
        else:
            self._operate(word, at)

    def _operator(self, operator: str) -> None:
        self._operate(_OPERATORS[operator], self.at)
        self.at += len(operator)

    def _operate(self, piece: str, offset: int) -> None:
        """Emit an operator. A chain of prefix operators counts as nesting."""
        self.prefixes = self.prefixes + 1 if piece in _PREFIXES else 0
        self._check_nesting(offset)
        self._emit(piece, offset)

    def _check_nesting(self, offset: int) -> None:
        if len(self.levels) + self.prefixes > MAX_NESTING:
            raise ExpressionSyntaxError(f"the expression is nested too deeply (limit: {MAX_NESTING})", offset)

    def _bracket(self) -> None:
        char = self.source[self.at]
        if char in _CLOSERS:
            self._open(char)
        else:
            self._close(char)

    def _open(self, opener: str) -> None:
        self.levels.append(_Level(opener, self.at))
        self._check_nesting(self.at)
        self._emit("T(" if opener == "?" else opener, self.at)
        self.at += 1
        self.prefixes = 0
        self._open_segment()

    def _close(self, closer: str) -> None:
        top = self.levels[-1]
        if _CLOSERS.get(top.opener) != closer:
            hint = f"the {top.opener} at character {top.offset + 1} is still open" if top.opener else ""
            raise ExpressionSyntaxError(f"unexpected {closer}", self.at, hint)
        self._close_segment()
        self.levels.pop()
        self._emit(closer, self.at)
        self.at += 1

    def _open_segment(self) -> None:
        level = self.levels[-1]
        level.slot = len(self.pieces)
        level.piped = False
        self._emit("", self.at)

    def _close_segment(self) -> None:
        level = self.levels[-1]
        if level.piped:
            if self.pieces[-1] == ",":
                raise ExpressionSyntaxError("a function is missing after |", self.at)
            self._emit(")", self.at)
            level.piped = False

    def _punctuation(self, char: str) -> None:
        level, at = self.levels[-1], self.at
        self.prefixes = 0
        if char == "?":
            self._emit("if", at)
            self._open(char)
            return
        self.at += 1
        if char == ".":
            self._emit(char, at)
        elif char == "|":
            self.pieces[level.slot] = "P("
            level.piped = True
            self._emit(",", at)
        elif char == ":" and level.opener == "?":
            self._close_segment()
            self.levels.pop()
            self._emit(") else", at)
        elif (char == ":" and level.opener in ("", "(")) or (char == "=" and level.opener != "("):
            hint = "use == to compare" if char == "=" else ""
            raise ExpressionSyntaxError(f"unexpected {char}", at, hint)
        else:
            self._close_segment()
            self._emit(char, at)
            self._open_segment()


def _loop_words(source: str) -> set[str]:
    """Return every word between a `for` and its `in`."""
    words = "".join(char if char == "_" or char.isalnum() else " " for char in source).split()
    found: set[str] = set()
    binding = False
    for word in words:
        if word in ("for", "in"):
            binding = word == "for"
        elif binding:
            found.add(word)
    return found


# The reader of a token by its first character. Only letters of other scripts can also begin a token.
_READERS: dict[str, Callable[[_Lexer], None]] = {
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", _Lexer._word),
    **dict.fromkeys("0123456789", _Lexer._number),
    **dict.fromkeys("([{)]}", _Lexer._bracket),
    **dict.fromkeys(",:|?=+-*/%<>!&", _Lexer._sign),
    **dict.fromkeys("\"'", _Lexer._quoted),
    ".": _Lexer._dot,
    "$": _Lexer._reference,
}


def expression_end(text: str, start: int) -> int:
    """Return the position of the `}}` that closes an expression beginning at `start`; -1 if it is not closed.

    Braces of objects and quoted text do not close it.
    """
    depth = 0
    mark = _QUOTE_OR_BRACE.search(text, start)
    while mark:
        char, at = mark[0], mark.start()
        if char == "{":
            depth += 1
        elif char == "}":
            if depth == 0 and text.startswith("}}", at):
                return at
            depth -= 1
        else:
            quoted = _QUOTED[char].match(text, at)
            if quoted is None:
                return -1
            at = quoted.end() - 1
        mark = _QUOTE_OR_BRACE.search(text, at + 1)
    return -1
