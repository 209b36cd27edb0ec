"""Write workflows: as YAML and JSON text, which a loaded document keeps, and as the Python code that builds them, on
one line where it fits, else one argument or element per line.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import json
import keyword
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rune.build import nodes
from rune.build.code_check import IMPORTED, check_code
from rune.build.graph import COMMON, Comment, Comments, comment_text
from rune.build.nodes import KEYWORDS, TEXTS, WHOLE
from rune.core.definition.model import Definition, ErrorPolicy, HookHandler, Pin, Retry, Settings
from rune.core.definition.model import Edge as DefinedEdge
from rune.core.definition.model import Node as DefinedNode
from rune.core.definition.problems import DUPLICATE_ID, Problem
from rune.core.definition.strict_json import Decoded, decode_json
from rune.core.expr.names import ROOTS
from rune.core.limits import LIMITS
from rune.documents.textedit.document import Format, SourceText, TextEditError, guess_format
from rune.documents.textedit.updates import same, update
from rune.documents.textedit.writer import Writer
from rune.errors import InvalidDocumentError

if TYPE_CHECKING:
    from rune.build.flow import Workflow


_REFERENCE = re.compile(
    r"\$([A-Za-z0-9_-]+)((?:\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\]|\[\"[^\"\\]*\"\])*)\Z", re.ASCII
)
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[([0-9]+)\]|\[\"([^\"\\]*)\"\]", re.ASCII)
_BRACES = re.compile(r"\{\{ ((?:(?!\{\{|\}\}).)*) \}\}", re.DOTALL)
_MEMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_ROOTS = {
    "trigger": "trigger",
    "item": "item",
    "index": "index",
    "error": "error",
    "execution": "execution",
    "json": "payload",
}
# A number that Python reads, which has a limit of its own for the digits of an integer.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
# What Python takes as the encoding of a file if a comment of its first two lines holds it.
_ENCODING = re.compile(r"(coding)([:=])")
_MAX_EDGE_CHARS = 90
_BUILTINS = frozenset(dir(builtins))
_DIRECTIONS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})

WIDTH = 100
_MAX_TEXT_CHARS = 76
CONCATENATED = ")\0"  # the closing of texts next to each other, which no comma separates


def to_python(flow: Workflow) -> str:
    """Return the code; raise InvalidDocumentError if the document cannot be parsed or has two nodes with one id.

    The code is parsed again and built before it is returned: it holds constructors, names and literals only, and makes
    the same workflow. Text of the document never becomes code.
    """
    from rune.build.operations import build_source  # noqa: PLC0415 - it imports this package

    parsed = flow.parse()
    if parsed.definition is None or parsed.refused:
        raise InvalidDocumentError(parsed.problems)
    twice = _used_twice(parsed.definition)
    if twice:
        raise InvalidDocumentError(twice)
    code = _Emitter(flow, parsed.definition, parsed.places.edges).code()
    check_code(code, operators=False)
    if not same(build_source(code).definition, parsed.definition):
        raise AssertionError("the written Python code makes another workflow")
    return code


def _used_twice(definition: Definition) -> tuple[Problem, ...]:
    """Return a problem for each node whose id another node has: Python names nodes by id."""
    seen: set[str] = set()
    found: list[Problem] = []
    for at, node in enumerate(definition.nodes):
        if node.id in seen:
            found.append(
                Problem(f"nodes[{at}].id", DUPLICATE_ID, f"the id `{node.id}` is used twice", "rename one")
            )
        seen.add(node.id)
    return tuple(found)


class _Emitter:
    def __init__(self, flow: Workflow, definition: Definition, places: tuple[str, ...]) -> None:
        self._flow = flow
        self._definition = definition
        self._places = places
        self._imports = {"Workflow"}
        self._names: dict[str, str] = {}
        self._made: set[str] = set()
        self._taken = {"flow", *IMPORTED, *_BUILTINS}
        self._policies = {each.id: each.error for each in definition.nodes}
        self._error_edges: dict[str, list[str]] = {}
        for edge in definition.edges:
            if edge.is_error:
                self._error_edges.setdefault(edge.src, []).append(edge.id)

    def code(self) -> str:
        definition = self._definition
        for node in definition.nodes:
            self._names[node.id] = self._free_name(node.id)
        body = [line for node in definition.nodes for line in self._node(node)]
        edges = list(self._edges())
        head = self._workflow()
        lines = comment_lines(self._flow.comments.header)
        if lines:
            lines.append("")
        lines.append(self._import_line())
        lines += ["", *head, "with flow:", *(body or ["    pass"])]
        if edges:
            lines += ["", *edges]
        return "\n".join(lines) + "\n"

    def _import_line(self) -> str:
        names = sorted(self._imports, key=_import_order)
        line = f"from rune.build import {', '.join(names)}"
        if len(line) <= 110:
            return line
        return "from rune.build import (\n" + "".join(f"    {name},\n" for name in names) + ")"

    def _free_name(self, id: str) -> str:
        wanted = re.sub(r"\W", "_", id, flags=re.ASCII)
        if not wanted.isidentifier() or wanted.startswith("_"):
            wanted = f"node_{wanted.strip('_')}".rstrip("_")
        if keyword.iskeyword(wanted) or keyword.issoftkeyword(wanted) or wanted in self._taken:
            wanted += "_"
        found, count = wanted, 1
        while found in self._taken:
            count += 1
            found = f"{wanted}{count}"
        self._taken.add(found)
        return found

    def _workflow(self) -> list[str]:
        definition = self._definition
        fields: dict[str, Code] = {}
        if definition.name:
            fields["name"] = text(definition.name)
        if definition.inputs is not None:
            fields["inputs"] = literal(definition.inputs)
        if definition.settings != Settings():
            fields["settings"] = self._settings(definition.settings)
        for name in ("metadata", "notes"):
            value = getattr(definition, name)
            if value is not None:
                fields[name] = literal(value)
        return call("flow = Workflow", [text(definition.id)], fields).lines(0)

    def _settings(self, settings: Settings) -> Code:
        self._imports.add("Settings")
        given: dict[str, Any] = msgspec.to_builtins(settings)
        fields = {name: literal(_number(value)) for name, value in given.items()}
        for name in given:
            handler = getattr(settings, name)
            if isinstance(handler, HookHandler):
                fields[name] = self._handler(handler)
        return call("Settings", [], fields)

    def _handler(self, handler: HookHandler) -> Code:
        given: dict[str, Any] = msgspec.to_builtins(handler)
        workflow = text(given.pop("workflow"))
        if not given:
            return workflow
        self._imports.add("Handler")
        return call("Handler", [workflow], {name: literal(value) for name, value in given.items()})

    def _node(self, node: DefinedNode) -> list[str]:
        comment = self._flow.comments.nodes.get(node.id, Comment())
        target = f"{self._names[node.id]} = "
        common = self._common(node)
        keywords = KEYWORDS.get(node.type)
        if keywords is not None and _required(node.type) <= node.parameters.keys() <= keywords.keys():
            self._imports.add(node.type)
            # In the order of the constructor, which is the order in which the built workflow has them.
            fields = {
                keyword: self._parameter(node.type, name, node.parameters[name])
                for name, keyword in keywords.items()
                if name in node.parameters
            }
            made = call(f"{target}{node.type}", [text(node.id)], {**fields, **common})
        else:
            self._imports.add("node")
            arguments = [text(node.id), text(node.type)]
            if node.parameters:
                arguments.append(self._value(node.parameters))
            made = call(f"{target}node", arguments, common)
        self._made.add(node.id)
        return _commented(made.lines(4), comment, 4)

    def _common(self, node: DefinedNode) -> dict[str, Code]:
        found: dict[str, Code] = {}
        defaults = DefinedNode(id="", type="")
        for name in COMMON:
            value = getattr(node, name)
            if value == getattr(defaults, name) and type(value) is type(getattr(defaults, name)):
                continue
            found[name] = self._field(node, name, value)
        order = {name: at for at, name in enumerate(DefinedNode.__struct_fields__)}
        kept = {name: each for name, each in found.items() if each.parts}
        return dict(sorted(kept.items(), key=lambda item: order[item[0]]))

    def _field(self, node: DefinedNode, name: str, value: Any) -> Code:
        if isinstance(value, Retry):
            self._imports.add("Retry")
            given: dict[str, Any] = msgspec.to_builtins(value)
            first = [literal(given.pop("max_attempts"))] if "max_attempts" in given else []
            return call("Retry", first, {key: literal(_number(each)) for key, each in given.items()})
        if isinstance(value, ErrorPolicy):
            return self._policy(node, value)
        if isinstance(value, Pin):
            return literal(msgspec.to_builtins(value))
        if name == "credentials" and isinstance(value, Mapping) and value.keys() == {"name"}:
            return text(value["name"])
        return literal(_number(value) if name == "timeout" else value)

    def _policy(self, node: DefinedNode, policy: ErrorPolicy) -> Code:
        """Return the error policy; nothing if `on_error` of the node implies it."""
        if policy.type == "branch" and self._error_edges.get(node.id) == [policy.error_edge]:
            return Code(())
        if policy.error_edge is None:
            return text(policy.type)
        return literal(msgspec.to_builtins(policy))

    def _parameter(self, type: str, name: str, value: Any) -> Code:
        if name in WHOLE.get(type, ()) and isinstance(value, str):
            return self._reference(value) or text(value)
        return self._value(value, plain_text=name in TEXTS.get(type, ()))

    def _value(self, value: Any, *, plain_text: bool = True) -> Code:
        if isinstance(value, str):
            return self._text(value, plain_text=plain_text)
        if isinstance(value, dict):
            return Code.of_dict({key: self._value(each) for key, each in value.items()})
        if isinstance(value, list):
            return Code.of_list([self._value(each) for each in value])
        return literal(value)

    def _text(self, value: str, *, plain_text: bool) -> Code:
        if "$" not in value and "{{" not in value:
            return text(value)
        found = self._reference(value)
        if found is not None:
            return found
        whole = _BRACES.fullmatch(value)
        if whole is not None and whole[1] == whole[1].strip() and whole[1]:
            self._imports.add("expr")
            return call("expr", [text(whole[1])], {})
        formatted = self._formatted(value)
        if formatted is not None:
            return formatted
        if plain_text:
            return text(value)
        self._imports.add("template")
        return call("template", [text(value)], {})

    def _reference(self, value: str) -> Code | None:
        """Return the Python reference for a text that is one reference to something made before."""
        found = self._python_reference(value)
        return Code((found,)) if found is not None else None

    def _python_reference(self, value: str) -> str | None:
        matched = _REFERENCE.match(value)
        if matched is None:
            return None
        root = matched[1]
        if root in _ROOTS:
            start = f"flow.{_ROOTS[root]}"
        elif root in self._made and root not in ROOTS:
            start = f"{self._names[root]}.out"
        else:
            return None
        steps = ""
        for step in _STEP.finditer(matched[2]):
            name, index, key = step[1], step[2], step[3]
            if name is not None and not name.startswith("_") and not keyword.iskeyword(name):
                steps += f".{name}"
            elif name is not None and not name.startswith("__"):
                steps += f'["{name}"]'
            elif index is not None and _NUMBER.fullmatch(index):
                steps += f"[{index}]"
            elif key is not None and not _MEMBER.match(key) and key.isprintable():
                steps += f'["{key}"]'
            else:
                return None
        return start + steps

    def _formatted(self, value: str) -> Code | None:
        """Return an f-string for a text whose expressions are all references; None for any other text."""
        pieces: list[str] = []
        at = 0
        for found in _BRACES.finditer(value):
            reference = self._python_reference(found[1])
            if reference is None or '"' in reference:
                return None
            pieces += (_escaped_in_format(value[at : found.start()]), f"{{{reference}}}")
            at = found.end()
        rest = value[at:]
        if not pieces or "{{" in rest or any("{{" in piece[:-1] for piece in pieces[::2]):
            return None
        line = f'f"{"".join(pieces)}{_escaped_in_format(rest)}"'
        return Code((line,)) if len(line) <= 80 and line.isprintable() else None

    def _edges(self) -> Iterator[str]:
        """Yield the statements of the edges, in order; plain edges next to each other share one where they can."""
        plain: list[tuple[str, str]] = []
        raw = self._flow.data.get("edges") or []
        for at, edge in enumerate(self._definition.edges):
            place = self._places[at]
            index = int(place[6:-1]) if place.startswith("edges[") else -1
            given = raw[index].get("id") if index >= 0 else None
            comment = self._flow.comments.edges.get(index, Comment())
            statement = self._edge(edge, given)
            ends = self._names.get(edge.src, ""), self._names.get(edge.dst, "")
            if not comment and statement == " >> ".join(ends):
                plain.append(ends)
                continue
            yield from _joined(plain)
            plain = []
            yield from _commented([statement], comment, 0)
        yield from _joined(plain)

    def _edge(self, edge: DefinedEdge, id: str | None) -> str:
        src, dst = self._names.get(edge.src), self._names.get(edge.dst)
        policy = self._policies.get(edge.src)
        branches = policy is not None and (
            edge.is_error or not policy.error_edge or policy.error_edge != edge.id
        )
        if src is None or dst is None or (edge.is_error and (not branches or edge.label is not None)):
            fields = {
                name: literal(value)
                for name, value in (("label", edge.label), ("id", id), ("is_error", edge.is_error))
                if value not in (None, False)
            }
            return "".join(call("flow.edge", [text(edge.src), text(edge.dst)], fields).lines(0))
        start = src
        if edge.is_error:
            start += ".on_error"
        elif edge.label == "fallback":
            start += ".fallback"
        elif edge.label is not None:
            number = edge.label.removeprefix("case_")
            is_case = number != edge.label and _NUMBER.fullmatch(number)
            start += f".case({number})" if is_case else f"[{''.join(text(edge.label).lines(0))}]"
        if id is not None:
            start += f".named({''.join(text(id).lines(0))})"
        return f"{start} >> {dst}"


@functools.cache
def _required(type: str) -> frozenset[str]:
    """Return the parameters without which the constructor of a type cannot be called."""
    signature = inspect.signature(getattr(nodes, type))
    return frozenset(
        name
        for name, keyword in KEYWORDS[type].items()
        if signature.parameters[keyword].default is inspect.Parameter.empty
    )


def _joined(edges: list[tuple[str, str]]) -> Iterator[str]:
    """Yield statements for plain edges: chains, `a >> [b, c]` and `[a, b] >> c`, whichever covers most edges."""
    at = 0
    while at < len(edges):
        src, dst = edges[at]
        chain = _run(edges, at, lambda one, two: two[0] == one[1])
        fan = _run(edges, at, lambda one, two: two[0] == one[0])
        join = _run(edges, at, lambda one, two: two[1] == one[1])
        if len(chain) >= max(len(fan), len(join)):
            yield " >> ".join([src, *(each[1] for each in chain)])
            at += len(chain)
        elif len(fan) >= len(join):
            yield f"{src} >> [{', '.join(each[1] for each in fan)}]"
            at += len(fan)
        else:
            yield f"[{', '.join(each[0] for each in join)}] >> {dst}"
            at += len(join)


def _run(
    edges: list[tuple[str, str]], start: int, follows: Callable[[tuple[str, str], tuple[str, str]], bool]
) -> list[tuple[str, str]]:
    """Return the edges from a position on of which each follows the one before, as far as a line holds them."""
    found = [edges[start]]
    chars = 0
    for at in range(start + 1, len(edges)):
        chars += sum(map(len, found[-1]))
        if not follows(found[-1], edges[at]) or chars > _MAX_EDGE_CHARS:
            break
        found.append(edges[at])
    return found


def _import_order(name: str) -> tuple[int, str]:
    """Order imported names as isort does: constants, classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _escaped_in_format(piece: str) -> str:
    """Return a piece of text inside of an f-string in double quotes."""
    return escaped(piece).replace("{", "{{").replace("}", "}}")


def _number(value: Any) -> Any:
    """Return whole numbers without a decimal point: these fields are read as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _commented(lines: list[str], comment: Comment, indent: int) -> list[str]:
    trailing = comment_lines([comment.trailing] if comment.trailing else [])
    if len(trailing) == 1:
        lines = [*lines[:-1], f"{lines[-1]}  {trailing.pop()}"]
    return [*(" " * indent + line for line in (*comment_lines(comment.lead), *trailing)), *lines]


def comment_lines(comments: Sequence[str]) -> list[str]:
    """Return comments as lines of Python or YAML. No character of them ends a line or hides what follows it, and none
    of them names the encoding of a file."""
    lines = [line for comment in comments for line in comment.splitlines() or [""]]
    return [f"# {_ENCODING.sub(_spaced, ''.join(map(_visible, line)))}".rstrip() for line in lines]


def _spaced(found: re.Match[str]) -> str:
    return f"{found[1]} {found[2]}"


def _visible(character: str) -> str:
    """Return a character as a comment shows it: escaped if it controls a terminal or the direction of text."""
    if character == "\t" or not (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(character) in _DIRECTIONS
    ):
        return character
    return repr(character)[1:-1]


class Code:
    """A piece of code: an atom, or an opening, its elements and a closing."""

    __slots__ = ("closer", "opener", "parts", "prefixes")

    def __init__(
        self, parts: Sequence[Any], opener: str = "", closer: str = "", prefixes: Sequence[str] = ()
    ) -> None:
        self.parts = tuple(parts)
        self.opener = opener
        self.closer = closer
        self.prefixes = tuple(prefixes) or ("",) * len(self.parts)

    @classmethod
    def of_list(cls, elements: Sequence[Code]) -> Code:
        return cls(elements, "[", "]") if elements else cls(("[]",))

    @classmethod
    def of_dict(cls, items: Mapping[str, Code]) -> Code:
        if not items:
            return cls(("{}",))
        return cls(list(items.values()), "{", "}", [f"{quoted(key)}: " for key in items])

    def lines(self, indent: int, prefix: str = "", suffix: str = "") -> list[str]:
        """Return the lines of this code, the first one after `prefix`."""
        margin = " " * indent
        flat = self.flat()
        if flat is not None and len(margin + prefix + flat + suffix) <= WIDTH:
            return [f"{margin}{prefix}{flat}{suffix}"]
        if not self.opener:
            return [f"{margin}{prefix}{self.parts[0]}{suffix}"]
        found = [f"{margin}{prefix}{self.opener}"]
        for name, part in zip(self.prefixes, self.parts, strict=True):
            # Texts next to each other are one text; a comma would separate them.
            found += part.lines(indent + 4, name, "" if self.closer == CONCATENATED else ",")
        return [*found, f"{margin}{self.closer.rstrip(chr(0))}{suffix}"]

    def flat(self) -> str | None:
        """Return this code on one line; None if it has to be broken."""
        if not self.opener:
            return str(self.parts[0])
        if self.closer == CONCATENATED:
            return None
        inner = [part.flat() for part in self.parts]
        if any(each is None for each in inner):
            return None
        joined = ", ".join(f"{name}{each}" for name, each in zip(self.prefixes, inner, strict=True))
        return f"{self.opener}{joined}{self.closer}"


def call(function: str, arguments: Sequence[Code], keywords: Mapping[str, Code]) -> Code:
    """Return a call."""
    if not arguments and not keywords:
        return Code((f"{function}()",))
    prefixes = [*("" for _ in arguments), *(f"{name}=" for name in keywords)]
    return Code([*arguments, *keywords.values()], f"{function}(", ")", prefixes)


def literal(value: Any) -> Code:
    """Return plain data as code."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return Code.of_dict({key: literal(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return Code.of_list([literal(each) for each in value])
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return Code((repr(value),))
    raise TypeError(f"a document holds no {type(value).__name__} such as {value!r}")


def text(value: str) -> Code:
    """Return a text as code; a long one as several texts next to each other, broken after line breaks and spaces."""
    if len(value) <= _MAX_TEXT_CHARS and "\n" not in value[:-1]:
        return Code((quoted(value),))
    pieces = [piece for line in value.splitlines(keepends=True) for piece in _pieces(line)]
    if len(pieces) == 1:
        return Code((quoted(value),))
    return Code([Code((quoted(each),)) for each in pieces], "(", CONCATENATED)


def _pieces(line: str) -> list[str]:
    found: list[str] = []
    while len(line) > _MAX_TEXT_CHARS:
        cut = line.rfind(" ", 1, _MAX_TEXT_CHARS)
        cut = _MAX_TEXT_CHARS if cut < 0 else cut + 1
        found.append(line[:cut])
        line = line[cut:]
    return [*found, line] if line else found


def quoted(value: str) -> str:
    """Return a text literal, with the quotes that a formatter would choose."""
    quote = "'" if '"' in value and "'" not in value else '"'
    return f"{quote}{escaped(value, quote)}{quote}"


def escaped(value: str, quote: str = '"') -> str:
    """Return a text as it stands between quotes: the only place where text of a document becomes part of code."""
    if not value.isprintable():
        return "".join(escaped(each, quote) if each.isprintable() else repr(each)[1:-1] for each in value)
    return value.replace("\\", "\\\\").replace(quote, f"\\{quote}")


_WRITER = Writer()


@dataclasses.dataclass(frozen=True)
class SourceDocument:
    """The text that a workflow was loaded from, and what was read from it."""

    text: str
    format: Format
    value: Any
    problems: tuple[Problem, ...]

    @classmethod
    def read(cls, text: str, suffix: str | None) -> SourceDocument:
        """Read a text as JSON or YAML, by its suffix or by how it begins."""
        format: Format = guess_format(text) if suffix is None else "json" if suffix == "json" else "yaml"
        decoded = _decode(text, format)
        if suffix is None and format == "json" and any(each.code == "NOT_JSON" for each in decoded.problems):
            format, decoded = "yaml", _decode(text, "yaml")
        return cls(text, format, decoded.value, decoded.problems)

    @property
    def data(self) -> dict[str, Any]:
        """The document as plain data; empty if it could not be read."""
        return self.value if isinstance(self.value, dict) else {}

    def is_unchanged(self, data: dict[str, Any]) -> bool:
        return same(data, self.data)

    def comments(self) -> Comments:
        """Return the comments at nodes and edges."""
        if self.format == "json" or self.problems or not self.data:
            return Comments()
        return _comments(SourceText(self.text, "yaml"))


def _decode(text: str, format: Format) -> Decoded:
    if format == "json":
        return decode_json(text, max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)
    from rune.documents.yaml import decode_yaml  # noqa: PLC0415 - a slow import that JSON does not need

    return decode_yaml(text, max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)


def _edited(data: dict[str, Any], source: SourceDocument | None, format: Format) -> str | None:
    """Return the text of the source with the changes applied; None if it has to be written anew."""
    if source is None or source.format != format:
        return None
    if source.is_unchanged(data):
        return source.text
    try:
        return update(source.text, data, format)
    except TextEditError:
        return None


def to_json(data: dict[str, Any], source: SourceDocument | None) -> str:
    """Return a document as JSON."""
    edited = _edited(data, source, "json")
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n" if edited is None else edited


def to_yaml(data: dict[str, Any], source: SourceDocument | None, comments: Comments) -> str:
    """Return a document as YAML."""
    edited = _edited(data, source, "yaml")
    return _write(data, comments) if edited is None else edited


def _write(data: dict[str, Any], comments: Comments) -> str:
    blocks: list[str] = []
    fields: list[str] = []
    for key, value in data.items():
        listed = isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
        if key == "edges" and value == []:
            continue
        if key == "nodes" and listed:
            elements = [
                _element(each, comments.nodes.get(str(each.get("id")), Comment()), inline=False)
                for each in value
            ]
            blocks.append("nodes:\n" + "\n\n".join(elements))
        elif key == "edges" and listed:
            edges = [
                _element(each, comments.edges.get(at, Comment()), inline=True)
                for at, each in enumerate(value)
            ]
            blocks.append("edges:\n" + "\n".join(edges))
        elif isinstance(value, dict | list) and value and not _WRITER.fits_inline(value, len(key) + 2):
            blocks.append(_WRITER.block({key: value}, 0))
        else:
            fields.append(_WRITER.block({key: value}, 0))
    if not data:
        return "{}\n"
    header = "".join(f"{line}\n" for line in comment_lines(comments.header))
    top = "\n".join(fields)
    return header + "\n\n".join(each for each in (top, *blocks) if each) + "\n"


def _element(data: dict[str, Any], comment: Comment, *, inline: bool) -> str:
    first, _, rest = _WRITER.element(data, 2, inline=inline).partition("\n")
    return "\n".join([*_commented([f"  {first}"], comment, 2), *([rest] if rest else [])])


def _comments(source: SourceText) -> Comments:
    """Assign the comments of a document to its nodes and edges."""
    found = Comments()
    owners: dict[int, tuple[Comment, bool]] = {}
    for name in ("nodes", "edges"):
        part = source.root.at((name,))
        if part is None or part.kind != "list":
            continue
        for at, entry in enumerate(part.entries):
            comment = Comment()
            data = entry.part.plain()
            if name == "edges":
                found.edges[at] = comment
            elif isinstance(data, dict) and isinstance(data.get("id"), str):
                found.nodes[data["id"]] = comment
            else:
                continue
            if part.style == "block" and source.begins_line(entry.start):
                _own_lines(source, entry.start, source.chunk(entry)[0], comment, owners)
    first = source.root.entries[0].start if source.root.entries else 0
    in_header = True
    for at, text in source.comments():
        line = source.line_start(at)
        in_header = in_header and at < first
        if in_header:
            found.header.append(comment_text(text))
        elif line in owners:
            comment, above = owners[line]
            if above:
                comment.lead.append(comment_text(text))
            else:
                comment.trailing = comment_text(text)
        else:
            found.others.append((source.text.count("\n", 0, at) + 1, text))
    found.nodes = {id: each for id, each in found.nodes.items() if each}
    found.edges = {at: each for at, each in found.edges.items() if each}
    return found


def _own_lines(
    source: SourceText, start: int, top: int, comment: Comment, owners: dict[int, tuple[Comment, bool]]
) -> None:
    """Note which lines carry the comments of an entry: those above it, and its first one."""
    line = top
    while line < source.line_start(start):
        owners[line] = (comment, True)
        line = source.line_end(line)
    owners[source.line_start(start)] = (comment, False)
