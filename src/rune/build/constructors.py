"""Write the module of constructors for node types: one typed function per type."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from rune.build.graph import COMMON

_HEADER = '''"""{source}"""

from __future__ import annotations

{imports}

'''
_SIMPLE: dict[Any, str] = {
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BoolType: "bool",
    inspect.NoneType: "None",
    inspect.AnyType: "Any",
}
_JSON_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list[Any]",
    "object": "dict[str, Any]",
    "null": "None",
}
_WORD = re.compile(r"[^A-Za-z0-9]+")
_MAX_DOC_CHARS = 100
_MAX_LITERALS = 7


class _Parameter(msgspec.Struct):
    name: str
    keyword: str
    annotation: str
    required: bool
    description: str
    takes_text: bool


class ConstructorWriter:
    """Writes the constructors of some node types as the text of a module."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._aliases: dict[str, str] = {}
        self._dicts: dict[str, str] = {}
        self._classes: dict[str, str] = {}
        self._functions: list[str] = []
        self._keywords: dict[str, dict[str, str]] = {}
        self._texts: dict[str, list[str]] = {}
        self._whole: dict[str, list[str]] = {}

    def add(self, kind: Any) -> None:
        """Add the constructor of a node type."""
        type = kind.type
        struct = inspect.type_info(kind.parameters)
        assert isinstance(struct, inspect.StructType)
        prefix = "".join(word.capitalize() for word in _WORD.split(type.name))
        found = [
            self._parameter(each, prefix, type.kinds.get(each.encode_name, "template"), kind.lax)
            for each in struct.fields
        ]
        found.sort(key=lambda each: not each.required)
        self._keywords[type.name] = {each.name: each.keyword for each in found}
        self._texts[type.name] = [each.name for each in found if each.takes_text]
        self._whole[type.name] = [
            each.name for each in found if type.kinds.get(each.name) in {"expression", "element"}
        ]
        made = "Split" if type.fans_out else self._node_class(type, prefix)
        self._functions.append(self._function(type, found, made))

    def _node_class(self, type: Any, prefix: str) -> str:
        """Return the class of the nodes of a type: one whose `out` is typed if the output is described."""
        schema = type.output_schema
        if not schema:
            return "Node"
        name, output = f"{prefix}Node", _python_type(schema)
        text = ""
        fields = {each: field for each, field in schema.get("properties", {}).items() if _is_attribute(each)}
        if fields:
            output = f"{prefix}Output"
            members = "".join(f"    {each}: Ref[{_python_type(field)}]\n" for each, field in fields.items())
            text = (
                f'class {output}(Ref[dict[str, Any]]):\n    """The output of a node of type `{type.name}`."""\n\n'
                f"    __slots__ = ()\n\n{members}\n\n"
            )
        result, call = (output, output) if fields else (f"Ref[{output}]", "Ref")
        self._classes[name] = text + (
            f'class {name}(Node):\n    """A node of type `{type.name}`."""\n\n    __slots__ = ()\n\n'
            f'    @property\n    def out(self) -> {result}:\n        return {call}(f"${{self.id}}")\n'
        )
        return name

    def _parameter(self, field: Any, prefix: str, kind: str, lax: bool) -> _Parameter:
        description = ""
        if isinstance(field.type, inspect.Metadata):
            description = (field.type.extra_json_schema or {}).get("description", "")
        name = field.encode_name
        taken = name in COMMON or name == "id" or keyword.iskeyword(name)
        parts = self._parts(field.type, prefix, lax, name)
        if kind != "literal":
            parts.append("Expr")
        return _Parameter(
            name,
            f"{name}_" if taken else name,
            _union(parts),
            field.required,
            description,
            "str" in parts or "Any" in parts,
        )

    def _parts(self, type: Any, prefix: str, lax: bool = False, name: str = "") -> list[str]:
        """Return the members of the union that annotates a type."""
        if isinstance(type, inspect.Metadata):
            return self._parts(type.type, prefix, lax, name)
        if isinstance(type, inspect.UnionType):
            members = [part for each in type.types for part in self._parts(each, prefix, lax, name)]
            return list(dict.fromkeys(members))
        simple = next((text for kind, text in _SIMPLE.items() if isinstance(type, kind)), None)
        if simple is not None:
            return [simple, "str"] if lax and simple in {"int", "float", "bool"} else [simple]
        if isinstance(type, inspect.LiteralType):
            values = sorted(type.values, key=repr)
            text = f"Literal[{', '.join(_quoted(each) for each in values)}]"
            return [self._alias(text, name)] if len(values) > _MAX_LITERALS else [text]
        if isinstance(type, inspect.CollectionType):
            return [f"Sequence[{self._inner(type.item_type, prefix)}]"]
        if isinstance(type, inspect.DictType):
            return [f"Mapping[str, {self._inner(type.value_type, prefix)}]"]
        if isinstance(type, inspect.StructType):
            return [self._typed_dict(type, prefix)]
        if type.__class__.__name__ == "UnsetType":
            return []
        return ["Any"]

    def _alias(self, text: str, name: str) -> str:
        """Return the name of a long literal type, which several types use."""
        wanted = name.capitalize()
        found, count = wanted, 1
        while self._aliases.setdefault(found, text) != text:
            count += 1
            found = f"{wanted}{count}"
        return found

    def _inner(self, type: Any, prefix: str, name: str = "") -> str:
        parts = self._parts(type, prefix, name=name)
        return _union(parts if parts == ["Any"] else [*parts, "Expr"])

    def _typed_dict(self, struct: Any, prefix: str) -> str:
        name = prefix + str(struct.cls.__name__).lstrip("_")
        if name not in self._dicts:
            self._dicts[name] = ""
            fields = {
                each.encode_name: (
                    self._inner(each.type, prefix, each.encode_name)
                    if each.required
                    else f"NotRequired[{self._inner(each.type, prefix, each.encode_name)}]"
                )
                for each in struct.fields
            }
            self._dicts[name] = _typed_dict_text(name, fields)
        return name

    def _function(self, type: Any, parameters: Sequence[_Parameter], result: str) -> str:
        lines = [f"def {_WORD.sub('_', type.name)}(", "    id: str,", "    /,"]
        if parameters:
            lines.append("    *,")
        lines += [
            f"    {each.keyword}: {each.annotation}{'' if each.required else ' = UNSET'},"
            for each in parameters
        ]
        lines += ["    **common: Unpack[Common],", f") -> {result}:", *self._docstring(type, parameters)]
        given = ", ".join(f"{_quoted(each.name)}: {each.keyword}" for each in parameters)
        options = ""
        whole = self._whole[type.name]
        if whole:
            options += f", expressions=({', '.join(map(_quoted, whole))},)"
        if result != "Node":
            options += f", make={result}"
        lines.append(f"    made: {result} = place({_quoted(type.name)}, id, {{{given}}}, common{options})")
        lines.append("    return made")
        return "\n".join(lines) + "\n"

    def _docstring(self, type: Any, parameters: Sequence[_Parameter]) -> list[str]:
        text = [type.summary or f"Places a node of type `{type.name}`."]
        if type.doc and type.doc != type.summary:
            text += ["", type.doc]
        if parameters:
            text.append("")
            text += [f"{each.keyword}: {each.description}".rstrip(": ") for each in parameters]
        if type.output:
            text += ["", f"Output: {type.output}"]
        if type.errors:
            text.append("")
            text += [f"{code}: {when}" for code, when in type.errors.items()]
        wrapped = [
            piece
            for line in text
            for piece in (textwrap.wrap(line, _MAX_DOC_CHARS, subsequent_indent=_hanging(line)) or [""])
        ]
        escaped = [line.replace("\\", "\\\\").replace('"""', "'''") for line in wrapped]
        if len(escaped) == 1:
            return [f'    """{escaped[0]}"""']
        return [
            f'    """{escaped[0]}',
            *(f"    {line}".rstrip() for line in escaped[1:]),
            '    """',
        ]

    def text(self) -> str:
        """Return the text of the module."""
        aliases = "".join(f"{name} = {text}\n" for name, text in self._aliases.items())
        body = "\n\n".join(
            [
                *([aliases] if aliases else []),
                *self._dicts.values(),
                *self._classes.values(),
                *self._functions,
            ]
        )
        tables = "".join(
            f"\n{name}: {annotation} = {_table(table)}\n"
            for name, annotation, table in (
                ("KEYWORDS", "Mapping[str, Mapping[str, str]]", self._keywords),
                ("TEXTS", "Mapping[str, Sequence[str]]", self._texts),
                ("WHOLE", "Mapping[str, Sequence[str]]", self._whole),
            )
        )
        return (
            _HEADER.format(source=self._source, imports=self._imports(body + tables)) + body + "\n" + tables
        )

    def _imports(self, body: str) -> str:
        def used(*names: str) -> list[str]:
            return [name for name in names if re.search(rf"\b{name}\b", body)]

        lines = [f"from collections.abc import {', '.join(used('Mapping', 'Sequence'))}"]
        lines.append(
            f"from typing import {', '.join(used('Any', 'Literal', 'NotRequired', 'TypedDict', 'Unpack'))}"
        )
        lines.append("")
        if used("Expr", "Ref"):
            lines.append(f"from rune.build.expressions import {', '.join(used('Expr', 'Ref'))}")
        lines.append(
            f"from rune.build.graph import {', '.join(used('UNSET', 'Common', 'Node', 'Split', 'place'))}"
        )
        return "\n".join(lines)


def constructors(kinds: Iterable[Any], source: str) -> str:
    """Return the module with the constructors of node types. `source` is its docstring."""
    writer = ConstructorWriter(source)
    for kind in kinds:
        writer.add(kind)
    return writer.text()


def _is_attribute(name: str) -> bool:
    """Return whether a field of an output can be read as an attribute, without a method of expressions in its way."""
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def _python_type(schema: Mapping[str, Any]) -> str:
    """Return the Python type of the values that a JSON Schema describes."""
    kinds = schema.get("type")
    if kinds is None:
        return "Any"
    names = [_JSON_TYPES.get(each, "Any") for each in (kinds if isinstance(kinds, list) else [kinds])]
    return "Any" if "Any" in names else " | ".join(names)


def _typed_dict_text(name: str, fields: Mapping[str, str]) -> str:
    """Return the class of a typed dictionary, or its functional form if a key is no identifier."""
    if all(key.isidentifier() and not keyword.iskeyword(key) for key in fields):
        body = "".join(f"    {key}: {each}\n" for key, each in fields.items())
        return f"class {name}(TypedDict):\n{body}"
    body = "".join(f"        {_quoted(key)}: {each},\n" for key, each in fields.items())
    return f'{name} = TypedDict(\n    "{name}",\n    {{\n{body}    }},\n)\n'


def _hanging(line: str) -> str:
    """Return the indentation of the further lines of `name: text`."""
    return "    " if re.match(r"\w+: ", line) else ""


def _union(parts: Sequence[str]) -> str:
    found = list(dict.fromkeys(parts))
    if "Any" in found:
        return "Any"
    if "None" in found:
        found = [*(each for each in found if each != "None"), "None"]
    return " | ".join(found)


def _quoted(value: Any) -> str:
    return (
        '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)
    )


def _table(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)}: {_table(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        inner = ", ".join(_quoted(each) for each in value)
        return f"({inner},)" if value else "()"
    return _quoted(value)
