"""Parts of large JSON values: what a pointer names, level by level, long texts and lists in pieces, and search in them.

A value of 64 MB is never decoded as a whole. Each level is split into its members as text, so that one level costs a
pass over its bytes, and only what is shown is decoded. A text that is kept remembers the members of its large levels.
A search opens a member only if a regular expression over its bytes finds the text in it, also where JSON writes it with
escapes. Large values that are read in parts are kept for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import msgspec
import re2

from rune.core.execution.token import Path, Ref
from rune.core.json_decoder import JsonDecoder
from rune.errors import RuneError
from rune.runtime.queries.history import History, JoinedBytes

MAX_MEMBERS = 1_000
DEFAULT_MEMBERS = 100
MAX_CHARS = 100_000
DEFAULT_CHARS = 10_000
MEMBER_CHARS = 2_048
"""Characters of a text that is a member of what is shown."""

MAX_UNOPENED_BYTES = 1024 * 1024
"""A member that is larger is shown without its size and members until it is requested itself, because counting them
takes another pass over its bytes."""

MIN_INDEXED_BYTES = 64 * 1024
"""Levels that are smaller are split again each time."""

MAX_INDEXED_MEMBERS = 1_000_000

MAX_SHOWN = 5_000
"""Members of all levels together. What is left is shown without its members."""

Kind = Literal["object", "array", "string", "number", "boolean", "null"]

_OBJECT = JsonDecoder(dict[str, msgspec.Raw])
_ARRAY = JsonDecoder(list[msgspec.Raw])
_ANY = JsonDecoder(msgspec.Raw)
_TEXT = JsonDecoder(str)
_KINDS: dict[int, Kind] = {
    ord("{"): "object",
    ord("["): "array",
    ord('"'): "string",
    ord("t"): "boolean",
    ord("f"): "boolean",
    ord("n"): "null",
}

MAX_MATCHES = 10_000
"""Matches that are counted. The search ends with the next one."""

MAX_SEARCH_S = 2.0
EXCERPT_CHARS = 60
"""Characters of a text that are shown before and after the match."""

MAX_PROBED_BYTES = 1024 * 1024
"""Larger members are opened without looking for the text in them first."""

MEMBERS_PER_CHECK = 256
"""Members between two looks at the clock."""

_SHORT_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}

MAX_INLINE_BYTES = 128 * 1024
"""Larger values are read in a thread, and kept."""

MAX_KEPT_BYTES = 160 * 1024 * 1024
KEPT_S = 60.0


class InvalidPointerError(RuneError):
    """A JSON pointer that cannot be parsed."""

    code = "BAD_POINTER"


class PartNotFoundError(RuneError):
    """A JSON pointer names nothing in this value."""

    code = "UNKNOWN_PART"


class NotJsonError(RuneError):
    """A value that is not JSON has no parts."""

    code = "NOT_JSON"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a value. `size` is the number of members or characters; None for other types, and for a large member
    that is not opened. `value` is set for numbers, booleans, null and
    texts, `entries` for objects and arrays whose members are shown. `next` is the offset to continue at."""

    key: str | int | None
    type: Kind
    bytes: int
    size: int | None
    value: Any = None
    entries: list[Member] | None = None
    next: int | None = None


class JsonText:
    """A JSON text, with the members of those large levels that were requested before."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._levels: dict[str, Sequence[Any]] = {}
        self._indexed = 0

    @property
    def size(self) -> int:
        """The length of the text in bytes."""
        return len(self.data)

    @property
    def texts(self) -> Sequence[JsonText]:
        """The texts that are in memory for this one."""
        return (self,)

    def part(self, pointer: str = "", *, depth: int = 1, offset: int = 0, limit: int | None = None) -> Member:
        """Return what a pointer (RFC 6901) names: from `offset` on, with the members of `depth` levels."""
        try:
            found, place, key = self._find(pointer)
            return _Reading(self).member(key, found, place, depth, offset, limit, MAX_CHARS)
        except msgspec.MsgspecError as error:
            raise NotJsonError(f"the value is not JSON: {error}") from None

    def members(self, found: msgspec.Raw, place: str) -> Sequence[Any]:
        """Return the members of an object, each with its key, or of an array."""
        known = self._levels.get(place)
        if known is None:
            is_object = kind_of(found) == "object"
            known = list(_OBJECT.decode(found).items()) if is_object else _ARRAY.decode(found)
            if len(memoryview(found)) >= MIN_INDEXED_BYTES:
                self._indexed += len(known)
                if self._indexed <= MAX_INDEXED_MEMBERS:
                    self._levels[place] = known
        return known

    def size_of(self, found: msgspec.Raw, place: str) -> int:
        """Return the length in bytes of the part at a place."""
        return len(memoryview(found))

    def may_hold(self, found: msgspec.Raw, place: str, probe: Any) -> bool:
        """Return whether the part at a place may contain what a regular expression over its bytes looks for."""
        return _may_hold(memoryview(found), probe)

    def at(self, pointer: str) -> tuple[msgspec.Raw, str]:
        """Return what a pointer names, and the pointer as `members` takes it."""
        return self._find(pointer)[:2]

    def _find(self, pointer: str) -> tuple[msgspec.Raw, str, str | int | None]:
        found = self._root()
        key: str | int | None = None
        place = ""
        for name in _names(pointer):
            found, key = self._child(found, name, place)
            place = child_pointer(place, key)
        return found, place, key

    def _root(self) -> msgspec.Raw:
        # Splitting a level into its members validates it, so that a further pass over 64 MB is not needed.
        return msgspec.Raw(self.data) if self.data[:1] in (b"{", b"[") else _ANY.decode(self.data)

    def _child(self, found: msgspec.Raw, name: str, place: str) -> tuple[msgspec.Raw, Any]:
        kind = kind_of(found)
        if kind == "object":
            for key, value in self.members(found, place):
                if key == name:
                    return value, name
        elif kind == "array" and name.isascii() and name.isdecimal() and len(name) < 16:
            items = self.members(found, place)
            if int(name) < len(items) and str(int(name)) == name:
                return items[int(name)], int(name)
        raise PartNotFoundError(f"the value has nothing at `{child_pointer(place, name)[:200]}`")


class JsonObject(JsonText):
    """An object whose members are texts or such objects of their own. They are neither copied nor split again for it,
    and may be the same in several places. In its parent an object is `{}`, which no text is that has members."""

    def __init__(self, members: Mapping[str, JsonText]) -> None:
        super().__init__(b"{}")
        self._members = members
        names = sum(len(msgspec.json.encode(name)) + len(":,") for name in members)
        self._size = names + sum(each.size for each in members.values()) + (1 if members else 2)

    @property
    def size(self) -> int:
        return self._size

    @property
    def texts(self) -> Sequence[JsonText]:
        found: dict[int, JsonText] = {}
        pending: list[JsonText] = [self]
        seen: set[int] = set()
        while pending:
            each = pending.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            if isinstance(each, JsonObject):
                pending += each._members.values()
            else:
                found[id(each)] = each
        return tuple(found.values())

    def inside(self, place: str) -> JsonObject | None:
        """Return the object of this kind at a place; None if a text is there."""
        if not place:
            return self
        name, slash, rest = place[1:].partition("/")
        member = self._members.get(_unescape(name))
        return member.inside(slash + rest) if isinstance(member, JsonObject) else None

    def size_of(self, found: msgspec.Raw, place: str) -> int:
        known = self.inside(place)
        return super().size_of(found, place) if known is None else known.size

    def may_hold(self, found: msgspec.Raw, place: str, probe: Any) -> bool:
        known = self.inside(place)
        if known is None:
            return super().may_hold(found, place, probe)
        return any(_may_hold(each.data, probe) for each in known.texts) or any(
            probe.search(name.encode()) is not None for name in known.names
        )

    @property
    def names(self) -> set[str]:
        """The names of the members of all objects of this kind in it."""
        found: set[str] = set()
        seen: set[int] = set()
        pending = [self]
        while pending:
            each = pending.pop()
            if id(each) not in seen:
                seen.add(id(each))
                found |= each._members.keys()
                pending += [member for member in each._members.values() if isinstance(member, JsonObject)]
        return found

    def members(self, found: msgspec.Raw, place: str) -> Sequence[Any]:
        if not place:
            return [(name, msgspec.Raw(each.data)) for name, each in self._members.items()]
        name, slash, rest = place[1:].partition("/")
        return self._members[_unescape(name)].members(found, slash + rest)


def _joined_text(joined: JoinedBytes) -> JsonObject:
    """Return the payload of a join as an object, whose members are the same where they are the same values."""
    texts: dict[int, JsonText] = {id(data): JsonText(data) for data in joined.values.values()}
    made: dict[Ref, JsonText] = {ref: texts[id(data)] for ref, data in joined.values.items()}
    for ref, members in joined.joins.items():
        made[ref] = JsonObject({name: made[member] for name, member in members.items()})
    found = made[joined.origin]
    assert isinstance(found, JsonObject)
    return found


def part_of(
    data: bytes, pointer: str = "", *, depth: int = 1, offset: int = 0, limit: int | None = None
) -> Member:
    """Return a part of a JSON text."""
    return JsonText(data).part(pointer, depth=depth, offset=offset, limit=limit)


def child_pointer(parent: str, key: str | int) -> str:
    """Return the JSON pointer of a member."""
    return f"{parent}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _names(pointer: str) -> Iterator[str]:
    if not pointer:
        return
    if not pointer.startswith("/"):
        raise InvalidPointerError(f"`{pointer[:80]}` is not a JSON pointer: it has to begin with `/`")
    for part in pointer[1:].split("/"):
        if "~" in part.replace("~0", "").replace("~1", ""):
            raise InvalidPointerError(f"`{part[:80]}`: `~` is written as `~0` in a JSON pointer, `/` as `~1`")
        yield _unescape(part)


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def kind_of(found: msgspec.Raw) -> Kind:
    """Return the type of a JSON text by its first byte."""
    return _KINDS.get(memoryview(found)[0], "number")


class _Reading:
    """Counts the members that one request shows."""

    def __init__(self, text: JsonText) -> None:
        self._text = text
        self._left = MAX_SHOWN

    def member(
        self,
        key: Any,
        found: msgspec.Raw,
        place: str,
        depth: int,
        offset: int,
        limit: int | None,
        max_chars: int,
    ) -> Member:
        kind, size = kind_of(found), self._text.size_of(found, place)
        if kind == "string":
            return _text(key, found, offset, min(limit or DEFAULT_CHARS, max_chars))
        if kind not in ("object", "array"):
            return Member(key=key, type=kind, bytes=size, size=None, value=found)
        members = self._text.members(found, place)
        shown = min(limit or DEFAULT_MEMBERS, MAX_MEMBERS, self._left)
        if not depth or not shown:
            return Member(key=key, type=kind, bytes=size, size=len(members))
        self._left -= min(shown, max(0, len(members) - offset))
        entries: list[Member] = []
        for at, each in enumerate(islice(members, offset, offset + shown), start=offset):
            name, value = each if kind == "object" else (at, each)
            entries.append(self._inner(name, value, place, depth - 1))
        following = offset + len(entries)
        return Member(
            key=key,
            type=kind,
            bytes=size,
            size=len(members),
            entries=entries,
            next=following if following < len(members) else None,
        )

    def _inner(self, key: str | int, found: msgspec.Raw, parent: str, depth: int) -> Member:
        place = child_pointer(parent, key)
        kind, size = kind_of(found), self._text.size_of(found, place)
        if kind in ("object", "array") and size > MAX_UNOPENED_BYTES:
            return Member(key=key, type=kind, bytes=size, size=None)
        return self.member(key, found, place, depth, 0, None, MEMBER_CHARS)


def _text(key: Any, found: msgspec.Raw, offset: int, limit: int) -> Member:
    text = _TEXT.decode(found)
    shown = text[offset : offset + limit]
    following = offset + len(shown)
    return Member(
        key=key,
        type="string",
        bytes=len(memoryview(found)),
        size=len(text),
        value=shown,
        next=following if following < len(text) else None,
    )


class Match(msgspec.Struct, frozen=True):
    """A key, or a text, number or word, that contains the text. `text` is the part of it around the match, which begins
    at `start` in it."""

    pointer: str
    where: Literal["key", "value"]
    text: str
    start: int


class Matches(msgspec.Struct, frozen=True):
    """A page of matches in the order of the value. `count` is the number of all; not `complete` if the search ended
    before the value did."""

    matches: list[Match]
    count: int
    complete: bool


def find_in(
    value: JsonText,
    wanted: str,
    pointer: str = "",
    *,
    offset: int = 0,
    limit: int = 100,
    max_s: float = MAX_SEARCH_S,
    clock: Callable[[], float] = time.monotonic,
) -> Matches:
    """Return the matches from `offset` on in what a pointer names."""
    search = _Search(value, wanted, clock, clock() + max_s)
    shown: list[Match] = []
    count = 0
    try:
        found, place = value.at(pointer)
        for match in search.walk(found, place):
            if count == MAX_MATCHES:
                return Matches(shown, count, False)
            if offset <= count < offset + limit:
                shown.append(match)
            count += 1
    except msgspec.MsgspecError as error:
        raise NotJsonError(f"the value is not JSON: {error}") from None
    return Matches(shown, count, not search.late)


class _Search:
    def __init__(self, value: JsonText, wanted: str, clock: Callable[[], float], until: float) -> None:
        self._value = value
        self._wanted = wanted.lower()
        self._probe = re2.compile(_pattern(wanted))
        self._clock = clock
        self._until = until
        self._seen = 0
        self.late = False

    def walk(self, found: msgspec.Raw, place: str) -> Iterator[Match]:
        """Yield the matches in a value, but none after the time is up."""
        kind = kind_of(found)
        if kind == "object":
            for key, child in self._value.members(found, place):
                if self._is_late():
                    return
                if (start := key.lower().find(self._wanted)) >= 0:
                    yield self._match(child_pointer(place, key), "key", key, start)
                inner = child_pointer(place, key)
                if self._value.may_hold(child, inner, self._probe):
                    yield from self.walk(child, inner)
        elif kind == "array":
            for index, child in enumerate(self._value.members(found, place)):
                if self._is_late():
                    return
                inner = child_pointer(place, index)
                if self._value.may_hold(child, inner, self._probe):
                    yield from self.walk(child, inner)
        else:
            text = _TEXT.decode(found) if kind == "string" else bytes(found).decode()
            if (start := text.lower().find(self._wanted)) >= 0:
                yield self._match(place, "value", text, start)

    def _is_late(self) -> bool:
        self._seen += 1
        if self._seen % MEMBERS_PER_CHECK == 0 and self._clock() > self._until:
            self.late = True
        return self.late

    def _match(self, pointer: str, where: Literal["key", "value"], text: str, start: int) -> Match:
        first = max(0, start - EXCERPT_CHARS)
        shown = text[first : start + len(self._wanted) + EXCERPT_CHARS]
        return Match(pointer, where, shown, start - first)


def _may_hold(data: bytes | memoryview, probe: Any) -> bool:
    return len(data) > MAX_PROBED_BYTES or probe.search(bytes(data)) is not None


def _pattern(wanted: str) -> str:
    """Return a regular expression for the forms in which JSON writes a text, in both cases."""
    return "(?is)" + "".join(f"(?:{'|'.join(_forms(char))})" for char in wanted)


def _forms(char: str) -> Iterator[str]:
    yield re2.escape(char)
    if char in _SHORT_ESCAPES:
        yield r"\\" + re2.escape(_SHORT_ESCAPES[char])
    for each in {char, char.lower(), char.upper()}:
        units = each.encode("utf-16-be").hex()
        yield "".join(r"\\u" + units[at : at + 4] for at in range(0, len(units), 4))


class ValueCache:
    """The large values that were looked at last, with their levels, so that a page that opens level after level reads
    and splits each of them once. Outputs do not change, so a value is the same as long as its execution exists. A value
    may be kept under several keys: an output node usually passes the value of another node on."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES, kept_s: float = KEPT_S) -> None:
        self._max_bytes = max_bytes
        self._kept_s = kept_s
        self._kept: OrderedDict[Hashable, tuple[JsonText, asyncio.TimerHandle]] = OrderedDict()
        self._locks: dict[Hashable, asyncio.Lock] = {}

    async def get(self, key: Hashable, load: Callable[[], Awaitable[bytes | JsonText]]) -> JsonText:
        """Return a value that is kept, or load it. Requests for a value that is being loaded wait for it."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                known = self._kept.get(key)
                found = await load() if known is None else known[0]
                value = JsonText(found) if isinstance(found, bytes) else found
                if MAX_INLINE_BYTES < value.size <= self._max_bytes:
                    self._keep(key, value)
                return value
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    async def node_value(
        self, history: History, node: int, path: Path, load: Callable[[], Awaitable[bytes]]
    ) -> JsonText:
        """Return the value of a node, or load it. Nodes with the same stored value share it, and that of a join has the
        values that it joins."""
        joined = await history.joined(node, path)
        if joined is not None:
            return _joined_text(joined)
        blob = await history.value_blob(node, path)
        if blob is None:
            return JsonText(await load())
        return await self.get((history.accepted.id, blob), load)

    def _keep(self, key: Hashable, value: JsonText) -> None:
        self._drop(key)
        self._kept[key] = value, asyncio.get_running_loop().call_later(self._kept_s, self._drop, key)
        while self._bytes() > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _bytes(self) -> int:
        """The bytes in memory; a text counts once, under however many keys it is kept."""
        texts = {id(text): text.size for value, _ in self._kept.values() for text in value.texts}
        return sum(texts.values())

    def _drop(self, key: Hashable) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            dropped[1].cancel()
