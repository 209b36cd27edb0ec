"""Growing a random graph: structure and policies only; edges always lead from older to younger drafts."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

MAX_DEPTH = 3

KINDS = (
    ("edit", 30),
    ("effect", 18),
    ("noop", 6),
    ("log", 4),
    ("fail", 4),
    ("conditional", 12),
    ("switch", 7),
    ("split", 16),
    ("merge", 14),
    ("wait", 9),
)
FAILING = {
    "fail": 1.0,
    "effect": 0.35,
    "edit": 0.14,
    "conditional": 0.12,
    "switch": 0.12,
    "split": 0.1,
    "log": 0.06,
}


@dataclass
class Draft:
    """A node without its expressions."""

    id: str
    kind: str
    scope: tuple[str, ...]
    age: int
    failing: bool = False
    error: str | None = None
    join: str = "all"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Port:
    """A place an edge may start at."""

    draft: Draft
    outlet: str | None = None
    is_error: bool = False
    used: bool = False


Link = tuple[str, str, str | None, bool]


class Grower:
    """Builds drafts and links; `left` bounds how many nodes are still made."""

    def __init__(self, rng: Random, size: int) -> None:
        self.rng = rng
        self.left = size - 1
        self.drafts: list[Draft] = []
        self.links: list[Link] = []
        self.may_halt = rng.random() < 0.1
        self.nesting = rng.random() < 0.4
        self._kinds = [kind for kind, weight in KINDS for _ in range(weight)]

    def grow(self) -> None:
        """The whole graph, from its trigger to its output."""
        rng = self.rng
        ports = [Port(self._new("trigger", ()))]
        if rng.random() < 0.1 and self.left > 0:
            self._ports_of(self._new(rng.choice(("edit", "noop", "effect")), ()), ports, listed=True)
            self.left -= 1
        self._block((), ports, self.left, listed=True)
        self._settle_errors((), ports)
        self._outputs(ports)

    def _new(self, kind: str, scope: tuple[str, ...]) -> Draft:
        draft = Draft(f"n{len(self.drafts)}", kind, scope, len(self.drafts))
        self.drafts.append(draft)
        return draft

    def _link(self, port: Port, draft: Draft) -> None:
        self.links.append((port.draft.id, draft.id, port.outlet, port.is_error))
        port.used = True

    def _block(self, scope: tuple[str, ...], ports: list[Port], budget: int, *, listed: bool) -> None:
        """Adds about `budget` nodes to one scope; `listed` tells whether an aggregator will follow."""
        target = self.left - budget
        while self.left > target:
            kind = self.rng.choice(self._kinds)
            if self.nesting and self.rng.random() < 0.2:
                kind = "split"
            if kind == "split" and len(scope) >= MAX_DEPTH:
                continue
            self.left -= 1
            draft = self._new(kind, scope)
            self._wire(draft, ports)
            if kind == "split":
                self._split(draft, ports, target, listed=listed)
            else:
                self._ports_of(draft, ports, listed=listed)

    def _wire(self, draft: Draft, ports: list[Port]) -> None:
        rng = self.rng
        count = 1
        if draft.kind == "merge":
            count = rng.choice((1, 2, 2, 2, 3, 3, 4))
        elif rng.random() < 0.22:
            count = rng.choice((2, 2, 3))
        chosen: list[Port] = []
        for _ in range(count):
            port = self._pick(ports)
            if port is None or (port in chosen and (port.is_error or rng.random() < 0.85)):
                continue
            chosen.append(port)
            self._link(port, draft)
        draft.options["ins"] = len(chosen)
        if len(chosen) > 1 and draft.kind != "merge" and rng.random() < 0.3:
            draft.join = "any"

    def _pick(self, ports: list[Port]) -> Port | None:
        usable = [port for port in ports if not (port.is_error and port.used)]
        fresh = [port for port in usable if not port.used]
        return self.rng.choice(fresh if fresh and self.rng.random() < 0.72 else usable)

    def _ports_of(self, draft: Draft, ports: list[Port], *, listed: bool) -> None:
        """Decides how a node may fail and adds the places its edges start at."""
        rng = self.rng
        if draft.kind == "merge":
            self._merge_options(draft)
        draft.failing = rng.random() < FAILING.get(draft.kind, 0)
        self._policy(draft, listed=listed)
        outlets: list[str | None] = [None]
        if draft.kind == "conditional":
            outlets = [arm for arm in ("true", "false") if rng.random() < 0.8]
        elif draft.kind == "switch":
            cases = rng.randint(1, 3)
            draft.options["cases"] = cases
            outlets = [f"case_{i}" for i in range(cases) if rng.random() < 0.85]
            outlets += ["fallback"] if rng.random() < 0.6 else []
        if draft.kind != "split":
            ports.extend(Port(draft, outlet) for outlet in outlets)
        if draft.error == "branch" or (rng.random() < 0.02 and draft.kind != "trigger"):
            ports.append(Port(draft, None, is_error=True))

    def _merge_options(self, draft: Draft) -> None:
        rng, options = self.rng, draft.options
        options["mode"] = rng.choice(("append", "append", "object", "combine"))
        options["wait"] = rng.choice(("all", "all", "any", "at_least"))
        if options["wait"] == "at_least":
            options["k"] = rng.randint(1, options["ins"])
        if rng.random() < 0.1:
            options["timeout"] = rng.choice((2, 6, 30))
        if options["wait"] != "all" and rng.random() < 0.2:
            options["cancel_losers"] = True

    def _policy(self, draft: Draft, *, listed: bool) -> None:
        rng, options = self.rng, draft.options
        risky = draft.failing or options.get("k", 0) > 1 or "timeout" in options or "tolerate" in options
        if not risky:
            draft.error = rng.choice((*[None] * 16, "halt", "ignore", "branch", "branch"))
        elif self.may_halt and rng.random() < 0.4:
            draft.error = "halt" if draft.scope else rng.choice((None, "halt"))
        elif not draft.scope:
            draft.error = rng.choice(("ignore", "branch"))
        else:
            collected = 0.6 if listed else 0.2
            draft.error = None if rng.random() < collected else rng.choice(("ignore", "branch"))

    def _split(self, split: Draft, ports: list[Port], target: int, *, listed: bool) -> None:
        rng = self.rng
        self._ports_of(split, ports, listed=listed)
        gathered = rng.random() < 0.88
        room = max(self.left - target, 0)
        body = min(room, rng.choice((0, 1, 2, 3, 4, 5, 6, 8, 10)))
        if not gathered:
            body = max(body, 1)
        scope = (*split.scope, split.id)
        inner = [Port(split)]
        self._block(scope, inner, body, listed=gathered)
        if not inner[0].used and not gathered:
            self._link(inner[0], self._new("noop", scope))
        if not gathered:
            self._settle_errors(scope, inner)
            return
        loose = [port for port in inner if port.is_error and not port.used]
        if rng.random() < 0.7:
            self._settle_errors(scope, inner)
            loose = []
        self._gather(split, inner, loose, ports, listed=listed)

    def _gather(
        self, split: Draft, inner: list[Port], errors: list[Port], ports: list[Port], *, listed: bool
    ) -> None:
        """The aggregator of a split: fed by all loose ends, or by a few ports, or by the split itself."""
        rng = self.rng
        gather = self._new("aggregator", split.scope)
        usable = [port for port in inner if not port.is_error]
        fresh = [port for port in usable if not port.used]
        if fresh and rng.random() < 0.6:
            chosen = [port for port in fresh if rng.random() < 0.85] or fresh[:1]
        else:
            chosen = rng.sample(usable, min(len(usable), rng.choice((1, 1, 2, 3))))
        if not inner[0].used and inner[0] not in chosen:
            chosen.append(inner[0])
        if rng.random() < 0.05:
            chosen.append(chosen[0])
        for port in [*chosen, *errors]:
            self._link(port, gather)
        if rng.random() < 0.25:
            gather.options["tolerate"] = rng.choice((0, 1, 2, "0%", "25%", "50%", "100%"))
        if rng.random() < 0.07:
            gather.options["timeout"] = rng.choice((2, 6, 30))
        self._ports_of(gather, ports, listed=listed)

    def _settle_errors(self, scope: tuple[str, ...], ports: list[Port]) -> None:
        """Every error port leads somewhere: to a rescuer, or into a younger node of its scope."""
        for port in [port for port in ports if port.is_error and not port.used]:
            younger = [
                draft
                for draft in self.drafts[port.draft.age + 1 :]
                if draft.scope == scope and draft.kind not in ("aggregator", "trigger", "output")
            ]
            if younger and self.rng.random() < 0.5:
                self._link(port, self.rng.choice(younger))
                continue
            rescue = self._new(self.rng.choice(("edit", "edit", "effect", "noop")), scope)
            self._link(port, rescue)
            ports.append(Port(rescue))

    def _outputs(self, ports: list[Port]) -> None:
        rng = self.rng
        usable = [port for port in ports if not port.is_error]
        roll = rng.random()
        if roll < 0.06:
            router = self._new("conditional", ())
            self._link(rng.choice(usable), router)
            for outlet in ("true", "false"):
                self._link(Port(router, outlet), self._new("output", ()))
        elif roll < 0.3:
            output = self._new("output", ())
            for port in rng.sample(usable, min(len(usable), rng.choice((1, 1, 2)))):
                self._link(port, output)
