"""The workload of a cluster: small workflows of every kind and their permitted outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.workflows import Fields, edit, of_type, split, wait, workflow

CHILD = "chaos-child"
PURE_ITEMS = 300
"""Items of pure nodes: more than two workers take in one chunk each, so that a fault meets chunks at every stage."""


class Shape(NamedTuple):
    """A document, its permitted outputs, and the signals that are sent after the start."""

    document: Fields
    outputs: tuple[Any, ...]
    signals: tuple[str, ...] = ()
    fake_time: bool = False


def _effect(did: str, **more: Any) -> Fields:
    fail_attempts = more.pop("fail_attempts", 0)
    return {**of_type("chaos.effect", did=did, fail_attempts=fail_attempts), **more}


def _out(value: str) -> Fields:
    return of_type("output", value=value)


def _document(name: str, edges: str, **nodes: Fields) -> Fields:
    return {**workflow(edges, **nodes), "id": name}


_SIGNAL = of_type("wait", resume="signal", name="go")
_RETRY = {"max_attempts": 3, "initial_delay": 0.3}

CHILD_DOCUMENT = _document("chaos-child", "start>a a>out", a=_effect("a"), out=_out("{{ $a.did }}"))

WORKLOAD: dict[str, Shape] = {
    "chain": Shape(
        _document(
            "chaos-chain", "start>a a>b b>c c>out",
            a=_effect("a"), b=_effect("b"), c=_effect("c"), out=_out("{{ [$a.did, $b.did, $c.did] }}"),
        ),
        (["a", "b", "c"],),
    ),
    "join": Shape(
        _document(
            "chaos-join", "start>a start>b start>c a>m b>m c>m m>d d>out",
            a=_effect("a"), b=_effect("b"), c=edit(did="c"), m=of_type("merge"), d=_effect("d"),
            out=_out("{{ [x.did for x in $m] + [$d.did] }}"),
        ),
        (["a", "b", "c", "d"],),
    ),
    "fan-out": Shape(
        _document(
            "chaos-fan", "start>s s>e e>i i>g g>z z>out",
            s=split("{{ range(12) }}"), e=_effect("e"), i=edit(v="{{ $item }}"), g=of_type("aggregator"),
            z=_effect("z"), out=_out("{{ [x.v for x in $g] }}"),
        ),
        (list(range(12)),),
    ),
    "nested": Shape(
        _document(
            "chaos-nested", "start>s s>t t>e e>h h>g g>out",
            s=split("{{ [[0, 1, 2], [3, 4], []] }}"), t=split("$item"), e=_effect("e"),
            h=of_type("aggregator"), g=of_type("aggregator"), out=_out("{{ [[x.did for x in row] for row in $g] }}"),
        ),
        ([["e", "e", "e"], ["e", "e"], []],),
    ),
    "pure items": Shape(
        _document(
            "chaos-pure-items", "start>a a>s s>i i>j j>g g>z z>out",
            a=_effect("a"), s=split(f"{{{{ range({PURE_ITEMS}) }}}}"), i=edit(v="{{ 1000 // ($item - 77) }}"),
            j=edit(v="{{ $item }}", w="{{ $i.v }}"), g=of_type("aggregator"), z=_effect("z"),
            out=_out("{{ [x.v ?? x.error.code for x in $g] + [$z.did] }}"),
        ),
        ([each if each != 77 else "EXPRESSION_ERROR" for each in range(PURE_ITEMS)] + ["z"],),
    ),
    "short wait": Shape(
        _document("chaos-nap", "start>a a>w w>b b>out", a=_effect("a"), w=wait(0.7, "seconds"), b=_effect("b"),
               out=_out("{{ $b.did }}")),
        ("b",),
    ),
    "long wait": Shape(
        _document("chaos-sleep", "start>a a>w w>b b>out", a=_effect("a"), w=wait(4, "seconds"), b=_effect("b"),
               out=_out("{{ $b.did }}")),
        ("b",),
    ),
    "waits in a loop": Shape(
        _document(
            "chaos-loop", "start>s s>w w>e e>g g>out",
            s=split("{{ range(4) }}"), w=wait("{{ 0.5 + $item }}", "seconds"), e=_effect("e"),
            g=of_type("aggregator"), out=_out("{{ len($g) }}"),
        ),
        (4,),
    ),
    "virtual time": Shape(
        _document("chaos-days", "start>w w>a a>out", w=wait(2, "days"),
               a=_effect("a", fail_attempts=1, retry={"max_attempts": 3, "initial_delay": 60}),
               out=_out("{{ $a.did }}")),
        ("a",),
        fake_time=True,
    ),
    "retry": Shape(
        _document("chaos-retry", "start>a a>b b>out", a=_effect("a", fail_attempts=2, retry=_RETRY), b=_effect("b"),
               out=_out("{{ [$a.did, $b.did] }}")),
        (["a", "b"],),
    ),
    "race": Shape(
        _document(
            "chaos-race", "start>a start>w w>b a>m b>m m>c c>out",
            a=_effect("a"), w=wait(4, "seconds"), b=_effect("b"),
            m=of_type("merge", wait_mode="wait_for_any", cancel_losers=True), c=_effect("c"),
            out=_out("{{ [$m.did, $c.did] }}"),
        ),
        (["a", "c"], ["b", "c"]),
    ),
    "first of two": Shape(
        _document("chaos-any", "start>a start>b a>c b>c c>out", a=_effect("a"), b=_effect("b"),
               c=_effect("c", join="any"), out=_out("{{ $c.did }}")),
        ("c",),
    ),
    "child": Shape(
        _document("chaos-parent", "start>a a>w w>b b>out", a=_effect("a"), w=of_type("workflow", workflow=CHILD),
               b=_effect("b"), out=_out("{{ [$w, $b.did] }}")),
        (["a", "b"],),
    ),
    "signal": Shape(
        _document("chaos-signal", "start>w w>a a>out", w=_SIGNAL, a=_effect("a"), out=_out("{{ [$w.n, $a.did] }}")),
        ([0, "a"],),
        signals=("go",),
    ),
    "two waits for one signal": Shape(
        _document("chaos-two-signals", "start>v start>w v>a w>b a>out b>out", v=_SIGNAL, w=_SIGNAL, a=_effect("a"),
               b=_effect("b"), out=_out("{{ $v.n + $w.n }}")),
        (1,),
        signals=("go", "go"),
    ),
    "at most once": Shape(
        _document("chaos-once", "start>a a>b b>out", a=_effect("a", at_most_once=True, error="ignore"),
               b=_effect("b", at_most_once=True, error="ignore"),
               out=_out("{{ [$a.did ?? $a.error.code, $b.did ?? $b.error.code] }}")),
        tuple([a, b] for a in ("a", "UNKNOWN_OUTCOME") for b in ("b", "UNKNOWN_OUTCOME")),
    ),
}  # fmt: skip
