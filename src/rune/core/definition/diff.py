"""The difference between two definitions, by node, edge and field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from rune.core.definition.strict_json import join

Kind = Literal["added", "removed", "changed", "reordered"]
What = Literal["document", "settings", "node", "edge"]
Plain = Mapping[str, Any]

_ENCODER = msgspec.json.Encoder(order="sorted")
_COMPARED_SEPARATELY = frozenset({"settings", "nodes", "edges"})


class Field(msgspec.Struct, frozen=True):
    """One value that differs; `path` is relative to the node, the edge, the settings or the document."""

    path: str
    kind: Kind
    before: Any = None
    after: Any = None


class Change(msgspec.Struct, frozen=True):
    """A node, an edge, the settings or the document that was added, removed or changed in some fields."""

    what: What
    id: str
    kind: Kind
    before: Plain | None
    after: Plain | None
    fields: tuple[Field, ...] = ()


def difference(before: Plain, after: Plain) -> tuple[Change, ...]:
    """Return the changes between two definitions in plain canonical form."""
    nodes, node_order = _list_changes("node", before.get("nodes", ()), after.get("nodes", ()))
    edges, edge_order = _list_changes("edge", before.get("edges", ()), after.get("edges", ()))
    fields = (
        *_fields(_own_fields(before), _own_fields(after), ""),
        *node_order,
        *edge_order,
    )
    document = _change_of("document", after.get("id", ""), before, after, fields)
    old, new = before.get("settings", {}), after.get("settings", {})
    settings = _change_of("settings", "", old, new, tuple(_fields(old, new, "")))
    return (*document, *settings, *nodes, *edges)


def _own_fields(definition: Plain) -> Plain:
    return {key: value for key, value in definition.items() if key not in _COMPARED_SEPARATELY}


def _change_of(
    what: What, id: str, before: Plain, after: Plain, fields: tuple[Field, ...]
) -> tuple[Change, ...]:
    return (Change(what, id, "changed", before, after, fields),) if fields else ()


def _list_changes(
    what: What, before: Sequence[Plain], after: Sequence[Plain]
) -> tuple[list[Change], tuple[Field, ...]]:
    """Return the changes of nodes or edges, removals last, and a field if the remaining ones were reordered."""
    pairs = _pair(before, after)
    earlier = {at: was for was, at in pairs}
    changes: list[Change] = []
    for at, new in enumerate(after):
        if at not in earlier:
            changes.append(Change(what, new["id"], "added", None, new))
        else:
            old = before[earlier[at]]
            changes.extend(_change_of(what, new["id"], old, new, tuple(_fields(old, new, ""))))
    stayed = set(earlier.values())
    changes.extend(
        Change(what, old["id"], "removed", old, None) for was, old in enumerate(before) if was not in stayed
    )
    if all(left[1] < right[1] for left, right in pairwise(pairs)):
        return changes, ()
    order = [before[was]["id"] for was, _ in pairs], [after[at]["id"] for at in sorted(earlier)]
    return changes, (Field(f"{what}s", "reordered", *order),)


def _pair(before: Sequence[Plain], after: Sequence[Plain]) -> list[tuple[int, int]]:
    """Pair the old and new positions: by id, or by equal content if only the id changed."""
    by_id = {each["id"]: at for at, each in enumerate(after)}
    pairs = {was: by_id[each["id"]] for was, each in enumerate(before) if each["id"] in by_id}
    taken = set(pairs.values())
    unpaired: dict[bytes, list[int]] = {}
    for at in reversed(range(len(after))):
        if at not in taken:
            unpaired.setdefault(_content(after[at]), []).append(at)
    for was, each in enumerate(before):
        if was not in pairs and unpaired.get(_content(each)):
            pairs[was] = unpaired[_content(each)].pop()
    return sorted(pairs.items())


def _content(thing: Plain) -> bytes:
    return _ENCODER.encode({key: value for key, value in thing.items() if key != "id"})


def _fields(before: Any, after: Any, path: str) -> Iterator[Field]:
    """Yield the innermost values that differ."""
    if _same(before, after):
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in (*before, *(key for key in after if key not in before)):
            if key not in after:
                yield Field(join(path, key), "removed", before[key])
            elif key not in before:
                yield Field(join(path, key), "added", None, after[key])
            else:
                yield from _fields(before[key], after[key], join(path, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_fields(before, after, path)
    else:
        yield Field(path, "changed", before, after)


def _list_fields(before: list[Any], after: list[Any], path: str) -> Iterator[Field]:
    """Align two lists at both ends, so that elements inserted or removed in between are reported as such."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < shorter - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    both = shorter - end
    for at in range(start, both):
        yield from _fields(before[at], after[at], f"{path}[{at}]")
    for at in range(both, len(before) - end):
        yield Field(f"{path}[{at}]", "removed", before[at])
    for at in range(both, len(after) - end):
        yield Field(f"{path}[{at}]", "added", None, after[at])


def _same(before: Any, after: Any) -> bool:
    """Compare canonical text: 1, 1.0 and true differ, although Python treats them as equal."""
    return _ENCODER.encode(before) == _ENCODER.encode(after)
