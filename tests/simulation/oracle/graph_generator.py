"""Generates a random graph without parameters; edges lead from older to newer drafts."""

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
    """A possible start of an edge."""

    draft: Draft
    outlet: str | None = None
    is_error: bool = False
    used: bool = False


Link = tuple[str, str, str | None, bool]


class GraphGenerator:
    """Builds drafts and links; `remaining` is the number of nodes still to add."""

    def __init__(self, rng: Random, size: int) -> None:
        self.rng = rng
        self.remaining = size - 1
        self.drafts: list[Draft] = []
        self.links: list[Link] = []
        self.may_halt = rng.random() < 0.1
        self.nesting = rng.random() < 0.4
        self._kinds = [kind for kind, weight in KINDS for _ in range(weight)]

    def generate(self) -> None:
        """Generate the graph from its trigger to its outputs."""
        rng = self.rng
        ports = [Port(self._add_draft("trigger", ()))]
        if rng.random() < 0.1 and self.remaining > 0:
            self._add_ports(
                self._add_draft(rng.choice(("edit", "noop", "effect")), ()), ports, collected=True
            )
            self.remaining -= 1
        self._add_block((), ports, self.remaining, collected=True)
        self._connect_errors((), ports)
        self._add_outputs(ports)

    def _add_draft(self, kind: str, scope: tuple[str, ...]) -> Draft:
        draft = Draft(f"n{len(self.drafts)}", kind, scope, len(self.drafts))
        self.drafts.append(draft)
        return draft

    def _link(self, port: Port, draft: Draft) -> None:
        self.links.append((port.draft.id, draft.id, port.outlet, port.is_error))
        port.used = True

    def _add_block(self, scope: tuple[str, ...], ports: list[Port], budget: int, *, collected: bool) -> None:
        """Add about `budget` nodes to one scope; `collected` if an aggregator follows."""
        target = self.remaining - budget
        while self.remaining > target:
            kind = self.rng.choice(self._kinds)
            if self.nesting and self.rng.random() < 0.2:
                kind = "split"
            if kind == "split" and len(scope) >= MAX_DEPTH:
                continue
            self.remaining -= 1
            draft = self._add_draft(kind, scope)
            self._connect_inputs(draft, ports)
            if kind == "split":
                self._add_split(draft, ports, target, collected=collected)
            else:
                self._add_ports(draft, ports, collected=collected)

    def _connect_inputs(self, draft: Draft, ports: list[Port]) -> None:
        rng = self.rng
        count = 1
        if draft.kind == "merge":
            count = rng.choice((1, 2, 2, 2, 3, 3, 4))
        elif rng.random() < 0.22:
            count = rng.choice((2, 2, 3))
        chosen: list[Port] = []
        for _ in range(count):
            port = self._pick_port(ports)
            if port is None or (port in chosen and (port.is_error or rng.random() < 0.85)):
                continue
            chosen.append(port)
            self._link(port, draft)
        draft.options["ins"] = len(chosen)
        if len(chosen) > 1 and draft.kind != "merge" and rng.random() < 0.3:
            draft.join = "any"

    def _pick_port(self, ports: list[Port]) -> Port | None:
        usable = [port for port in ports if not (port.is_error and port.used)]
        fresh = [port for port in usable if not port.used]
        return self.rng.choice(fresh if fresh and self.rng.random() < 0.72 else usable)

    def _add_ports(self, draft: Draft, ports: list[Port], *, collected: bool) -> None:
        """Choose how a node may fail and add its ports."""
        rng = self.rng
        if draft.kind == "merge":
            self._merge_options(draft)
        draft.failing = rng.random() < FAILING.get(draft.kind, 0)
        self._choose_policy(draft, collected=collected)
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

    def _choose_policy(self, draft: Draft, *, collected: bool) -> None:
        rng, options = self.rng, draft.options
        risky = draft.failing or options.get("k", 0) > 1 or "timeout" in options or "tolerate" in options
        if not risky:
            draft.error = rng.choice((*[None] * 16, "halt", "ignore", "branch", "branch"))
        elif self.may_halt and rng.random() < 0.4:
            draft.error = "halt" if draft.scope else rng.choice((None, "halt"))
        elif not draft.scope:
            draft.error = rng.choice(("ignore", "branch"))
        else:
            unhandled = 0.6 if collected else 0.2
            draft.error = None if rng.random() < unhandled else rng.choice(("ignore", "branch"))

    def _add_split(self, split: Draft, ports: list[Port], target: int, *, collected: bool) -> None:
        rng = self.rng
        self._add_ports(split, ports, collected=collected)
        has_aggregator = rng.random() < 0.88
        room = max(self.remaining - target, 0)
        body = min(room, rng.choice((0, 1, 2, 3, 4, 5, 6, 8, 10)))
        if not has_aggregator:
            body = max(body, 1)
        scope = (*split.scope, split.id)
        inner = [Port(split)]
        self._add_block(scope, inner, body, collected=has_aggregator)
        if not inner[0].used and not has_aggregator:
            self._link(inner[0], self._add_draft("noop", scope))
        if not has_aggregator:
            self._connect_errors(scope, inner)
            return
        unconnected = [port for port in inner if port.is_error and not port.used]
        if rng.random() < 0.7:
            self._connect_errors(scope, inner)
            unconnected = []
        self._add_aggregator(split, inner, unconnected, ports, collected=collected)

    def _add_aggregator(
        self, split: Draft, inner: list[Port], errors: list[Port], ports: list[Port], *, collected: bool
    ) -> None:
        """Add the aggregator of a split, fed by unused ports, by a few ports, or by the split itself."""
        rng = self.rng
        aggregator = self._add_draft("aggregator", split.scope)
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
            self._link(port, aggregator)
        if rng.random() < 0.25:
            aggregator.options["tolerate"] = rng.choice((0, 1, 2, "0%", "25%", "50%", "100%"))
        if rng.random() < 0.07:
            aggregator.options["timeout"] = rng.choice((2, 6, 30))
        self._add_ports(aggregator, ports, collected=collected)

    def _connect_errors(self, scope: tuple[str, ...], ports: list[Port]) -> None:
        """Connect every error port to a new handler or to a newer node of its scope."""
        for port in [port for port in ports if port.is_error and not port.used]:
            newer = [
                draft
                for draft in self.drafts[port.draft.age + 1 :]
                if draft.scope == scope and draft.kind not in ("aggregator", "trigger", "output")
            ]
            if newer and self.rng.random() < 0.5:
                self._link(port, self.rng.choice(newer))
                continue
            handler = self._add_draft(self.rng.choice(("edit", "edit", "effect", "noop")), scope)
            self._link(port, handler)
            ports.append(Port(handler))

    def _add_outputs(self, ports: list[Port]) -> None:
        rng = self.rng
        usable = [port for port in ports if not port.is_error]
        roll = rng.random()
        if roll < 0.06:
            router = self._add_draft("conditional", ())
            self._link(rng.choice(usable), router)
            for outlet in ("true", "false"):
                self._link(Port(router, outlet), self._add_draft("output", ()))
        elif roll < 0.3:
            output = self._add_draft("output", ())
            for port in rng.sample(usable, min(len(usable), rng.choice((1, 1, 2)))):
                self._link(port, output)
