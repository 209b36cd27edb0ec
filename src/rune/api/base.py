"""The base of the response types: what a client tolerates in them, and how FastAPI documents them."""

from __future__ import annotations

from copy import copy
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

T = TypeVar("T")


class Known(msgspec.Struct, frozen=True):
    """`Annotated[str, Known(Literal["a", "b"])]`: the values that there are, which the OpenAPI document lists. A client
    also decodes others, which a newer server may send."""

    type: Any


class Absent(msgspec.Struct, frozen=True):
    """Makes the value of a field that a response does not have."""

    value: Any

    def __call__(self) -> Any:
        return copy(self.value)


def absent(default: T) -> T:
    """A field that every response has, and its value for a client whose server is older than the field.

    Type checkers require it where a view is made, unless the value is given by keyword.
    """
    made: T = msgspec.field(default_factory=Absent(default))
    return made


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field, absent))
class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all response types. msgspec encodes and decodes them, without unknown fields; FastAPI documents them
    through Pydantic."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return StructSchema().__get_pydantic_core_schema__(source, handler)


class StructSchema:
    """Tells Pydantic the fields of a msgspec struct: `Annotated[Problem, StructSchema()]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 - clients and `rune triggers` do without Pydantic

        fields = {}
        for field in msgspec.structs.fields(source):
            schema = handler.generate_schema(_described(field.type))
            if field.default is not msgspec.NODEFAULT:
                schema = core_schema.with_default_schema(schema, default=field.default)
            required = field.required or isinstance(field.default_factory, Absent)
            fields[field.encode_name] = core_schema.typed_dict_field(schema, required=required)
        name = f"{source.__module__}.{source.__qualname__}:{id(source)}"
        return core_schema.typed_dict_schema(fields, cls=source, ref=name)


def _described(kind: Any) -> Any:
    """Return a type in which each struct is replaced by one that Pydantic can describe."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind if issubclass(kind, View) else Annotated[kind, StructSchema()]
    origin = get_origin(kind)
    if origin is Annotated:
        return next(each.type for each in kind.__metadata__ if isinstance(each, Known))
    inner = tuple(_described(each) for each in get_args(kind))
    if origin is None or origin is Literal:
        return kind
    return Union[inner] if origin is UnionType else origin[inner]  # noqa: UP007 - the members are in a tuple
