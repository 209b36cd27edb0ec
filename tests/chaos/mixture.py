"""What the cluster is loaded with: small workflows of every kind, and what may come out of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.hazards.building import Fields, kind, sets, splits, waits, workflow

CHILD = "chaos-child"


class Shape(NamedTuple):
    """A document, the outputs that are right, and the signals that are sent once it is accepted."""

    document: Fields
    outputs: tuple[Any, ...]
    signals: tuple[str, ...] = ()
    fake_time: bool = False


def _effect(did: str, **more: Any) -> Fields:
    fail_attempts = more.pop("fail_attempts", 0)
    return {**kind("chaos.effect", did=did, fail_attempts=fail_attempts), **more}


def _out(value: str) -> Fields:
    return kind("output", value=value)


def _named(name: str, edges: str, **nodes: Fields) -> Fields:
    return {**workflow(edges, **nodes), "id": name}


_HEAR = kind("wait", resume="signal", name="go")
_TWICE = {"max_attempts": 3, "initial_delay": 0.3}

CHILD_DOCUMENT = _named("chaos-child", "start>a a>out", a=_effect("a"), out=_out("{{ $a.did }}"))

MIXTURE: dict[str, Shape] = {
    "chain": Shape(
        _named(
            "chaos-chain", "start>a a>b b>c c>out",
            a=_effect("a"), b=_effect("b"), c=_effect("c"), out=_out("{{ [$a.did, $b.did, $c.did] }}"),
        ),
        (["a", "b", "c"],),
    ),
    "join": Shape(
        _named(
            "chaos-join", "start>a start>b start>c a>m b>m c>m m>d d>out",
            a=_effect("a"), b=_effect("b"), c=sets(did="c"), m=kind("merge"), d=_effect("d"),
            out=_out("{{ [x.did for x in $m] + [$d.did] }}"),
        ),
        (["a", "b", "c", "d"],),
    ),
    "fan-out": Shape(
        _named(
            "chaos-fan", "start>s s>e e>i i>g g>z z>out",
            s=splits("{{ range(12) }}"), e=_effect("e"), i=sets(v="{{ $item }}"), g=kind("aggregator"),
            z=_effect("z"), out=_out("{{ [x.v for x in $g] }}"),
        ),
        (list(range(12)),),
    ),
    "nested": Shape(
        _named(
            "chaos-nested", "start>s s>t t>e e>h h>g g>out",
            s=splits("{{ [[0, 1, 2], [3, 4], []] }}"), t=splits("$item"), e=_effect("e"),
            h=kind("aggregator"), g=kind("aggregator"), out=_out("{{ [[x.did for x in row] for row in $g] }}"),
        ),
        ([["e", "e", "e"], ["e", "e"], []],),
    ),
    "short wait": Shape(
        _named("chaos-nap", "start>a a>w w>b b>out", a=_effect("a"), w=waits(0.7, "seconds"), b=_effect("b"),
               out=_out("{{ $b.did }}")),
        ("b",),
    ),
    "long wait": Shape(
        _named("chaos-sleep", "start>a a>w w>b b>out", a=_effect("a"), w=waits(4, "seconds"), b=_effect("b"),
               out=_out("{{ $b.did }}")),
        ("b",),
    ),
    "waits in a loop": Shape(
        _named(
            "chaos-loop", "start>s s>w w>e e>g g>out",
            s=splits("{{ range(4) }}"), w=waits("{{ 0.5 + $item }}", "seconds"), e=_effect("e"),
            g=kind("aggregator"), out=_out("{{ len($g) }}"),
        ),
        (4,),
    ),
    "own time": Shape(
        _named("chaos-days", "start>w w>a a>out", w=waits(2, "days"),
               a=_effect("a", fail_attempts=1, retry={"max_attempts": 3, "initial_delay": 60}),
               out=_out("{{ $a.did }}")),
        ("a",),
        fake_time=True,
    ),
    "retry": Shape(
        _named("chaos-retry", "start>a a>b b>out", a=_effect("a", fail_attempts=2, retry=_TWICE), b=_effect("b"),
               out=_out("{{ [$a.did, $b.did] }}")),
        (["a", "b"],),
    ),
    "race": Shape(
        _named(
            "chaos-race", "start>a start>w w>b a>m b>m m>c c>out",
            a=_effect("a"), w=waits(4, "seconds"), b=_effect("b"),
            m=kind("merge", wait_mode="wait_for_any", cancel_losers=True), c=_effect("c"),
            out=_out("{{ [$m.did, $c.did] }}"),
        ),
        (["a", "c"], ["b", "c"]),
    ),
    "first of two": Shape(
        _named("chaos-any", "start>a start>b a>c b>c c>out", a=_effect("a"), b=_effect("b"),
               c=_effect("c", join="any"), out=_out("{{ $c.did }}")),
        ("c",),
    ),
    "child": Shape(
        _named("chaos-parent", "start>a a>w w>b b>out", a=_effect("a"), w=kind("workflow", workflow=CHILD),
               b=_effect("b"), out=_out("{{ [$w, $b.did] }}")),
        (["a", "b"],),
    ),
    "signal": Shape(
        _named("chaos-signal", "start>w w>a a>out", w=_HEAR, a=_effect("a"), out=_out("{{ [$w.n, $a.did] }}")),
        ([0, "a"],),
        signals=("go",),
    ),
    "two for one name": Shape(
        _named("chaos-ears", "start>v start>w v>a w>b a>out b>out", v=_HEAR, w=_HEAR, a=_effect("a"), b=_effect("b"),
               out=_out("{{ $v.n + $w.n }}")),
        (1,),
        signals=("go", "go"),
    ),
    "at most once": Shape(
        _named("chaos-once", "start>a a>b b>out", a=_effect("a", at_most_once=True, error="ignore"),
               b=_effect("b", at_most_once=True, error="ignore"),
               out=_out("{{ [$a.did ?? $a.error.code, $b.did ?? $b.error.code] }}")),
        tuple([a, b] for a in ("a", "UNKNOWN_OUTCOME") for b in ("b", "UNKNOWN_OUTCOME")),
    ),
}  # fmt: skip
