"""The connections of an n8n export as a graph."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

# Beyond this number of steps the search for exclusive branches gives up, and branches count as not exclusive.
_MAX_STEPS = 200_000


class Link(msgspec.Struct, frozen=True):
    """One connection: from an output of a node to an input of another."""

    src: str
    output: int
    dst: str
    input: int
    path: str


class Links:
    """The connections by source and by target."""

    def __init__(self, links: Iterable[Link] = ()) -> None:
        self.all = list(links)
        self._out: dict[str, list[Link]] = {}
        self._into: dict[str, list[Link]] = {}
        for link in self.all:
            self._out.setdefault(link.src, []).append(link)
            self._into.setdefault(link.dst, []).append(link)
        self._ways: dict[str, tuple[set[str], list[tuple[Link, set[str]]]]] = {}
        self._steps = 0

    def out(self, name: str) -> list[Link]:
        return self._out.get(name, [])

    def into(self, name: str) -> list[Link]:
        return self._into.get(name, [])

    def reachable(self, start: Iterable[str], without: str = "") -> set[str]:
        """Return the nodes that a path leads to, without those behind one node."""
        found: set[str] = set()
        waiting = [each for each in start if each != without]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                self._steps += 1
                waiting += [link.dst for link in self.out(each) if link.dst != without]
        return found

    def exclusive(self, links: list[Link], routers: list[str], triggers: list[str]) -> bool:
        """Return whether at most one of the links carries items: different triggers, or branches of one router."""
        if all(each.src in triggers for each in links):
            return True
        return all(
            any(self._apart(one, other, router, triggers) for router in routers)
            for at, one in enumerate(links)
            for other in links[at + 1 :]
        )

    def _apart(self, one: Link, other: Link, router: str, triggers: list[str]) -> bool:
        """Return whether two links are only reached by different outputs of a router."""
        if self._steps > _MAX_STEPS:
            return False
        if router not in self._ways:
            behind = [(link, self.reachable([link.dst], router)) for link in self.out(router)]
            self._ways[router] = (self.reachable(triggers, router), behind)
        around, behind = self._ways[router]
        ways: list[set[int]] = []
        for link in (one, other):
            self._steps += len(behind)
            reached = {each.output for each, found in behind if each is link or link.src in found}
            ways.append(set() if link.src in around else reached)
        return bool(ways[0] and ways[1] and not ways[0] & ways[1])
