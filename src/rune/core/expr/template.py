"""Templates: JSON values whose texts may contain references and expressions. They are compiled once and evaluated any
number of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rune.core.expr.budget import (
    MAX_BUILT_BYTES,
    MAX_JSON_DEPTH,
    BudgetError,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionSyntaxErrors,
    meter_of,
)
from rune.core.expr.expression import Resolver, compile_source
from rune.core.expr.lexer import expression_end
from rune.core.expr.names import Names, Reference, id_ends, known_references, path_at, root_at, unknown
from rune.core.expr.operators import fetch
from rune.core.expr.values import to_text, write_json

_MARK = re.compile(r"\$|\{\{")
_KEY_CHARS_TO_QUOTE = frozenset(' .[]"')


class Template:
    """A compiled template. `constant` is true if its value does not depend on the scope."""

    __slots__ = ("_resolver", "_value", "pure", "references")

    def __init__(
        self, value: Any, resolver: Resolver | None, references: list[Reference], pure: bool
    ) -> None:
        self.references: tuple[Reference, ...] = tuple(references)
        self.pure = pure
        self._value = value
        self._resolver = resolver

    @property
    def constant(self) -> bool:
        return self.pure and not self.references

    def resolve(self, scope: Mapping[str, Any]) -> Any:
        """Return the value with every text resolved once. Values from the scope are never resolved as templates.

        The result shares values with the scope and with later results and must not be modified.
        """
        return self._value if self._resolver is None else self._resolver(scope)


def compile_template(value: Any, names: Names, base: str = "") -> Template:
    """Compile a JSON value and raise all of its errors together.

    `base`, such as the name of a parameter, makes its generated identifiers differ from those of other templates.
    """
    compiler = _TemplateCompiler(names, base)
    resolved, resolver = compiler.compile(value, "", 0)
    if compiler.errors:
        raise ExpressionSyntaxErrors(compiler.errors)
    return Template(resolved, resolver, compiler.references, compiler.pure)


def is_dynamic(text: str, names: Names) -> bool:
    """Return whether a text contains an expression or a reference, or does not compile."""
    if _is_literal(text):
        return False
    compiler = _TemplateCompiler(names)
    return compiler.compile(text, "", 0)[1] is not None or bool(compiler.errors)


def _is_literal(value: Any) -> bool:
    """Return whether a value is constant without compiling it."""
    kind = type(value)
    if kind is str:
        return "$" not in value and "{{" not in value
    return kind is not list and kind is not dict


def _member_path(path: str, key: str) -> str:
    """Return the path of a member, such as `headers.accept` or `headers["a.b"]`."""
    if not key or not _KEY_CHARS_TO_QUOTE.isdisjoint(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


class _TemplateCompiler:
    """Compiles a value to a constant, or to a resolver if it depends on the scope."""

    def __init__(self, names: Names, base: str = "") -> None:
        self.errors: list[ExpressionSyntaxError] = []
        self.references: list[Reference] = []
        self.pure = True
        self._names = names
        # Quoted, so that two different pairs of base and path never give the same salt.
        self._base = repr(base) if base else ""

    def compile(self, value: Any, path: str, depth: int) -> tuple[Any, Resolver | None]:
        if _is_literal(value):
            return value, None
        kind = type(value)
        if kind is str:
            return self._text(value, path)
        if depth == MAX_JSON_DEPTH:
            problem = f"the value is nested too deeply (limit: {MAX_JSON_DEPTH})"
            self.errors.append(ExpressionSyntaxError(problem, 0, path=path))
            return value, None
        made = value.copy()
        parts: list[tuple[Any, Resolver, str]] = []
        members: Iterable[tuple[Any, Any]] = enumerate(value) if kind is list else value.items()
        for key, each in members:
            # Most members are literals and need no path.
            if not _is_literal(each):
                where = f"{path}[{key}]" if kind is list else _member_path(path, key)
                made[key], resolver = self.compile(each, where, depth + 1)
                if resolver is not None:
                    parts.append((key, resolver, where))
        return made, _Container(made, parts) if parts else None

    def _text(self, text: str, path: str) -> tuple[Any, Resolver | None]:
        try:
            parts = self._parts(text, path)
        except ExpressionSyntaxError as error:
            self.errors.append(error.moved(0, path))
            return text, None
        for part in parts:
            if type(part) is not str:
                return text, parts[0] if len(parts) == 1 else _interpolation(parts)
        return "".join(parts), None

    def _parts(self, text: str, path: str) -> list[Any]:
        """Split a text into literal pieces and resolvers."""
        parts: list[Any] = []
        plain = at = 0
        while mark := _MARK.search(text, at):
            at = mark.start()
            part, end = self._part(text, at, path)
            if part is None:
                at += 1
                continue
            if plain < at:
                parts.append(text[plain:at])
            parts.append(part)
            plain = at = end
        if plain == 0:
            self._refuse_unknown(text)
        if plain < len(text):
            parts.append(text[plain:])
        return parts

    def _part(self, text: str, at: int, path: str) -> tuple[Any, int]:
        """Return the part that begins at this mark, and its end; None if the mark is literal text."""
        if text[at] == "{":
            end = expression_end(text, at + 2)
            if end < 0:
                raise ExpressionSyntaxError("{{ is not closed", at, "}} is missing")
            return self._expression(text[at + 2 : end], at + 2, path), end + 2
        if text.startswith("$$", at):
            return "$", at + 2
        found = root_at(text, at, self._names)
        if found is None:
            return None, at
        keys, end = path_at(text, found[1])
        self.references.append(Reference(found[0], keys, False, at))
        return fetch(found[0], keys), end

    def _expression(self, source: str, start: int, path: str) -> Any:
        try:
            expression = compile_source(source, self._names, f"{self._base}{path}:{start}")
        except ExpressionSyntaxError as error:
            self.errors.append(error.moved(start, path))
            return ""
        self.pure = self.pure and expression.pure
        for each in expression.references:
            self.references.append(Reference(each.root, each.path, each.optional, each.offset + start))
        return expression.evaluate

    def _refuse_unknown(self, text: str) -> None:
        """Reject a text that is a single unknown reference: it is more likely a mistake than literal text."""
        ends = id_ends(text, 1) if text[:1] == "$" else []
        if not ends or not (text[1] == "_" or text[1].isalpha()):
            return
        _, end = path_at(text, ends[0])
        if end == len(text):
            word = text[: ends[0]]
            raise unknown(text if word == "$node" else word, 0, known_references(self._names))


class _Container:
    """Resolves a list or an object: copies the constant members and resolves the others."""

    __slots__ = ("_made", "_parts")

    def __init__(self, made: Any, parts: list[tuple[Any, Resolver, str]]) -> None:
        self._made = made
        self._parts = parts

    def __call__(self, scope: Mapping[str, Any]) -> Any:
        made = self._made.copy()
        for key, resolver, path in self._parts:
            try:
                made[key] = resolver(scope)
            except ExpressionError as error:
                # Only the innermost container adds the path of the text.
                if error.path:
                    raise
                raise error.within(path) from None
        return made


def _interpolation(parts: list[Any]) -> Resolver:
    def resolver(scope: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        size = 0
        for part in parts:
            value = part if type(part) is str else part(scope)
            text: str = value
            if type(value) is list or type(value) is dict:
                text = write_json(value, meter_of(scope), MAX_BUILT_BYTES - size)
            elif type(value) is not str:
                text = to_text(value)
            size += len(text)
            if size > MAX_BUILT_BYTES:
                raise BudgetError(f"the text is too long (limit: {MAX_BUILT_BYTES:,} bytes)")
            pieces.append(text)
        return "".join(pieces)

    return resolver
