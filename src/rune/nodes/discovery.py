"""Finding node types that others bring: installed distributions, and modules named at the start."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from rune.errors import RuneError
from rune.nodes.base import RunnableType
from rune.nodes.custom import kind_of
from rune.nodes.registry import Registry, standard_registry

GROUP = "rune.nodes"


class BadNodeModule(RuneError):
    """A module of node types cannot be used."""

    code = "BAD_NODE_MODULE"


def load_module(name: str) -> tuple[RunnableType, ...]:
    """Import a module and give the node types in it."""
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a script that ends itself would end us without a word
        raise BadNodeModule(f"module `{name}` cannot be imported: {type(error).__name__}: {error}") from error
    return _kinds_in(module, f"module `{name}`")


def installed() -> tuple[RunnableType, ...]:
    """The node types of every distribution that lists some in the entry-point group `rune.nodes`."""
    return tuple(kind for each in entry_points(group=GROUP) for kind in _load(each))


def full_registry(modules: Iterable[str] = ()) -> Registry:
    """The node types that come with Rune, those installed beside it, and those of the named modules."""
    found = {id(kind): kind for kind in installed()}
    found.update((id(kind), kind) for name in modules for kind in load_module(name))
    try:
        return standard_registry().extended(found.values())
    except ValueError as error:
        raise BadNodeModule(str(error)) from error


def _load(point: EntryPoint) -> tuple[RunnableType, ...]:
    place = f"entry point `{point.name} = {point.value}`"
    try:
        target: Any = point.load()
    except (Exception, SystemExit) as error:
        raise BadNodeModule(f"{place} cannot be loaded: {type(error).__name__}: {error}") from error
    return _kinds_in(target, place)


def _kinds_in(target: Any, place: str) -> tuple[RunnableType, ...]:
    """The kinds of a module, or of one decorated function."""
    candidates = vars(target).values() if isinstance(target, ModuleType) else (target,)
    found = {id(kind): kind for each in candidates if (kind := kind_of(each)) is not None}
    if not found:
        raise BadNodeModule(f"{place} has no function decorated with @node")
    return tuple(found.values())
