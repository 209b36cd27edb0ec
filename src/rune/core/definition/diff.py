"""The difference between two definitions, as somebody who changed one would tell it: node by node, field by field."""

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
    """One value that differs; `path` begins at the node, the edge, the settings or the document."""

    path: str
    kind: Kind
    before: Any = None
    after: Any = None


class Change(msgspec.Struct, frozen=True):
    """One thing that differs: it was added or removed as a whole, or some of its fields are others now."""

    what: What
    id: str
    kind: Kind
    before: Plain | None
    after: Plain | None
    fields: tuple[Field, ...] = ()


def difference(before: Plain, after: Plain) -> tuple[Change, ...]:
    """What happened between two definitions, both in plain canonical form; nothing if they are the same."""
    nodes, node_order = _listed("node", before.get("nodes", ()), after.get("nodes", ()))
    edges, edge_order = _listed("edge", before.get("edges", ()), after.get("edges", ()))
    fields = (
        *_fields(_rest(before), _rest(after), ""),
        *node_order,
        *edge_order,
    )
    document = _changed("document", after.get("id", ""), before, after, fields)
    old, new = before.get("settings", {}), after.get("settings", {})
    settings = _changed("settings", "", old, new, tuple(_fields(old, new, "")))
    return (*document, *settings, *nodes, *edges)


def _rest(definition: Plain) -> Plain:
    return {key: value for key, value in definition.items() if key not in _COMPARED_SEPARATELY}


def _changed(
    what: What, id: str, before: Plain, after: Plain, fields: tuple[Field, ...]
) -> tuple[Change, ...]:
    return (Change(what, id, "changed", before, after, fields),) if fields else ()


def _listed(
    what: What, before: Sequence[Plain], after: Sequence[Plain]
) -> tuple[list[Change], tuple[Field, ...]]:
    """The changes of nodes or edges in the order of the later definition, what was removed last; and whether those
    that stayed stand in another order."""
    pairs = _paired(before, after)
    earlier = {at: was for was, at in pairs}
    changes: list[Change] = []
    for at, new in enumerate(after):
        if at not in earlier:
            changes.append(Change(what, new["id"], "added", None, new))
        else:
            old = before[earlier[at]]
            changes.extend(_changed(what, new["id"], old, new, tuple(_fields(old, new, ""))))
    stayed = set(earlier.values())
    changes.extend(
        Change(what, old["id"], "removed", old, None) for was, old in enumerate(before) if was not in stayed
    )
    if all(left[1] < right[1] for left, right in pairwise(pairs)):
        return changes, ()
    order = [before[was]["id"] for was, _ in pairs], [after[at]["id"] for at in sorted(earlier)]
    return changes, (Field(f"{what}s", "reordered", *order),)


def _paired(before: Sequence[Plain], after: Sequence[Plain]) -> list[tuple[int, int]]:
    """Who is who: by id, and those that only were given another id by everything else they say."""
    by_id = {each["id"]: at for at, each in enumerate(after)}
    pairs = {was: by_id[each["id"]] for was, each in enumerate(before) if each["id"] in by_id}
    taken = set(pairs.values())
    nameless: dict[bytes, list[int]] = {}
    for at in reversed(range(len(after))):
        if at not in taken:
            nameless.setdefault(_content(after[at]), []).append(at)
    for was, each in enumerate(before):
        if was not in pairs and nameless.get(_content(each)):
            pairs[was] = nameless[_content(each)].pop()
    return sorted(pairs.items())


def _content(thing: Plain) -> bytes:
    return _ENCODER.encode({key: value for key, value in thing.items() if key != "id"})


def _fields(before: Any, after: Any, path: str) -> Iterator[Field]:
    """Down to the smallest values that differ."""
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
        yield from _items(before, after, path)
    else:
        yield Field(path, "changed", before, after)


def _items(before: list[Any], after: list[Any], path: str) -> Iterator[Field]:
    """Lists are laid side by side at both ends: what was put in or taken out in between is seen as such."""
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
    """As canonical text: 1 and 1.0 and true are three things."""
    return _ENCODER.encode(before) == _ENCODER.encode(after)
