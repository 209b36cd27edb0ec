"""Checks that the choices of an execution are possible."""

from __future__ import annotations

from tests.simulation.oracle.choices import Choices, Expected
from tests.simulation.oracle.model import Merge, Model, Path, TokenKey


def check_choices(model: Model, expected: Expected, choices: Choices) -> list[str]:
    """Reasons why the choices are impossible; empty if they are legal."""
    problems: list[str] = []
    for key in sorted(choices.opened):
        problems += _choice_problems(model, expected, choices, key)
    stopped = bool(expected.halting)
    for key in sorted(expected.undecided & expected.parties.keys()):
        if not stopped:
            problems.append(f"{key} had live arrivals and never opened")
    for name, path in sorted(choices.timed_out):
        node = model.shape.nodes[name]
        if node.kind not in ("merge", "aggregator") and node.timeout is None:
            problems.append(f"{(name, path)} has no timeout")
    regions = _open_regions(model, expected)
    for name, path in sorted(choices.cancelled):
        if not any(name in region and path[: len(at)] == at for region, at in regions):
            problems.append(f"{(name, path)} is in no cancelled region")
    return problems


def _choice_problems(model: Model, expected: Expected, choices: Choices, key: TokenKey) -> list[str]:
    name, quorum = key[0], model.shape.nodes[key[0]].quorum
    opened = choices.opened[key]
    if key in choices.timed_out:
        return []
    if key in choices.cancelled:
        return [] if not opened else [f"{key} was opened and cancelled"]
    parties = expected.parties.get(key)
    if parties is None:
        single = quorum and [edge.id for edge in model.shape.ins[name]] == list(opened)
        return [] if single or key in choices.timed_out else [f"{key} is no race"]
    problems = [f"{key} opened by {edge}, which was not alive" for edge in opened if not parties.get(edge)]
    if len(set(opened)) != len(opened):
        problems.append(f"{key} opened twice by one party")
    live = sum(alive is True for alive in parties.values())
    if key not in choices.timed_out and len(opened) != quorum and not (len(opened) <= live < quorum):
        problems.append(f"{key} opened by {len(opened)} of {quorum}")
    return problems


def _open_regions(model: Model, expected: Expected) -> list[tuple[frozenset[str], Path]]:
    """Regions cancelled by opened joins with cancel_losers, with their scope."""
    regions = []
    for node in model.nodes:
        if isinstance(node.params, Merge) and node.params.cancel_losers:
            region = model.shape.region(node.id)
            regions += [
                (region, path)
                for (name, path), (status, _) in expected.results.items()
                if name == node.id and status == "success"
            ]
    return regions
