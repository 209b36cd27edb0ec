"""The source document of an import, which remembers the fields that were read.

A field that no importer looked at cannot have been imported, whatever the report says of what is around it. `unread`
finds such fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from rune.core.definition.strict_json import join


class SourceObject(dict[str, Any]):
    """An object of the source. Looking a field up reads it; asking whether there is one does not."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.fields_read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.fields_read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.fields_read.add(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:  # also makes a copy of the object read its fields one by one
        return super().__iter__()

    def items(self) -> Any:  # a view, whose type is private to `dict`
        self.fields_read.update(super().keys())
        return super().items()

    def values(self) -> Any:
        self.fields_read.update(super().keys())
        return super().values()


def observed(value: Any) -> Any:
    """Return a JSON value whose objects remember what was read of them."""
    if isinstance(value, dict):
        return SourceObject({key: observed(each) for key, each in value.items()})
    if isinstance(value, list):
        return [observed(each) for each in value]
    return value


def plain(value: Any) -> Any:
    """Return a JSON value without the memory of what was read; this reads nothing."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in dict.items(value)}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def without(fields: dict[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return an object without some of its fields; this reads none."""
    found = {key: each for key, each in dict.items(fields) if key not in keys}
    if not isinstance(fields, SourceObject):
        return found
    kept = SourceObject(found)
    kept.fields_read = fields.fields_read
    return kept


def ignore(fields: Any, *keys: str) -> None:
    """Say of fields that they have no effect."""
    if isinstance(fields, SourceObject):
        fields.fields_read.update(keys)


def unread(path: str, value: Any) -> Iterator[str]:
    """Yield the paths of the outermost fields below a path that were not read. Nulls hold no content."""
    waiting = [(path, value)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, SourceObject):
            for key, each in dict.items(part):
                inner = join(place, key)
                if key in part.fields_read:
                    waiting.append((inner, each))
                elif each is not None:
                    yield inner
        elif isinstance(part, list):
            waiting += [(f"{place}[{at}]", each) for at, each in enumerate(part)]
