"""Installs a fault in this process and in every Python process that it starts.

`environment(table, name)` gives the variables of a process that is to have the fault: a folder on PYTHONPATH holds a
`sitecustomize` that calls `install` before anything else is imported. Targets are changed right after their module was
executed, so that `from module import function` elsewhere sees the replacement.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.faults.change import Change

ROOT = Path(__file__).resolve().parents[2]

_CUSTOMIZE = """\
import sys
sys.path.insert(0, {root!r})
from tests.faults.hook import install
install({table!r}, {name!r})
sys.path.remove({root!r})
"""


def environment(table: str, name: str, folder: Path) -> dict[str, str]:
    """The variables of a process that has the fault `name` of `table` (`package.module:TABLE`)."""
    text = _CUSTOMIZE.format(root=str(ROOT), table=table, name=name)
    (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])}


def install(table: str, name: str) -> None:
    """Make the changes of a fault as soon as their modules are imported."""
    module, _, attribute = table.partition(":")
    fault = getattr(importlib.import_module(module), attribute)[name]
    changes: Iterable[Change] = getattr(fault, "changes", fault)
    wanted: dict[str, list[Change]] = {}
    for change in changes:
        if change.module in sys.modules:
            raise RuntimeError(f"{change.module} was imported before the fault could be installed")
        wanted.setdefault(change.module, []).append(change)
    sys.meta_path.insert(0, _Finder(wanted))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, wanted: dict[str, list[Change]]) -> None:
        self._wanted = wanted

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        changes = self._wanted.get(fullname)
        if changes is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, changes)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, changes: list[Change]) -> None:
        self._loader, self._changes = loader, changes

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for change in self._changes:
            change.apply(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
