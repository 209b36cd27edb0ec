"""The results of items, packed in memory.

The aggregator of a fan-out reads the results of all items. As objects they take about 800 bytes each; packed they take
about 20 bytes and the value. What the items of a node have in common is stored once.
"""

from __future__ import annotations

from array import array

from msgspec.structs import replace

from rune.codec.facts import Inline, Same
from rune.core.execution.fact import NodeResult
from rune.core.execution.token import ROOT, Path, Ref

PACK_ITEMS = 256
"""Results in one pack: an item's place in its pack is one byte."""

MAX_PACKED_BYTES = 1024
"""Larger values are not packed: the object around them is small in comparison."""

MAX_TEMPLATES = 8
MAX_TOOK_MS = 2**31 - 1
UNKNOWN = -1  # the duration of a result without the time at which its node began
RESULT_BYTES = 20  # of a packed result, besides its value


class PackedResults:
    """The results of one node for up to PACK_ITEMS items of one fan-out, in the order in which they were added.

    A result is rebuilt from a template, which has the fields that many results share, and from the fields that differ:
    its times and its value.
    """

    __slots__ = ("_at", "_ends", "_kinds", "_places", "_templates", "_took", "_values")

    def __init__(self) -> None:
        self._templates: list[NodeResult] = []
        self._places = bytearray()
        self._kinds = bytearray()
        self._at = array("q")
        self._took = array("i")
        self._ends = array("I")
        self._values = bytearray()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, result: NodeResult) -> bool:
        """Add the result of an item. Return False if it cannot be packed: it failed, or its value is large, paged or
        taken from another scope."""
        value, path = result.value, result.path
        if type(value) is Inline:
            data, form = value.data, None
            if len(data) > MAX_PACKED_BYTES:
                return False
        elif type(value) is Same and value.ref.path == path:
            data, form = b"", Same(Ref(value.ref.kind, value.ref.node))
        else:
            return False
        took = result.at - result.began if result.began else UNKNOWN
        if result.began and not 0 <= took <= MAX_TOOK_MS:
            return False
        place = path[-1] % PACK_ITEMS
        if place in self._places:
            return True  # a result is recorded once and never changes
        template = replace(result, path=ROOT, at=0, began=0, value=form)
        try:
            kind = self._templates.index(template)
        except ValueError:
            kind = len(self._templates)
            if result.failure is not None or kind >= MAX_TEMPLATES:
                return False
            self._templates.append(template)
        self._places.append(place)
        self._kinds.append(kind)
        self._at.append(result.at)
        self._took.append(took)
        self._values += data
        self._ends.append(len(self._values))
        return True

    def get(self, path: Path) -> NodeResult | None:
        """Return the result of the item with this path; None if it was not added."""
        at = self._places.find(path[-1] % PACK_ITEMS)
        if at < 0:
            return None
        template = self._templates[self._kinds[at]]
        form = template.value
        value: Inline | Same
        if form is None:
            start = self._ends[at - 1] if at else 0
            value = Inline(bytes(self._values[start : self._ends[at]]))
        else:
            value = Same(Ref(form.ref.kind, form.ref.node, path))
        ended, took = self._at[at], self._took[at]
        began = 0 if took == UNKNOWN else ended - took
        return replace(template, path=path, at=ended, began=began, value=value)
