"""Definitions as YAML that Rune reads back to the same content."""

from __future__ import annotations

import io
import sys
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

_FIRST = ("id", "src", "dst", "type", "name", "inputs", "settings", "nodes", "edges")

_STYLE = {
    "default_flow_style": False,
    "allow_unicode": True,
    "width": 1_000_000,
    "sort_base_mapping_type_on_output": False,
}


class _Plain(SafeRepresenter):
    """No anchors, which would not be read back; plain texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        style = None
        if not data.isprintable():
            style = "|" if all(map(_is_line, data.removesuffix("\n").split("\n"))) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


def _is_line(text: str) -> bool:
    """What is read back as it is without quotes."""
    return text.isprintable() and text == text.rstrip()


_Plain.add_representer(str, _Plain.represent_str)


def to_yaml(definition: dict[str, Any]) -> str:
    """A document with what matters first."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Plain
    vars(yaml).update(_STYLE)
    text = io.StringIO()
    yaml.dump(_ordered(definition), text)
    return text.getvalue()


def _ordered(thing: Any) -> Any:
    """Nodes and edges lead with who they are; within parameters nothing is moved."""
    first = {key: thing[key] for key in _FIRST if key in thing}
    for key in ("nodes", "edges"):
        if key in first:
            first[key] = [_ordered(each) for each in first[key]]
    return first | thing | first


def print_yaml(definition: dict[str, Any]) -> None:
    """The document on stdout."""
    sys.stdout.write(to_yaml(definition))
    sys.stdout.flush()
