"""The base of the response types, and how FastAPI documents them."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from rune.ports.clock import iso

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all response types. msgspec encodes them; FastAPI documents them through Pydantic."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return StructSchema().__get_pydantic_core_schema__(source, handler)


class StructSchema:
    """Tells Pydantic the fields of a msgspec struct: `Annotated[Problem, StructSchema()]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 - `rune triggers` needs the views without Pydantic

        fields = {}
        for field in msgspec.structs.fields(source):
            schema = handler.generate_schema(_described(field.type))
            if field.default is not msgspec.NODEFAULT:
                schema = core_schema.with_default_schema(schema, default=field.default)
            fields[field.encode_name] = core_schema.typed_dict_field(schema, required=field.required)
        name = f"{source.__module__}.{source.__qualname__}:{id(source)}"
        return core_schema.typed_dict_schema(fields, cls=source, ref=name)


def _described(kind: Any) -> Any:
    """Return a type in which each struct is replaced by one that Pydantic can describe."""
    if kind is msgspec.Raw:
        return Any
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind if issubclass(kind, View) else Annotated[kind, StructSchema()]
    origin, inner = get_origin(kind), tuple(_described(each) for each in get_args(kind))
    if origin is None or origin is Literal:
        return kind
    return Union[inner] if origin is UnionType else origin[inner]  # noqa: UP007 - the members are in a tuple


def moment(at: int) -> str:
    """Format epoch milliseconds as ISO 8601."""
    return iso(at) or ""
